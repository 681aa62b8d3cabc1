"""Batch normalisation from its equations, in float64 on plain (N, C, H, W) arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_PIXELS = (0, 2, 3)


class Normalized(NamedTuple):
    """The result in front of relu, and what the gradients need."""

    sum: NDArray
    mean: NDArray
    variance: NDArray


def broadcast(values: NDArray) -> NDArray:
    return np.asarray(values, np.float64)[:, None, None]


def forward(
    x: NDArray,
    weight: NDArray,
    bias: NDArray,
    residual: NDArray | float = 0.0,
    given: tuple[NDArray, NDArray] | None = None,
    epsilon: float = 1e-5,
) -> Normalized:
    mean, variance = given or (x.mean(_PIXELS), x.var(_PIXELS))
    scale = broadcast(weight) / np.sqrt(broadcast(variance) + epsilon)
    return Normalized((x - broadcast(mean)) * scale + broadcast(bias) + residual, mean, variance)


def backward(
    passed: NDArray,
    x: NDArray,
    it: Normalized,
    weight: NDArray,
    training: bool = True,
    epsilon: float = 1e-5,
) -> tuple[NDArray, NDArray, NDArray]:
    """diff_src, diff_weight and diff_bias; `passed` is the gradient in front of relu."""
    inverse = 1 / np.sqrt(broadcast(it.variance) + epsilon)
    normalized = (x - broadcast(it.mean)) * inverse
    diff_bias, diff_weight = passed.sum(_PIXELS), (passed * normalized).sum(_PIXELS)
    diff = passed
    if training:
        pixels = x.size / x.shape[1]
        diff = passed - broadcast(diff_bias) / pixels - normalized * broadcast(diff_weight) / pixels
    return diff * broadcast(weight) * inverse, diff_weight, diff_bias
