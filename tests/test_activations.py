"""Activations as functions: against float64, in both dtypes, at their limits and in place."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dlprim
from bfloat16 import bits_of, rounded
from guarded import guarded
from row_reference import ACTIVATIONS, slope
from wrong_values import SETTINGS

pytestmark = pytest.mark.every_level

SIZES = [0, 1, 15, 16, 17, 131, 40000]
CASES = [(name, settings) for name, it in SETTINGS.items() for settings in ({}, it)]
CASES += [("softplus", {"beta": 0.5, "threshold": 2.0}), ("leaky_relu", {"negative_slope": -1.0})]
# Where a slope has a step: there it is taken from one side.
STEPS = {"leaky_relu": [0], "elu": [0], "selu": [0], "hardsigmoid": [-3, 3], "hardswish": [-3, 3]}
LIMITS = {
    "sigmoid": (0, 1), "tanh": (-1, 1), "gelu": (0, np.inf), "silu": (0, np.inf),
    "leaky_relu": (-np.inf, np.inf), "elu": (-1, np.inf), "selu": (-1.7580993, np.inf),
    "hardsigmoid": (0, 1), "hardswish": (np.nan, np.inf), "softplus": (0, np.inf),
    "mish": (np.nan, np.inf),
}  # fmt: skip


def normal(size: Any, seed: int = 0, scale: float = 4) -> Any:
    values = np.random.default_rng(seed).standard_normal(size)
    return (scale * values).astype(np.float32)


def wide(x: Any) -> Any:
    return x if x.dtype == np.float32 else dlprim.to_float32(x)


def away_from_steps(name: str, x: NDArray[np.float32]) -> NDArray[np.float32]:
    for place in STEPS.get(name, []):
        x = np.where(np.abs(x - place) < 1e-3, place + np.float32(0.01), x)
    return x.astype(np.float32)


def functions(name: str) -> tuple[Any, Any]:
    return getattr(dlprim, name), getattr(dlprim, f"{name}_backward")


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_values_and_slopes(name: str, settings: dict[str, Any]) -> None:
    value, backward = functions(name)
    for size in SIZES:
        x = away_from_steps(name, normal(size))
        if "threshold" in settings:
            x = x[np.abs(settings["beta"] * x - settings["threshold"]) > 1e-3]
        dy, exact = normal(x.shape, 1, 1), x.astype(np.float64)
        expected = ACTIVATIONS[name](exact, **settings)
        np.testing.assert_allclose(value(x, **settings), expected, rtol=2e-6, atol=1e-6)
        slopes = slope(lambda it: ACTIVATIONS[name](it, **settings), exact)
        found = backward(dy, x, **settings)
        np.testing.assert_allclose(found, dy * slopes, rtol=2e-6, atol=8e-6)


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_small_results_are_not_lost(name: str, settings: dict[str, Any]) -> None:
    """Near zero the exponentials' 1 would cancel what is left."""
    small = np.float32(10) ** np.arange(-30, -1, dtype=np.float32)
    x = np.concatenate([small, -small])
    expected = ACTIVATIONS[name](x.astype(np.float64), **settings)
    np.testing.assert_allclose(functions(name)[0](x, **settings), expected, rtol=1e-5)


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_bfloat16_is_float32_rounded_once(name: str, settings: dict[str, Any]) -> None:
    for function in functions(name):
        for size in SIZES:
            given = [dlprim.to_bfloat16(normal(size, seed)) for seed in (0, 1)]
            arrays = given[: 2 if function is functions(name)[1] else 1]
            found = function(*arrays, **settings)
            expected = function(*(dlprim.to_float32(it) for it in arrays), **settings)
            assert found.dtype == arrays[0].dtype
            np.testing.assert_array_equal(bits_of(found), rounded(expected))


@pytest.mark.parametrize("name", SETTINGS)
def test_neighbours_do_not_change_a_bit(name: str) -> None:
    """Vectors take their steps in turns, so many together as the row still has."""
    function, _ = functions(name)
    for x in (normal(8 * 16 + 5, 3), dlprim.to_bfloat16(normal(8 * 16 + 5, 3))):
        alone = np.concatenate([function(x[i : i + 1]) for i in range(x.size)])
        for size in (1, 7, 16, 17, 33, 64, 65, 100, x.size):
            together = function(x[:size])
            np.testing.assert_array_equal(bits_of(together), bits_of(alone[:size]))


@pytest.mark.parametrize("name", SETTINGS)
def test_limits(name: str) -> None:
    value, backward = functions(name)
    x = np.array([-np.inf, np.inf, np.nan], np.float32)
    np.testing.assert_allclose(value(x)[:2], LIMITS[name], atol=1e-6)
    assert np.isnan(value(x)[2])
    slopes = backward(np.ones_like(x), x)
    assert np.isnan(slopes[2])
    far = np.array([-90, 90], np.float32)
    np.testing.assert_allclose(slopes[:2], backward(np.ones_like(far), far), atol=1e-6)
    assert np.isnan(backward(x[2:], np.zeros(1, np.float32))[0])
    finite = normal(10)
    for place in range(10):  # one NaN does not touch the others
        spoiled = finite.copy()
        spoiled[place] = np.nan
        np.testing.assert_array_equal(
            np.delete(value(spoiled), place), np.delete(value(finite), place)
        )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", SETTINGS)
def test_in_place_and_into_out(name: str, dtype: str) -> None:
    value, backward = functions(name)
    x, dy = normal((3, 41)), normal((3, 41), 1)
    if dtype == "bfloat16":
        x, dy = dlprim.to_bfloat16(x), dlprim.to_bfloat16(dy)
    y, dx, out = value(x), backward(dy, x), np.empty_like(x)
    assert value(x, out=out) is out
    assert bits_of(out).tobytes() == bits_of(y).tobytes()
    for place in range(2):
        pair = [dy.copy(), x.copy()]
        assert backward(*pair, out=pair[place]) is pair[place]
        assert pair[place].tobytes() == dx.tobytes()
    assert value(x, out=x) is x
    assert x.tobytes() == y.tobytes()


@pytest.mark.parametrize("name", SETTINGS)
def test_shapes_and_layouts(name: str) -> None:
    value, backward = functions(name)
    x = normal((5, 6, 7))
    expected, slopes = value(x), backward(x, x)
    for view in (np.asfortranarray(x), np.repeat(x, 2, 1)[:, ::2], x.astype(np.float32, "F")):
        np.testing.assert_array_equal(value(view), expected)
        np.testing.assert_array_equal(backward(x, view), slopes)
    assert value(view).flags.c_contiguous
    assert value(x[0, 0, 0:1].reshape(())).shape == ()
    assert value(x[:0]).shape == (0, 6, 7)


@pytest.mark.parametrize("edge", ["begin", "end"])
@pytest.mark.parametrize("name", SETTINGS)
def test_nothing_beside_the_arrays_is_touched(name: str, edge: str) -> None:
    value, backward = functions(name)
    for size in (1, 7, 33, 100):
        x, dy, out = (guarded(size, edge) for _ in range(3))
        x[:] = normal(size)
        value(x, out=out)
        backward(dy, x, out=out)


def test_packed_arrays_stay_packed() -> None:
    images = dlprim.Activations((2, 5, 3, 4))
    x = normal((2, 5, 3, 4))
    packed = images.pack(x)
    found: Any = dlprim.silu(packed)
    assert found.packed_as == packed.packed_as  # type: ignore[attr-defined]
    np.testing.assert_array_equal(images.unpack(found), dlprim.silu(x))


def test_threads_do_not_change_a_bit() -> None:
    x = normal(300_001)
    with dlprim.threads(1):
        one = [dlprim.mish(x), dlprim.gelu_backward(x, x)]
    with dlprim.threads(2):
        two = [dlprim.mish(x), dlprim.gelu_backward(x, x)]
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: dlprim.gelu(x, "exact"), "approximate is 'exact', expected one of 'none', "),
        (lambda x: dlprim.gelu_backward(x, x, True), "approximate is True, expected one of "),
        (lambda x: dlprim.leaky_relu(x, np.nan), "negative_slope is nan, expected a finite num"),
        (lambda x: dlprim.elu(x, "1"), "alpha is '1', expected a finite number"),
        (lambda x: dlprim.softplus(x, 0), "beta is 0, expected a finite number above 0"),
        (lambda x: dlprim.softplus_backward(x, x, 1, np.inf), "threshold is inf, expected a fin"),
        (lambda x: dlprim.tanh(x, out=x[:2]), r"out has shape \(2, 8\), expected \(4, 8\)"),
        (lambda x: dlprim.tanh(x[:2], out=x.reshape(-1)[8:24].reshape(2, 8)), "out shares memory "),
        (lambda x: dlprim.tanh(x.astype(np.float64)), "x has dtype float64, expected float32 or "),
        (lambda x: dlprim.tanh([1.0]), "x is of type list, expected an array of float32"),
        (lambda x: dlprim.mish_backward(x, x[:2]), r"x has shape \(2, 8\), expected \(4, 8\) "),
        (
            lambda x: dlprim.mish_backward(x, dlprim.to_bfloat16(x)),
            "x has dtype .*, expected float32 as dy has",
        ),
        (lambda x: dlprim.tanh(x, dtype="float32"), "dtype is 'float32', expected None or "),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        call(normal((4, 8)))


def test_functions_show_what_they_are() -> None:
    shown = str(inspect.signature(dlprim.softplus_backward))
    assert shown.startswith("(dy: 'Any', x: 'Any', beta: 'float' = 1.0, threshold: 'float' = 20.0,")
    assert dlprim.gelu.__module__ == "dlprim.functions.rows.activations"
    with pytest.raises(TypeError, match=r"^elu\(\) got an unexpected keyword argument 'beta'"):
        dlprim.elu(normal(3), beta=1)


@pytest.mark.parametrize("name", SETTINGS)
def test_against_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    function = getattr(torch.nn.functional, name)
    x, dy = away_from_steps(name, normal(1000)), normal(1000, 1, 1)
    leaf = torch.from_numpy(x).double().requires_grad_()
    result = function(leaf, **SETTINGS[name])
    result.backward(torch.from_numpy(dy).double())
    value, backward = functions(name)
    found = value(x, **SETTINGS[name]), backward(dy, x, **SETTINGS[name])
    for ours, theirs in zip(found, (result.detach(), leaf.grad), strict=True):
        np.testing.assert_allclose(wide(ours), theirs.numpy(), rtol=2e-6, atol=8e-6)
