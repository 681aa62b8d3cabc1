"""What the results must be: the equations in float64, and the one rule for how far off they may be.

A float32 sum of K terms t_i, in any order, with or without fused multiply-adds, is wrong by at
most K*u*sum|t_i| to first order in u (Higham, Accuracy and Stability, section 4.2), and by some
sqrt(K)*u*sum|t_i| when its roundings are independent. Independent roundings of equal terms of one
sign, the worst case, give a standard deviation of 0.33*sqrt(K)*u*sum|t_i|; SAFETY puts the limit
at six of these, where a test of a million elements fails once in a thousand runs by chance (and
the tests draw the same numbers on every run). For small K the first bound is the smaller one.
Terms are all that is added: products, the old value of C, the bias.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

UNIT_ROUNDOFF = 2.0**-24
SAFETY = 2.0

Doubles = NDArray[np.float64]


class Expected(NamedTuple):
    value: Doubles
    magnitude: Doubles  # sum of the absolute values of the terms
    terms: int

    def plus(self, addend: NDArray | None) -> Expected:
        if addend is None:
            return self
        term = addend.astype(np.float64)
        return Expected(self.value + term, self.magnitude + np.abs(term), self.terms + 1)

    def through(self, activation: str | None) -> Expected:
        """An activation with slope at most one does not enlarge the error."""
        if activation is None:
            return self
        assert activation == "relu"
        return self._replace(value=np.where(self.value < 0, 0, self.value))  # NaN stays NaN


def product(a: NDArray, b: NDArray) -> Expected:
    """a (..., m, k) times b (..., k, n), summed over all leading axes."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    axes = tuple(range(a.ndim - 2))
    terms = math.prod(a.shape[:-2]) * a.shape[-1]
    return Expected((a @ b).sum(axes), (np.abs(a) @ np.abs(b)).sum(axes), terms)


def brgemm(
    a: NDArray,
    b: NDArray,
    c: NDArray | None = None,
    bias: NDArray | None = None,
    activation: str | None = None,
) -> Expected:
    """a (batch, m, k), b (batch, k, n), c (m, n) where it is added to, bias (n,)."""
    return product(a, b).plus(c).plus(bias).through(activation)


def linear(
    x: NDArray, w: NDArray, bias: NDArray | None = None, activation: str | None = None
) -> Expected:
    """x (N, C), w (K, C), bias (K,)."""
    return product(x, w.T).plus(bias).through(activation)


def linear_backward(
    dy: NDArray, x: NDArray, w: NDArray, y: NDArray | None = None
) -> tuple[Expected, Expected, Expected]:
    """Gradients with respect to x, w and bias; y (N, K) is given where relu was applied."""
    if y is not None:
        dy = np.where(y > 0, dy, 0)
    return product(dy, w), product(dy.T, x), product(np.ones((1, len(dy))), dy)


def assert_close(actual: NDArray, expected: Expected) -> None:
    """Raise AssertionError unless every element is within the bound explained above."""
    assert actual.dtype == np.float32
    assert actual.shape == expected.value.shape
    factor = min(SAFETY * math.sqrt(expected.terms), expected.terms)
    limit = factor * UNIT_ROUNDOFF * expected.magnitude
    error = np.abs(actual.astype(np.float64) - expected.value)
    wrong = ~(error <= limit)  # NaN is wrong
    if wrong.any():
        where = tuple(int(axis[0]) for axis in np.nonzero(wrong))
        raise AssertionError(
            f"{wrong.sum()} of {wrong.size} elements are wrong; the first, at {where}, is "
            f"{actual[where]!r}, expected {expected.value[where]!r} +- {limit[where]:.3g}"
        )
