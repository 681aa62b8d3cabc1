"""Activations, softmax and normalisation of rows in float64 NumPy, from the equations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Double = NDArray[np.float64]

SCALE, ALPHA = 1.0507009873554805, 1.6732632423543772  # of selu, arXiv 1706.02515


def sigmoid(x: Double) -> Double:
    return np.where(x < 0, np.exp(np.minimum(x, 0)), 1) / (1 + np.exp(-np.abs(x)))


def gelu(x: Double, approximate: str = "none") -> Double:
    if approximate == "tanh":
        return x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    below = [0.5 * math.erfc(-it / math.sqrt(2)) for it in x.flat]
    return x * np.array(below).reshape(x.shape)


def elu(x: Double, alpha: float = 1.0) -> Double:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def softplus(x: Double, beta: float = 1.0, threshold: float = 20.0) -> Double:
    return np.where(beta * x > threshold, x, np.logaddexp(0, beta * x) / beta)


def hardsigmoid(x: Double) -> Double:
    return np.clip(x / 6 + 0.5, 0, 1)


ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "gelu": gelu,
    "silu": lambda x: x * sigmoid(x),
    "leaky_relu": lambda x, negative_slope=0.01: np.where(x > 0, x, negative_slope * x),
    "elu": elu,
    "selu": lambda x: SCALE * elu(x, ALPHA),
    "hardsigmoid": hardsigmoid,
    "hardswish": lambda x: x * hardsigmoid(x),
    "softplus": softplus,
    "mish": lambda x: x * np.tanh(softplus(x)),
}


def slope(function: Callable[[Double], Double], x: Double) -> Double:
    """A central difference; exact to some 1e-9 where the slope has no step."""
    step = 1e-5
    return (function(x + step) - function(x - step)) / (2 * step)


def log_softmax(x: Double, axis: int = -1) -> Double:
    above = x - x.max(axis, keepdims=True)
    return np.asarray(above - np.log(np.exp(above).sum(axis, keepdims=True)))


def softmax(x: Double, axis: int = -1) -> Double:
    return np.exp(log_softmax(x, axis))


def softmax_backward(dy: Double, x: Double, axis: int = -1) -> Double:
    y = softmax(x, axis)
    return np.asarray(y * (dy - (dy * y).sum(axis, keepdims=True)))


def log_softmax_backward(dy: Double, x: Double, axis: int = -1) -> Double:
    return np.asarray(dy - softmax(x, axis) * dy.sum(axis, keepdims=True))


def layer_norm(x: Double, weight: Any = 1.0, bias: Any = 0.0, eps: float = 1e-5) -> Double:
    """Over the axes of weight, the last one where it is a number."""
    axes = _axes(weight)
    centred = x - x.mean(axes, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(axes, keepdims=True) + eps)
    return np.asarray(centred * scale * weight + bias)


def rms_norm(x: Double, weight: Any = 1.0, eps: float = 1e-5) -> Double:
    return np.asarray(x / np.sqrt((x**2).mean(_axes(weight), keepdims=True) + eps) * weight)


def layer_norm_backward(
    dy: Double, x: Double, weight: Any = 1.0, eps: float = 1e-5
) -> tuple[Double, Double, Double]:
    axes = _axes(weight)
    normal, g = layer_norm(x, np.ones(np.shape(weight) or 1), 0.0, eps), dy * weight
    scale = 1 / np.sqrt(x.var(axes, keepdims=True) + eps)
    along = (g * normal).mean(axes, keepdims=True)
    dx = scale * (g - g.mean(axes, keepdims=True) - normal * along)
    return dx, _summed(dy * normal, axes), _summed(dy, axes)


def rms_norm_backward(
    dy: Double, x: Double, weight: Any = 1.0, eps: float = 1e-5
) -> tuple[Double, Double]:
    axes = _axes(weight)
    scale = 1 / np.sqrt((x**2).mean(axes, keepdims=True) + eps)
    g = dy * weight
    dx = scale * (g - x * scale * (g * x * scale).mean(axes, keepdims=True))
    return dx, _summed(dy * x * scale, axes)


def group_norm(
    x: Double, groups: int, weight: Any = 1.0, bias: Any = 0.0, eps: float = 1e-5
) -> Double:
    rows = x.reshape(x.shape[0], groups, -1)
    normal = layer_norm(rows, np.ones(rows.shape[2:]), 0.0, eps).reshape(x.shape)
    return np.asarray(normal * _of_channels(weight, x) + _of_channels(bias, x))


def group_norm_backward(
    dy: Double, x: Double, groups: int, weight: Any = 1.0, eps: float = 1e-5
) -> tuple[Double, Double, Double]:
    rows, ones = (x.shape[0], groups, -1), np.ones(x[0].size // groups)
    slope = (dy * _of_channels(weight, x)).reshape(rows)
    dx, _, _ = layer_norm_backward(slope, x.reshape(rows), ones, eps)
    terms = dy * group_norm(x, groups, eps=eps), dy
    dw, db = (it.reshape(*x.shape[:2], -1).sum((0, 2)) for it in terms)
    return dx.reshape(x.shape), dw, db


def prelu(x: Double, weight: Any) -> Double:
    return np.where(x > 0, x, x * _of_channels(weight, x))


def prelu_backward(dy: Double, x: Double, weight: Any) -> tuple[Double, Double]:
    shares = np.where(x > 0, 0, dy * x)
    one = np.size(weight) == 1
    dw = shares.sum() if one else shares.reshape(*x.shape[:2], -1).sum((0, 2))
    return dy * np.where(x > 0, 1, _of_channels(weight, x)), np.reshape(dw, np.shape(weight))


def _of_channels(parameter: Any, x: Double) -> Any:
    """Along the second axis of x, unless it is one number."""
    if np.size(parameter) == 1:
        return np.reshape(parameter, ())
    return np.reshape(parameter, (-1, *[1] * (x.ndim - 2)))


def _axes(weight: Any) -> tuple[int, ...]:
    return tuple(range(-max(np.ndim(weight), 1), 0))


def _summed(terms: Double, axes: tuple[int, ...]) -> Double:
    return np.asarray(terms.sum(tuple(range(terms.ndim - len(axes)))))
