"""8-bit numbers and back: against the definition, per tensor and channel, with 8-bit layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlprim
import extent_reference as reference
from bfloat16 import bits_of, rounded

pytestmark = pytest.mark.every_level

DTYPES = ["uint8", "int8"]
SHAPES = [(), (0,), (1,), (7,), (1000,), (3, 5), (4, 6, 70), (2, 3, 33, 2), (3, 0, 2)]
LIMITS = reference.LIMITS


def normal(shape: Any, seed: int = 0) -> Any:
    return np.float32(20) * np.random.default_rng(seed).standard_normal(shape, np.float32)


def by_channel(values: Any, ndim: int, axis: int) -> Any:
    shape = [1] * ndim
    shape[axis] = -1
    return values.reshape(shape)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_one_scale_for_all(shape: tuple[int, ...], dtype: str) -> None:
    x = normal(shape)
    for scale, zero in ((0.1, 3), (0.5, 1), (1e-30, 0), (0.37, 100)):
        q = dlprim.quantize(x, scale, zero, dtype)
        assert q.dtype == dtype
        np.testing.assert_array_equal(q, reference.quantized(x, scale, zero, dtype))
        back = dlprim.dequantize(q, scale, zero)
        exact = (q.astype(np.float32) - np.float32(zero)) * np.float32(scale)
        np.testing.assert_array_equal(back, exact)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 5), (4, 6, 70), (2, 3, 33, 2), (3, 0, 2), (2, 100, 3)])
def test_a_scale_for_each_channel(shape: tuple[int, ...], dtype: str) -> None:
    x, random = normal(shape), np.random.default_rng(1)
    low, high = LIMITS[dtype]
    for axis in range(-len(shape), len(shape)):
        scale = random.random(shape[axis], np.float32) + np.float32(0.1)
        zero = random.integers(low, high + 1, shape[axis], dtype=dtype)
        wide = by_channel(scale, x.ndim, axis), by_channel(zero.astype(np.float32), x.ndim, axis)
        q = dlprim.quantize(x, scale, zero, dtype, axis)
        np.testing.assert_array_equal(q, reference.quantized(x, *wide, dtype))
        back = dlprim.dequantize(q, scale, zero.astype(np.int64), axis)
        np.testing.assert_array_equal(back, (q.astype(np.float32) - wide[1]) * wide[0])
        same = dlprim.quantize(x, scale, 5, dtype, axis)
        np.testing.assert_array_equal(same, reference.quantized(x, wide[0], 5, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_halves_limits_and_what_is_no_number(dtype: str) -> None:
    low, high = LIMITS[dtype]
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -0.0, 3e38, np.inf, -np.inf, np.nan], np.float32)
    expected = [0, 2, 2, 0, max(low, -2), 0, high, high, low, low]
    assert dlprim.quantize(x, 1.0, 0, dtype).tolist() == expected
    # The zero point comes behind the rounding: 0.5 + 1 would be rounded to 2.
    assert dlprim.quantize(x[:3], 1.0, 1, dtype).tolist() == [1, 3, 3]
    every = np.arange(low, high + 1)
    q = dlprim.quantize(every.astype(np.float32) * np.float32(0.25), 0.25, 0, dtype)
    np.testing.assert_array_equal(q, every)
    zero = high if dtype == "uint8" else low
    edge = np.array([-1e30, 1e30, -1, 0], np.float32)
    found = dlprim.quantize(edge, 1.0, zero, dtype).tolist()
    assert found == [low, high, max(zero - 1, low), zero]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_bfloat16(dtype: str, axis: int | None) -> None:
    pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")
    x = dlprim.to_bfloat16(normal((40, 70)))
    scale: Any = 0.3 if axis is None else np.full(x.shape[axis], 0.3, np.float32)
    q = dlprim.quantize(x, scale, 4, dtype, axis)
    np.testing.assert_array_equal(q, dlprim.quantize(dlprim.to_float32(x), scale, 4, dtype, axis))
    back = dlprim.dequantize(q, scale, 4, axis, "bfloat16")
    np.testing.assert_array_equal(bits_of(back), rounded(dlprim.dequantize(q, scale, 4, axis)))


def test_views_results_and_threads() -> None:
    x = normal((70, 600))
    for axis in (None, 0, 1):
        scale: Any = 0.2 if axis is None else 0.1 + np.arange(x.shape[axis], dtype=np.float32)
        q = dlprim.quantize(x, scale, 7, axis=axis)
        out = np.empty_like(q)
        assert dlprim.quantize(x, scale, 7, axis=axis, out=out) is out
        np.testing.assert_array_equal(out, q)
        np.testing.assert_array_equal(dlprim.quantize(np.asfortranarray(x), scale, 7, axis=axis), q)
        with dlprim.threads(2):
            np.testing.assert_array_equal(dlprim.quantize(x, scale, 7, axis=axis), q)
        values = dlprim.dequantize(q, scale, 7, axis)
        into = np.empty_like(values)
        assert dlprim.dequantize(np.asfortranarray(q), scale, 7, axis, out=into) is into
        np.testing.assert_array_equal(into, values)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_symmetric", [False, True])
def test_parameters_hold_all_values_and_zero(dtype: str, is_symmetric: bool) -> None:
    low, high = LIMITS[dtype]
    ranges = [(-1, 3), (0, 5), (2, 7), (-9, -4), (0, 0), (-1e-3, 1e30), (-3e38, 3e38), (0, 1e-44)]
    for least, most in ranges:
        x = np.array([least, most], np.float32)
        scale, zero = dlprim.quantization_parameters(x, dtype, symmetric=is_symmetric)
        assert isinstance(scale, float)
        assert isinstance(zero, int)
        assert scale == np.float32(scale) > 0
        assert low <= zero <= high
        if is_symmetric:
            assert zero == high - 127
        q = dlprim.quantize(np.append(x, np.float32(0)), scale, zero, dtype)
        back = dlprim.dequantize(q, scale, zero)
        assert back[2] == 0
        np.testing.assert_allclose(back[:2].astype(float), x.astype(float), atol=0.51 * scale)


def test_parameters_of_channels() -> None:
    x = normal((4, 5, 6))
    for axis in (0, -2, 2):
        scale, zero = dlprim.quantization_parameters(x, "int8", axis)
        assert scale.dtype == np.float32  # type: ignore[union-attr]
        assert zero.dtype == np.int8  # type: ignore[union-attr]
        for place in range(x.shape[axis]):
            one = dlprim.quantization_parameters(x.take(place, axis), "int8")
            assert one == (scale[place], zero[place])  # type: ignore[index]
    limits = np.stack([x.min((0, 2)), x.max((0, 2))])
    found = dlprim.quantization_parameters(limits, axis=1)
    for one, other in zip(found, dlprim.quantization_parameters(x, axis=1), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_layer_of_8_bits() -> None:
    """With a zero point, whose part of the exact sums is a bias."""
    random = np.random.default_rng(3)
    x = random.random((20, 64), np.float32) * 4 - 1
    w, bias = random.standard_normal((7, 64), np.float32), random.standard_normal(7, np.float32)
    scale, zero = dlprim.quantization_parameters(x)
    steps, _ = dlprim.quantization_parameters(w, "int8", 0, symmetric=True)
    q, quantised = dlprim.quantize(x, scale, zero), dlprim.quantize(w, steps, 0, "int8", 0)
    linear = dlprim.Linear(x.shape, 7, dtype="uint8", bias=True)
    both = np.float32(scale) * steps
    offset = bias - both * zero * quantised.sum(1, dtype=np.int32)
    y = linear.forward(q, linear.pack_weights(quantised), offset.astype(np.float32), scale=both)
    exact = dlprim.dequantize(q, scale, zero).astype(float) @ dlprim.dequantize(
        quantised, steps, 0, 0
    ).T.astype(float)
    np.testing.assert_allclose(y, exact + bias, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(y, x @ w.T + bias, atol=0.7)


ONES = np.ones((2, 3), np.float32)
BYTES = np.ones((2, 3), np.uint8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dlprim.quantize(ONES, 0.0), "scale is 0.0, expected a finite float32 above 0"),
        (lambda: dlprim.quantize(ONES, 1e-60), "scale is 1e-60, expected a finite float32 above"),
        (lambda: dlprim.quantize(ONES, 1e60), r"scale is 1e\+60, expected a finite float32 above"),
        (lambda: dlprim.quantize(ONES, np.nan), "scale is nan, expected a finite number"),
        (
            lambda: dlprim.quantize(ONES, ONES[0]),
            r"scale is an array of shape \(3,\), expected a n",
        ),
        (
            lambda: dlprim.quantize(ONES, ONES[0], axis=0),
            r"scale has shape \(3,\), expected \(2,\)",
        ),
        (lambda: dlprim.quantize(ONES, -ONES[0], axis=1), "scale holds a number that is not fin"),
        (lambda: dlprim.quantize(ONES, 0.1, axis=1), "scale is of type float, expected an array"),
        (lambda: dlprim.quantize(ONES, 1, 256), "zero_point is 256, expected an integer from 0 to"),
        (lambda: dlprim.quantize(ONES, 1, 200, "int8"), "zero_point is 200, expected an integer"),
        (lambda: dlprim.quantize(ONES, 1, 0.5), r"zero_point is 0\.5, expected an integer"),
        (
            lambda: dlprim.quantize(ONES, ONES[0], np.array([0, -1, 0]), axis=1),
            "zero_point holds a value that uint8 cannot hold",
        ),
        (
            lambda: dlprim.quantize(ONES, ONES[0], ONES[0], axis=1),
            "zero_point has dtype float32, expected uint8",
        ),
        (lambda: dlprim.quantize(ONES, 1, dtype="int16"), "dtype is int16, expected uint8 or int8"),
        (lambda: dlprim.quantize(ONES, ONES[0], axis=2), "axis is 2, expected an integer of at le"),
        (lambda: dlprim.quantize(BYTES, 1), "x has dtype uint8, expected float32 or bfloat16"),
        (lambda: dlprim.quantize(ONES, 1, out=ONES), "out has dtype float32, expected uint8"),
        (lambda: dlprim.dequantize(ONES, 1), "q has dtype float32, expected uint8 or int8"),
        (lambda: dlprim.dequantize(BYTES, 1, dtype="int8"), "dtype is int8, expected float32 or b"),
        (
            lambda: dlprim.quantization_parameters(ONES[:0]),
            r"x has shape \(0, 3\), expected at least one element",
        ),
        (
            lambda: dlprim.quantization_parameters(ONES * np.float32(np.inf)),
            "x holds NaN or an infinity, expected finite numbers",
        ),
        (
            lambda: dlprim.quantization_parameters(ONES * np.float32(np.nan)),
            "x holds NaN or an inf",
        ),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        call()


@pytest.mark.parametrize("dtype", DTYPES)
def test_against_pytorch(dtype: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    x, scale, zero = normal((30, 40)), 0.25, 5
    low, high = LIMITS[dtype]
    theirs = torch.fake_quantize_per_tensor_affine(torch.from_numpy(x), scale, zero, low, high)
    q = dlprim.quantize(x, scale, zero, dtype)
    np.testing.assert_array_equal(dlprim.dequantize(q, scale, zero), theirs.numpy())
