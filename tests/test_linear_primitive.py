"""Linear: values of every pass, activations, exact 8-bit sums, refusals, bits, ISA levels."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlprim
from bfloat16 import random_floats
from cases import LINEAR, Linear
from conftest import LEVELS, RunPython, runs
from conv_reference import doubles
from guarded import guarded
from linear_checker import (
    ACTIVATIONS,
    VARIANTS,
    Checked,
    Variant,
    check,
    drawn_variant,
    random_layers,
    slope,
)
from tuning_cases import schedules_of

RANDOM = [*random_layers(60, seed=1), Linear(9, 160, 400), Linear(70, 400, 1)]

variants = pytest.mark.parametrize(("dtype", "layout"), VARIANTS)


# ---------------------------------------------------------------- values


@pytest.mark.every_level
@variants
@pytest.mark.parametrize("number", range(len(LINEAR)))
def test_shape(number: int, dtype: str, layout: str) -> None:
    check(LINEAR[number], drawn_variant(dtype, layout, number))


@variants
@pytest.mark.parametrize("number", range(len(RANDOM)))
def test_random_shape(number: int, dtype: str, layout: str) -> None:
    check(RANDOM[number], drawn_variant(dtype, layout, number), seed=number)


@variants
@pytest.mark.parametrize("edge", ["begin", "end"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activation(dtype: str, layout: str, edge: str, activation: str | None) -> None:
    for bias in (False, True):
        check(Linear(17, 35, 70), Variant(dtype, layout, bias, activation, edge))


@pytest.mark.large
@variants
def test_every_schedule_computes_the_same(dtype: str, layout: str) -> None:
    case = Linear(150, 200, 130)
    variant = Variant(dtype, layout, bias=True, activation="relu")
    layer = Checked(case, variant, 0).layer
    for which in layer.schedules:
        for schedule in schedules_of(layer, which, 8):
            check(case, variant, schedule={which: schedule})


@pytest.mark.any_level
@pytest.mark.parametrize("level", LEVELS)
def test_level(run_python: RunPython, level: str) -> None:
    """In a process of its own each: a layer takes the highest level that it is allowed."""
    if level == dlprim.isa() or not runs(level):
        pytest.skip(f"{level} is the level of the other tests, or not usable here")
    source = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import linear_checker, dlprim\n"
        "linear_checker.check_on_this_level(12, seed=2)\n"
        "print(dlprim.isa())"
    )
    run = run_python(source, DLPRIM_MAX_ISA=level, timeout=300)
    assert run.returncode == 0, run.stderr
    assert (run.stdout, run.stderr) == (f"{level}\n", "")


@pytest.mark.parametrize("activation", ACTIVATIONS[1:])
def test_slope_far_from_zero_and_of_nan(activation: str) -> None:
    z = np.array([[-np.inf, -1e30, -100, -12, -0.0, 0, 12, 100, 1e30, np.inf, np.nan]], np.float32)
    layer = dlprim.Linear((1, 1), z.size, activation=activation, bias=True)
    weights = layer.pack_weights(np.zeros((z.size, 1), np.float32))
    with np.errstate(invalid="ignore"):
        _, saved = layer.forward(
            layer.pack_src(np.zeros((1, 1), np.float32)), weights, z[0], training=True
        )
        diff, _ = layer.backward_activation(layer.pack_diff_dst(np.ones_like(z)), saved)
    actual = layer.unpack_dst(diff)
    np.testing.assert_allclose(actual[:, :-1], slope(activation, z)[:, :-1], atol=1e-6)
    assert np.isnan(actual[0, -1]) or activation == "relu"


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_function_and_gradient_agree_with_torch(activation: str | None, dtype: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    random = np.random.default_rng(0)
    x, w, bias, dy = (
        random.standard_normal(shape, np.float32) for shape in ((33, 70), (19, 70), 19, (33, 19))
    )
    if dtype == "bfloat16":
        x, w, dy = (dlprim.to_bfloat16(each) for each in (x, w, dy))
    tensors = [torch.from_numpy(doubles(each)).requires_grad_() for each in (x, w, bias)]
    z = torch.nn.functional.linear(*tensors)
    functions = {
        None: lambda z: z,
        "relu6": torch.nn.functional.relu6,
        "hardsigmoid": torch.nn.functional.hardsigmoid,
        "hardswish": torch.nn.functional.hardswish,
        "swish": torch.nn.functional.silu,
        "gelu": torch.nn.functional.gelu,
        "gelu_tanh": lambda z: torch.nn.functional.gelu(z, approximate="tanh"),
    }
    theirs = functions.get(activation, getattr(torch, activation or "relu", None))(z)
    theirs.backward(torch.from_numpy(doubles(dy)))
    y = dlprim.linear(x, w, bias, activation=activation)
    from_argument = activation in ("gelu", "gelu_tanh", "swish", "hardswish")
    kept = (dlprim.linear(x, w, bias) if from_argument else y) if activation else None
    ours = dlprim.linear_backward(
        dy, x, w, **{"z" if from_argument else "y": kept}, activation=activation
    )
    tolerance = 1e-4 if dtype == "float32" else 5e-2
    if dtype == "bfloat16" and activation in ("relu6", "hardsigmoid"):
        tolerance = 0.2  # results just below the limit are rounded to it: their slope is 0
    for mine, expected in zip((y, *ours), (theirs, *(t.grad for t in tensors)), strict=True):
        scale = float(expected.detach().abs().max())
        np.testing.assert_allclose(
            doubles(mine), expected.detach().numpy(), rtol=0, atol=tolerance * scale
        )


# ---------------------------------------------------------------- 8 bits


# Of more terms than end beside the last products.
WIDE_LAYERS = [Linear(9, 300, 70), Linear(16, 260, 16), Linear(4, 512, 48), Linear(33, 1000, 128)]


@pytest.mark.parametrize("src_dtype", ["uint8", "int8"])
@pytest.mark.parametrize("dst_dtype", ["float32", "bfloat16", "uint8", "int8"])
@pytest.mark.parametrize("case", [*random_layers(12, seed=3), *WIDE_LAYERS], ids=str)
def test_8_bits_are_exact(case: Linear, src_dtype: str, dst_dtype: str) -> None:
    random = np.random.default_rng(1)
    limits = np.iinfo(src_dtype)
    layer = dlprim.Linear((case.N, case.C), case.K, dtype=src_dtype, bias=True, dst_dtype=dst_dtype)
    x = guarded(case.N * case.C, dtype=src_dtype).reshape(layer.x_shape)
    x[...] = random.integers(limits.min, limits.max + 1, x.shape)
    w = random.integers(-128, 128, layer.w_shape).astype(np.int8)
    scale = 2.0 ** -random.integers(4, 12, case.K).astype(np.float32)
    bias = random.integers(-9, 9, case.K).astype(np.float32)
    y = layer.unpack_dst(layer.forward(layer.pack_src(x), layer.pack_weights(w), bias, scale=scale))
    exact = x.astype(np.int64) @ w.astype(np.int64).T
    expected = exact.astype(np.float32) * scale + bias
    if dst_dtype == "bfloat16":
        np.testing.assert_array_equal(y, dlprim.to_bfloat16(expected))
    elif dst_dtype == "float32":
        np.testing.assert_array_equal(y, expected)
    else:
        to = np.iinfo(dst_dtype)
        np.testing.assert_array_equal(y, np.clip(np.rint(expected), to.min, to.max))
    with pytest.raises(TypeError, match="has the forward pass alone"):
        layer.backward_data(y, layer.pack_weights(w), x)


def test_one_scale_for_all_channels() -> None:
    layer = dlprim.Linear((3, 5), 7, dtype="uint8")
    x, w = np.full((3, 5), 255, np.uint8), np.full((7, 5), -128, np.int8)
    y = layer.forward(layer.pack_src(x), layer.pack_weights(w), scale=0.5)
    np.testing.assert_array_equal(y, np.full((3, 7), -255 * 128 * 5 / 2))
    with pytest.raises(ValueError, match=r"^scale is missing"):
        layer.forward(x, layer.pack_weights(w))


# ---------------------------------------------------------------- the same bits


def all_passes(checked: Checked) -> list[bytes]:
    layer = checked.layer
    dst, saved = layer.forward(
        checked.src, checked.weights, np.ones(checked.case.K, np.float32), training=True
    )
    diff, db = layer.backward_activation(checked.diff_dst, saved)
    diff_src = layer.backward_data(diff, checked.weights)
    dw = layer.unpack_diff_weights(layer.backward_weights(checked.src, diff))
    results = (layer.unpack_dst(dst), layer.unpack_diff_src(diff_src), dw, db)
    return [each.tobytes() for each in results]


@variants
@pytest.mark.parametrize("case", [Linear(300, 70, 200), Linear(3, 2100, 130), Linear(700, 90, 1)])
def test_same_bits_for_any_number_of_threads(case: Linear, dtype: str, layout: str) -> None:
    variant = Variant(dtype, layout, bias=True, activation="gelu")
    with dlprim.threads(1):
        expected = all_passes(Checked(case, variant, 0))
    checked = Checked(case, variant, 0)
    for threads in range(1, 9):
        with dlprim.threads(threads):
            assert [all_passes(checked), all_passes(checked)] == [expected, expected]


def test_python_threads_share_one_layer() -> None:
    checked = Checked(Linear(100, 130, 140), Variant(bias=True, activation="relu"), 0)
    expected = all_passes(checked)
    with ThreadPoolExecutor(8) as pool:
        assert all(each == expected for each in pool.map(lambda _: all_passes(checked), range(16)))


# ---------------------------------------------------------------- refusals


def operands(layer: dlprim.Linear) -> dict[str, np.ndarray]:
    shapes = {"src": layer.src_shape, "weights": layer.weights_shape, "diff_dst": layer.dst_shape}
    return {name: np.ones(shape, np.float32) for name, shape in shapes.items()}


def test_results_overlap_no_operand() -> None:
    layer = dlprim.Linear((64, 64), 64, activation="relu")
    them = operands(layer)
    src, weights, diff_dst = them.values()
    for call in (
        lambda: layer.forward(src, weights, out=src),
        lambda: layer.forward(src, weights, out=weights[0, 0]),
        lambda: layer.backward_data(diff_dst, weights, out=diff_dst),
        lambda: layer.backward_weights(src, diff_dst, out=src[:, None]),
        lambda: layer.backward_activation(diff_dst, src, out=src),
    ):
        with pytest.raises(ValueError, match=r"^out .*"):
            call()
    assert all((each == 1).all() for each in them.values())


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"x_shape": (3,)}, ValueError, r"^x_shape is \(3,\), expected two"),
        ({"x_shape": (3, 2.5)}, TypeError, r"^x_shape is \(3, 2.5\) and K is 4, expected integers"),
        ({"x_shape": (3, -1)}, ValueError, r"expected 0 to 2\^31 - 1"),
        ({"x_shape": (3, 2**25)}, ValueError, r"at most 2\^24 channels"),
        ({"dtype": "float64"}, TypeError, r"^dtype is float64, expected float32"),
        ({"activation": "elu"}, ValueError, r"^activation is 'elu'"),
    ],
)
def test_impossible_layers_are_refused(
    arguments: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        dlprim.Linear(**({"x_shape": (3, 2), "K": 4} | arguments))


def test_operands_that_do_not_fit_are_refused() -> None:
    layer = dlprim.Linear((5, 140), 9, activation="gelu", bias=True)
    them = operands(layer)
    src, weights, diff_dst = them.values()
    bias = np.zeros(9, np.float32)
    for call, match in (
        (lambda: layer.forward(src[:1], weights, bias), r"^src has shape \(1, 5, 48\)"),
        (lambda: layer.forward(src, weights[..., :4], bias), r"^weights has shape"),
        (lambda: layer.forward(src, weights), r"^bias is missing"),
        (lambda: layer.forward(src, weights, bias, scale=2.0), r"^scale was given"),
        (lambda: layer.backward_data(diff_dst, weights[:1]), r"^weights has shape \(1, "),
        (lambda: layer.backward_activation(diff_dst), r"^saved is missing"),
    ):
        with pytest.raises(ValueError, match=match):
            call()
    with pytest.raises(TypeError, match=r"^src has dtype float64"):
        layer.forward(src.astype(float), weights, bias)
    with pytest.raises(ValueError, match=r"^layout is 'blocked' and dtype is uint8"):
        dlprim.Linear((1, 2), 3, dtype="uint8", layout="blocked")


def test_plain_operands_are_used_in_place() -> None:
    layer = dlprim.Linear((5, 70), 9, layout="plain")
    x = np.ones((5, 70), np.float32)
    assert layer.pack_src(x) is x
    with pytest.raises(ValueError, match=r"^x has shape \(4, 70\)"):
        layer.pack_src(x[:4])
    with pytest.raises(TypeError, match=r"^x has dtype float64"):
        layer.pack_src(x.astype(float))


def test_looking_in() -> None:
    layer = dlprim.Linear((64, 128), 256)
    assert layer.flops == 2 * 64 * 128 * 256
    assert set(layer.schedules) == set(layer.scratch_bytes)
    assert "blocks: C 2 x 64, K 4 x 64" in str(layer)
    assert dlprim.Linear((1, 2), 3, dtype="int8").schedules.keys() == {"forward"}


@pytest.mark.parametrize("backward", [False, True])
def test_float32_weights_are_rounded_while_they_are_packed(backward: bool) -> None:
    layer = dlprim.Linear((4, 131), 67, dtype="bfloat16")
    w = random_floats(131 * 67).reshape(67, 131)
    packed = layer.pack_weights(w, backward=backward)
    expected = layer.pack_weights(dlprim.to_bfloat16(w), backward=backward)
    assert packed.dtype == expected.dtype
    assert packed.tobytes() == expected.tobytes()
    with pytest.raises(TypeError, match=r"^w has dtype float64, expected bfloat16"):
        layer.pack_weights(np.zeros(w.shape))
