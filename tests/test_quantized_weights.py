"""Linear layers on weights of 4, 8 and 16 bits, against what the weights stand for in float64."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import dlprim
import row_reference as reference
from drawing import RNG

FORMS = [
    (4, 32, False), (4, 64, False), (4, 128, False), (4, 32, True), (4, 128, True),
    (8, 32, False), (8, 128, False), (8, 64, True), (16, 32, False),
]  # fmt: skip
# Of the largest result, by bits of x.
BOUNDS = {15: 4e-4, 8: 3e-2}
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
ACTIVATIONS: dict[str | None, Callable[[Any], Any]] = {
    None: lambda z: z,
    "relu": lambda z: np.maximum(z, 0),
    "gelu": reference.gelu,
    "swish": lambda z: z * reference.sigmoid(z),
    "tanh": np.tanh,
}


def drawn(*shape: int) -> npt.NDArray[np.float32]:
    return RNG.standard_normal(shape).astype(np.float32)


def require_near(y: Any, exact: npt.NDArray[np.float64], bound: float) -> None:
    error = np.abs(np.asarray(y, np.float64) - exact).max()
    assert error <= bound * max(np.abs(exact).max(), 1e-30)


def product(x: Any, packed: dlprim.QuantizedWeights) -> npt.NDArray[np.float64]:
    made: npt.NDArray[np.float64] = np.asarray(x, np.float64) @ packed.dequantize().T.astype(
        np.float64
    )
    return made


@pytest.mark.every_level
@pytest.mark.parametrize(("bits", "group", "zero_points"), FORMS)
@pytest.mark.parametrize("N", [1, 2, 3, 4, 5, 13, 30])
def test_products_are_those_of_what_weights_stand_for(
    bits: int, group: int, zero_points: bool, N: int
) -> None:
    for K, C in [(64, 128), (100, 97), (7, 33), (129, 300)]:
        packed = dlprim.quantize_weights(drawn(K, C), bits, group, zero_points)
        x = drawn(N, C)
        require_near(dlprim.linear(x, packed), product(x, packed), BOUNDS[15])


@pytest.mark.every_level
@pytest.mark.parametrize(("bits", "group", "zero_points"), FORMS[:-1])
def test_x_of_8_bits(bits: int, group: int, zero_points: bool) -> None:
    packed = dlprim.quantize_weights(drawn(130, 320), bits, group, zero_points, x_bits=8)
    for N in (1, 4, 17):
        x = drawn(N, 320)
        require_near(dlprim.linear(x, packed), product(x, packed), BOUNDS[8])


@pytest.mark.every_level
@pytest.mark.parametrize("bits", [4, 8, 16])
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_ends(bits: int, activation: str | None) -> None:
    packed = dlprim.quantize_weights(drawn(75, 160), bits)
    bias = drawn(75)
    for N, dtype, bound in [(1, np.float32, BOUNDS[15]), (3, np.float32, BOUNDS[15]),
                            (1, BFLOAT16, 4e-3), (3, BFLOAT16, 4e-3)]:  # fmt: skip
        x = drawn(N, 160).astype(dtype)
        z = product(x, packed) + bias
        y = dlprim.linear(x, packed, bias, activation=activation)
        assert y.dtype == dtype
        error = np.abs(y.astype(np.float64) - ACTIVATIONS[activation](z)).max()
        assert error <= bound * np.abs(z).max()


@pytest.mark.parametrize(("bits", "bound"), [(4, 0.13), (8, 0.008), (16, 2**-8)])
@pytest.mark.parametrize("zero_points", [False, True])
def test_weights_are_near_what_they_were(bits: int, bound: float, zero_points: bool) -> None:
    if bits == 16 and zero_points:
        return
    w = drawn(70, 96) + (1 if zero_points else 0)
    packed = dlprim.quantize_weights(w, bits, 32, zero_points)
    largest = np.abs(w.reshape(70, 3, 32)).max(axis=2, keepdims=True)
    error = np.abs(packed.dequantize() - w).reshape(70, 3, 32)
    assert (error <= bound * largest).all()


def test_types_of_weights_agree() -> None:
    halves = drawn(66, 64).astype(np.float16)
    of_halves = dlprim.quantize_weights(halves).dequantize()
    assert (of_halves == dlprim.quantize_weights(halves.astype(np.float32)).dequantize()).all()
    rounded = drawn(66, 64).astype(BFLOAT16)
    of_rounded = dlprim.quantize_weights(rounded, bits=16).dequantize()
    assert (of_rounded == rounded.astype(np.float32)).all()


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_integers_from_elsewhere(bits: int, has_zeros: bool, dtype: Any) -> None:
    q = RNG.integers(0, 1 << bits, (70, 80), np.uint8)
    scales = RNG.random((70, 3)).astype(dtype) + dtype(0.5)
    zeros = RNG.integers(0, 1 << bits, (70, 3), np.uint8) if has_zeros else None
    packed = dlprim.QuantizedWeights.from_integers(q, scales, zeros, bits=bits)
    assert packed.group == 32
    subtracted = np.repeat(zeros, 32, 1)[:, :80] if zeros is not None else 1 << (bits - 1)
    exact = (q.astype(np.float32) - subtracted) * np.repeat(scales, 32, 1)[:, :80]
    assert (packed.dequantize() == exact).all()
    x = drawn(2, 80)
    require_near(dlprim.linear(x, packed), product(x, packed), BOUNDS[15])


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_threads_and_company_change_no_bits(bits: int) -> None:
    packed = dlprim.quantize_weights(drawn(1000, 2048), bits)
    x = drawn(9, 2048)
    with dlprim.threads(1):
        alone = dlprim.linear(x, packed)
        rows = np.concatenate([dlprim.linear(x[i : i + 1], packed) for i in range(9)])
    with dlprim.threads(2):
        together = dlprim.linear(x, packed)
    assert (alone == together).all()
    assert (alone == rows).all()


def test_leading_axes_out_and_strides() -> None:
    packed = dlprim.quantize_weights(drawn(40, 64))
    x = drawn(2, 3, 64)
    y = dlprim.linear(x, packed)
    assert y.shape == (2, 3, 40)
    out = np.empty_like(y)
    assert dlprim.linear(x, packed, out=out) is out
    assert (out == y).all()
    spaced = np.repeat(x, 2, axis=-1)[..., ::2]
    assert (dlprim.linear(spaced, packed) == y).all()
    assert dlprim.linear(x[:0], packed).shape == (0, 3, 40)
    assert (dlprim.linear(x[0, 0], packed) == y[0, 0]).all()


def test_rows_of_zeros_and_what_is_no_number() -> None:
    for bits in (4, 8, 16):
        packed = dlprim.quantize_weights(drawn(70, 96), bits)
        x = drawn(3, 96)
        x[0] = 0
        x[1, 40] = np.nan
        y = dlprim.linear(x, packed)
        assert (y[0] == 0).all()
        assert np.isnan(y[1]).all()
        assert np.isfinite(y[2]).all()
        x[1, 40] = np.inf
        assert not np.isfinite(dlprim.linear(x, packed)[1]).any()
    assert (dlprim.quantize_weights(np.zeros((3, 5), np.float32)).dequantize() == 0).all()


@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16])
def test_compiled_functions_have_a_step_for_them(dtype: Any) -> None:
    packed, bias = dlprim.quantize_weights(drawn(70, 96)), drawn(70)

    @dlprim.compile
    def layer(x: Any) -> Any:
        return dlprim.linear(x, packed, bias, activation="gelu")

    for shape in [(1, 96), (5, 96), (2, 3, 96)]:
        x = drawn(*shape).astype(dtype)
        y = layer(x)
        assert y.dtype == dtype
        assert (y == dlprim.linear(x, packed, bias, activation="gelu")).all()
    assert "panel_linear" in layer.explain(x)
    assert "steps in Python: 0" in layer.explain(x)
    with pytest.raises(ValueError, match=r"x has shape \(1, 95\), expected \(..., 96\)"):
        layer(drawn(1, 95))


@pytest.mark.parametrize("activation", [None, "tanh"])
def test_gradients_go_through_to_x(activation: str | None) -> None:
    packed = dlprim.quantize_weights(drawn(70, 96), bits=8)
    w, x, bias = packed.dequantize(), drawn(3, 96), drawn(70)

    def loss(x: Any, bias: Any, w: Any) -> Any:
        return (dlprim.linear(x, w, bias, activation=activation) ** 2).sum()

    found = dlprim.grad(lambda x, bias: loss(x, bias, packed), wrt=(0, 1))(x, bias)
    due = dlprim.grad(lambda x, bias: loss(x, bias, w), wrt=(0, 1))(x, bias)
    for it, exact in zip(found, due, strict=True):
        require_near(it, exact.astype(np.float64), 1e-3)


def test_pickled_and_shown() -> None:
    packed = dlprim.quantize_weights(drawn(70, 96), zero_points=True, x_bits=8)
    again = pickle.loads(pickle.dumps(packed))
    x = drawn(1, 96)
    assert (dlprim.linear(x, again) == dlprim.linear(x, packed)).all()
    assert repr(again) == repr(packed)
    assert repr(packed) == (
        "QuantizedWeights(shape=(70, 96), bits=4, group=32, zero_points=True, nbytes=7296)"
    )
    assert (packed.shape, packed.bits, packed.group, packed.x_bits) == ((70, 96), 4, 32, 8)


@pytest.mark.any_level
def test_refusals() -> None:
    w = drawn(70, 96)
    with pytest.raises(ValueError, match=r"^bits is 5, expected 4, 8 or 16$"):
        dlprim.quantize_weights(w, 5)
    with pytest.raises(ValueError, match=r"^group is 48, expected 32, 64 or 128$"):
        dlprim.quantize_weights(w, group=48)
    with pytest.raises(ValueError, match=r"^x_bits is 16, expected 15 or 8$"):
        dlprim.quantize_weights(w, x_bits=16)
    with pytest.raises(ValueError, match=r"expected two dimensions \(K, C\)"):
        dlprim.quantize_weights(w[0])
    with pytest.raises(TypeError, match=r"^w has dtype int64"):
        dlprim.quantize_weights(w.astype(np.int64))
    w[3, 4] = np.nan
    with pytest.raises(ValueError, match=r"^w holds infinity or NaN"):
        dlprim.quantize_weights(w)
    packed = dlprim.quantize_weights(drawn(70, 96))
    with pytest.raises(ValueError, match=r"^x has shape \(1, 95\), expected \(..., 96\)"):
        dlprim.linear(drawn(1, 95), packed)
    with pytest.raises(TypeError, match=r"^x has dtype float64, expected float32 or bfloat16"):
        dlprim.linear(np.ones((1, 96)), packed)
    with pytest.raises(ValueError, match=r"^bias has shape \(71,\)"):
        dlprim.linear(drawn(1, 96), packed, drawn(71))
    with pytest.raises(ValueError, match=r"^out has shape \(1, 69\)"):
        dlprim.linear(drawn(1, 96), packed, out=drawn(1, 69))
    with pytest.raises(ValueError, match=r"^x_scale is given"):
        dlprim.linear(drawn(1, 96), packed, x_scale=0.5)
    with pytest.raises(ValueError, match=r"^scales has shape"):
        dlprim.QuantizedWeights.from_integers(np.zeros((4, 64), np.uint8), drawn(4, 3))
    with pytest.raises(ValueError, match=r"^q holds 16"):
        dlprim.QuantizedWeights.from_integers(np.full((4, 64), 16, np.uint8), drawn(4, 2))
