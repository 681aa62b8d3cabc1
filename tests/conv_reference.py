"""Convolution from its equation in float64, a loop over the taps of the filter, with error bounds.

With x continued by zeros beyond its edges, for every k in the group of channels that c is in,

    y[n,k,p,q] = sum over c, r, s of x[n,c,h,w] * w[k,c,r,s]
    h = p * stride + r * dilation - pad, w = q * stride + s * dilation - pad

and the gradients are the sums of the same products over other indices. The bounds are those of
reference.py; results of bfloat16 are rounded once more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

import dlprim
import reference
from conv_cases import Conv
from reference import Doubles, Expected

_BFLOAT16_ROUNDOFF = 2.0**-8
_STEEPEST = 1.5  # slope of any activation
_ACTIVATION_ULPS = 4  # as Brgemm promises

# On busy cores threads that wait for each other make small products a hundred times slower.
_BLAS = ThreadpoolController().select(user_api="blas")

_erfc = np.vectorize(math.erfc, otypes=[np.float64])
ACTIVATIONS: dict[str, Callable[[Doubles], Doubles]] = {
    "relu6": lambda x: np.clip(x, 0, 6),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "hardsigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "tanh": np.tanh,
    "gelu": lambda x: 0.5 * x * _erfc(-x / math.sqrt(2)),
    "gelu_tanh": lambda x: x / (1 + np.exp(-math.sqrt(8 / math.pi) * (x + 0.044715 * x**3))),
    "swish": lambda x: x / (1 + np.exp(-x)),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
}


def doubles(array: NDArray) -> Doubles:
    """Of float32, or of bfloat16 as an array of it or as bits."""
    widened = array if array.dtype == np.float32 else dlprim.to_float32(array, dtype="bfloat16")
    return widened.astype(np.float64)


# ---------------------------------------------------------------- the equations


def forward(case: Conv, x: NDArray, w: NDArray) -> Expected:
    """x (N, C, H, W), w (K, C/groups, R, S) -> (N, K, P, Q)."""
    terms = case.w_shape[1] * case.R * case.S
    return _expected(_forward, case, (doubles(x), doubles(w)), terms)


def backward_data(case: Conv, dy: NDArray, w: NDArray) -> Expected:
    """dy (N, K, P, Q), w (K, C/groups, R, S) -> (N, C, H, W)."""
    terms = case.K // case.groups * case.R * case.S
    return _expected(_backward_data, case, (doubles(dy), doubles(w)), terms)


def backward_weights(case: Conv, x: NDArray, dy: NDArray) -> Expected:
    """x (N, C, H, W), dy (N, K, P, Q) -> (K, C/groups, R, S)."""
    n, _, p, q = case.y_shape
    return _expected(_backward_weights, case, (doubles(x), doubles(dy)), max(n * p * q, 1))


def diff_bias(dy: NDArray) -> Expected:
    """dy (N, K, P, Q) -> (K,)."""
    dy = doubles(dy)
    terms = max(dy.size // dy.shape[1], 1)
    return Expected(dy.sum((0, 2, 3)), np.abs(dy).sum((0, 2, 3)), terms)


def relu_backward(dy: NDArray, y: NDArray) -> NDArray:
    """dy where y, of the same shape, is positive or NaN; the same dtype."""
    return np.where(doubles(y) <= 0, np.zeros((), dy.dtype), dy)


def _expected(
    equation: Callable[[Conv, Doubles, Doubles], Doubles],
    case: Conv,
    operands: tuple[Doubles, Doubles],
    terms: int,
) -> Expected:
    first, second = operands
    with _BLAS.limit(limits=1):
        value = equation(case, first, second)
        magnitude = equation(case, np.abs(first), np.abs(second))
    return Expected(value, magnitude, terms)


def _forward(case: Conv, x: Doubles, w: Doubles) -> Doubles:
    image, filters = _padded(case, x), _grouped(case, w)
    y = np.zeros(_matrices(case, case.K))
    for r, s, patch in _taps(case):
        y += filters[:, :, :, r, s] @ image[patch].reshape(_matrices(case, case.C))
    return y.reshape(case.y_shape)


def _backward_data(case: Conv, dy: Doubles, w: Doubles) -> Doubles:
    image, filters = _padded(case, np.zeros(case.x_shape)), _grouped(case, w)
    matrices = dy.reshape(_matrices(case, case.K))
    for r, s, patch in _taps(case):
        products = filters[:, :, :, r, s].swapaxes(1, 2) @ matrices
        image[patch] += products.reshape(image[patch].shape)
    (top, _), (left, _) = case.padding
    return image[:, :, top : top + case.H, left : left + case.W]


def _backward_weights(case: Conv, x: Doubles, dy: Doubles) -> Doubles:
    image = _padded(case, x)
    matrices = dy.reshape(_matrices(case, case.K))
    dw = np.zeros(_grouped(case, np.zeros(case.w_shape)).shape)
    for r, s, patch in _taps(case):
        pixels = image[patch].reshape(_matrices(case, case.C))
        dw[:, :, :, r, s] = (matrices @ pixels.swapaxes(2, 3)).sum(0)
    return dw.reshape(case.w_shape)


def _matrices(case: Conv, channels: int) -> tuple[int, int, int, int]:
    """Images, groups, channels of a group, and pixels of the result."""
    _, _, p, q = case.y_shape
    return case.N, case.groups, channels // case.groups, p * q


def _grouped(case: Conv, w: Doubles) -> Doubles:
    return w.reshape(case.groups, case.K // case.groups, *case.w_shape[1:])


def _padded(case: Conv, x: Doubles) -> Doubles:
    return np.pad(x, ((0, 0), (0, 0), *case.padding))


def _taps(case: Conv) -> Iterator[tuple[int, int, tuple[slice, ...]]]:
    """r, s, and the pixels of the padded image that this tap meets, one per result."""
    _, _, p, q = case.y_shape
    every = slice(None)
    for r in range(case.R):
        for s in range(case.S):
            top, left = r * case.dilation[0], s * case.dilation[1]
            rows = slice(top, top + (p - 1) * case.stride[0] + 1, case.stride[0])
            columns = slice(left, left + (q - 1) * case.stride[1] + 1, case.stride[1])
            yield r, s, (every, every, rows, columns)


# ---------------------------------------------------------------- the bounds


def activated(expected: Expected, activation: str | None) -> Expected:
    if activation in (None, "relu"):
        return expected.through(activation)
    with np.errstate(over="ignore"):  # exp of a large number: the quotient is right
        value = ACTIVATIONS[activation](expected.value)
    own = _ACTIVATION_ULPS * np.spacing(np.abs(value).astype(np.float32)).astype(np.float64)
    return _within(value, _STEEPEST * _limit(expected) + own)


def assert_close(actual: NDArray, expected: Expected) -> None:
    """Raise AssertionError unless every element is within its bound."""
    if actual.dtype != np.float32:
        limit = _limit(expected)
        limit += _BFLOAT16_ROUNDOFF * (np.abs(expected.value) + limit)
        actual, expected = dlprim.to_float32(actual), _within(expected.value, limit)
    reference.assert_close(actual, expected)


def _limit(expected: Expected) -> Doubles:
    factor = min(reference.SAFETY * math.sqrt(expected.terms), expected.terms)
    return factor * reference.UNIT_ROUNDOFF * expected.magnitude


def _within(value: Doubles, limit: Doubles) -> Expected:
    """Expected with just this limit."""
    return Expected(value, limit / reference.UNIT_ROUNDOFF, 1)
