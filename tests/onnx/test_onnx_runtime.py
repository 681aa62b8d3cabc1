"""Layers with drawn attributes against ONNX Runtime, which reads the same models."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# Without the package this very folder passes for one named `onnx`: ask for a module in it.
for name in ("onnx.reference", "onnxruntime"):
    pytest.importorskip(name, reason=f"{name} reads the models, too")
one: Any = import_module("one_node")

Rng = np.random.Generator
CASES = 40


def f(rng: Rng, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def some(rng: Rng, least: int, most: int, count: int) -> list[int]:
    """As many numbers from one to another."""
    return [int(it) for it in rng.integers(least, most + 1, count)]


def one_of(rng: Rng, *choices: Any) -> Any:
    return choices[rng.integers(len(choices))]


def perhaps(rng: Rng, **attributes: Any) -> dict[str, Any]:
    """Some of these attributes."""
    return {name: it for name, it in attributes.items() if rng.integers(2)}


def convolution(rng: Rng) -> Any:
    axes, group = one_of(rng, 1, 2, 2, 3), one_of(rng, 1, 2, 3)
    kernel = some(rng, 1, 3, axes)
    named = perhaps(
        rng, strides=some(rng, 1, 3, axes), pads=some(rng, 0, 2, 2 * axes), kernel_shape=kernel
    )
    if "pads" in named:
        named |= perhaps(rng, dilations=some(rng, 1, 2, axes))
    else:
        named |= perhaps(rng, auto_pad=one_of(rng, "SAME_UPPER", "SAME_LOWER", "VALID"))
    channels, filters = group * some(rng, 1, 2, 2)[0], group * some(rng, 1, 3, 1)[0]
    x = f(rng, *some(rng, 1, 2, 1), channels, *some(rng, 5, 9, axes))
    arrays = [x, f(rng, filters, channels // group, *kernel), f(rng, filters)]
    constants = one_of(rng, (), (1, 2))
    return one.Case("Conv", arrays, {"group": group, **named}, 18, constants=constants)


def transposed(rng: Rng) -> Any:
    axes, group = one_of(rng, 1, 2), one_of(rng, 1, 2)
    kernel, strides = some(rng, 1, 3, axes), some(rng, 1, 3, axes)
    named = perhaps(
        rng,
        dilations=some(rng, 1, 2, axes),
        output_padding=[it - 1 for it in strides],
        pads=some(rng, 0, 1, 2 * axes),
    )
    x = f(rng, 1, 2 * group, *some(rng, 3, 6, axes))
    named |= {"group": group, "strides": strides}
    return one.Case("ConvTranspose", [x, f(rng, 2 * group, 3, *kernel)], named, 18)


def pool(rng: Rng) -> Any:
    op, axes = one_of(rng, "MaxPool", "MaxPool", "AveragePool", "LpPool"), one_of(rng, 1, 2, 3)
    kernel = some(rng, 1, 3, axes)
    named = perhaps(
        rng, strides=some(rng, 1, 3, axes), pads=[(it - 1) // 2 for it in kernel * 2], ceil_mode=1
    )
    named |= {"MaxPool": {}, "AveragePool": {"count_include_pad": 1}, "LpPool": {"p": 3}}[op]
    named |= {} if op == "AveragePool" else perhaps(rng, dilations=some(rng, 1, 2, axes))
    outputs = one_of(rng, 1, 2) if op == "MaxPool" else 1
    opset = 12 if op == "MaxPool" else 22
    x = f(rng, 2, 3, *some(rng, 5, 9, axes))
    return one.Case(op, [x], {"kernel_shape": kernel, **named}, opset, outputs=outputs)


def resize(rng: Rng) -> Any:
    mode = one_of(rng, "nearest", "linear", "cubic")
    modes = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    named = {"mode": mode, "coordinate_transformation_mode": one_of(rng, *modes)}
    if mode == "nearest":
        named["nearest_mode"] = one_of(rng, "round_prefer_floor", "round_prefer_ceil", "floor")
    else:
        named |= perhaps(rng, antialias=1)
    x = f(rng, 1, 2, *some(rng, 2, 7, 2))
    sizes = np.array([1, 2, *some(rng, 2, 12, 2)], np.int64)
    return one.Case("Resize", [x, None, None, sizes], named, 19, constants=[3])


def recurrent(rng: Rng) -> Any:
    op, direction = one_of(rng, "LSTM", "GRU", "RNN"), one_of(rng, "reverse", "bidirectional")
    gates, functions = {"LSTM": (4, 3), "GRU": (3, 2), "RNN": (1, 1)}[op]
    ways = 1 + (direction == "bidirectional")
    steps, samples, channels, hidden = some(rng, 1, 5, 4)
    arrays: list[Any] = [f(rng, steps, samples, channels), f(rng, ways, gates * hidden, channels)]
    arrays += [f(rng, ways, gates * hidden, hidden), f(rng, ways, 2 * gates * hidden)]
    arrays.append(one_of(rng, None, rng.integers(1, steps + 1, samples).astype(np.int32)))
    arrays.append(f(rng, ways, samples, hidden))
    named = perhaps(rng, clip=0.5)
    if op == "LSTM":
        arrays.append(f(rng, ways, samples, hidden))
        arrays += one_of(rng, [], [f(rng, ways, 3 * hidden)])
        named |= perhaps(rng, input_forget=1)
    elif op == "GRU":
        named |= perhaps(rng, linear_before_reset=1)
    known = ("Tanh", "Sigmoid", "Relu", "HardSigmoid", "Elu", "ScaledTanh", "Affine", "Softsign")
    names = [one_of(rng, *known) for _ in range(functions * ways)]
    if rng.integers(2):
        named |= {"activations": names, "activation_alpha": [0.3] * len(names)}
        named["activation_beta"] = [0.6] * len(names)
    outputs = 3 if op == "LSTM" else 2
    named |= {"hidden_size": hidden, "direction": direction}
    return one.Case(op, arrays, named, 14, constants=(1, 2, 3), outputs=outputs)


def grid(rng: Rng) -> Any:
    x, places = f(rng, *some(rng, 1, 4, 4)), some(rng, 1, 4, 2)
    named = {
        "mode": one_of(rng, "bilinear", "nearest", "bicubic"),
        "padding_mode": one_of(rng, "zeros", "border", "reflection"),
        "align_corners": one_of(rng, 0, 1),
    }
    return one.Case("GridSample", [x, 1.2 * f(rng, x.shape[0], *places, 2)], named, 16)


def regions(rng: Rng) -> Any:
    corners = np.sort(rng.random((4, 2, 2)) * 8 - 1, axis=1).reshape(4, 4).astype(np.float32)
    named = {
        "coordinate_transformation_mode": one_of(rng, "half_pixel", "output_half_pixel"),
        "output_height": one_of(rng, 1, 2, 3),
        "output_width": one_of(rng, 1, 2, 3),
        "sampling_ratio": one_of(rng, 0, 1, 2),
    }
    samples = rng.integers(0, 2, 4)
    return one.Case("RoiAlign", [f(rng, 2, 3, 6, 7), corners, samples], named, 16)


def attention(rng: Rng) -> Any:
    samples, queries, keys, size = some(rng, 1, 5, 4)
    groups = one_of(rng, 1, 2)
    arrays = [f(rng, samples, 4, queries, size), f(rng, samples, groups, keys, size)]
    arrays.append(f(rng, samples, groups, keys, size + 1))
    masks = ([], [f(rng, queries, keys)], [rng.integers(0, 2, (queries, keys)).astype(bool)])
    named = {"is_causal": one_of(rng, 0, 1), "softcap": one_of(rng, 0.0, 2.0)}
    return one.Case("Attention", [*arrays, *one_of(rng, *masks)], named, 23)


@pytest.mark.parametrize(
    "draw", [attention, convolution, grid, pool, recurrent, regions, resize, transposed]
)
def test_floats_agree(draw: Callable[[Rng], Any]) -> None:
    rng = np.random.default_rng(11)
    for _ in range(CASES):
        case = draw(rng)
        right = one.by_runtime(case)
        for ours, theirs in zip(one.by_dlprim(case, right), right, strict=True):
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), case
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4, err_msg=str(case))


# ---------------------------------------------------------------- 8 bits


def quantised(rng: Rng) -> list[Any]:
    """One node for each that ONNX Runtime's quantiser writes."""
    dtype = one_of(rng, np.uint8, np.int8)
    least = np.iinfo(dtype).min

    def q(*shape: int) -> np.ndarray:
        return np.asarray(rng.integers(least, least + 256, shape)).astype(dtype)

    def p(factor: float = 1) -> list[np.ndarray]:
        return [np.asarray(factor * (0.01 + 0.05 * rng.random()), np.float32), q()]

    def case(op: str, arrays: Any, constants: Any, **named: Any) -> Any:
        domain = "" if op in ("QLinearConv", "QLinearMatMul", "ConvInteger") else one.MICROSOFT
        return one.Case(op, arrays, named, 18, domain, constants)

    # Without VNNI its sums of two products have 16 bits, and saturate for larger weights.
    most = 127 if "vnni" in Path("/proc/cpuinfo").read_text() else 63
    weights = rng.integers(-most, most + 1, (4, 2, 3, 3)).astype(np.int8)
    by_filter = [f(rng, 4) ** 2 / 20 + np.float32(0.01), np.zeros(4, np.int8)]
    sums = rng.integers(-500, 500, 4).astype(np.int32)
    window = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    return [
        case(
            "QLinearConv",
            [q(1, 4, 5, 6), *p(), weights, *by_filter, *p(40), sums],
            range(1, 9),
            group=2,
            pads=[1, 0, 1, 1],
        ),
        case("QLinearMatMul", [q(2, 3, 5), *p(), q(5, 4), *p(), *p(40)], range(1, 8)),
        case("ConvInteger", [q(1, 2, 5, 6), weights, q()], (1, 2), pads=[1, 0, 1, 1]),
        case("QGemm", [q(3, 5), *p(), q(4, 5), *p(), sums, *p(20)], range(1, 9), transB=1),
        case("QGemm", [q(3, 5), *p(), q(5, 4), *p()], range(1, 6)),
        case("QLinearAdd", [q(2, 3, 4), *p(), q(3, 1), *p(), *p()], (1, 2, 4, 5, 6, 7)),
        case("QLinearMul", [q(2, 3, 4), *p(), q(4), *p(), *p()], (1, 2, 4, 5, 6, 7)),
        case("QLinearLeakyRelu", [q(2, 3), *p(), *p()], range(1, 5), alpha=0.1),
        case("QLinearSigmoid", [q(2, 3), *p(), *p(0.1)], range(1, 5)),
        case("QLinearGlobalAveragePool", [q(2, 3, 4, 5), *p(), *p()], range(1, 5)),
        case("QLinearAveragePool", [q(2, 3, 6, 5), *p(), *p()], range(1, 5), **window),
        case("QLinearConcat", [*p(), q(2, 3), *p(), q(2, 4), *p()], (0, 1, 3, 4, 6, 7), axis=1),
    ]


def test_quantised_operators_agree() -> None:
    rng = np.random.default_rng(12)
    for _ in range(5):
        for case in quantised(rng):
            right = one.by_runtime(case)
            (ours,), (theirs,) = one.by_dlprim(case, right), right
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype), case
            if ours.dtype == np.float32:
                np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
                continue
            # What lies between two steps may be rounded to either.
            away = np.abs(ours.astype(np.int64) - theirs)
            assert away.max() <= (0 if ours.dtype == np.int32 else 1), case
            assert np.mean(away != 0) < 0.1, case
