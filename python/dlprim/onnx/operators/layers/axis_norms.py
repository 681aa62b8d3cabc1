"""Normalisations along an axis without parameters: softmax, norms of vectors, LRN."""

from __future__ import annotations

import math

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import number, operand
from dlprim.graph.graph import Value
from dlprim.graph.operators.operator import axis_within
from dlprim.onnx.operators.layers.pooling import powered, rooted
from dlprim.onnx.operators.places import line
from dlprim.onnx.operators.shapes import axes_of
from dlprim.onnx.registry import RefusedError, operator

_X = operand(0)


# ---------------------------------------------------------------- softmax


def _softmax(build: Builder, x: Value, axis: int, log: bool) -> Value:
    axis = axis_within(axis, len(x.shape))
    return build.emit("softmax", [x], axis=axis, log=log)[0]


def _flattened(build: Builder, x: Value, axis: int) -> Value:
    """A matrix: the axes in front of this one, and the others."""
    axis = axis_within(axis, len(x.shape))
    return build.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


def _flat_softmax(build: Builder, x: Value, axis: int, log: bool) -> Value:
    return build.reshape(_softmax(build, _flattened(build, x, axis), 1, log), x.shape)


@operator("Softmax")
def flat_softmax(build: Builder, x: Value, *, axis: int = 1) -> Value:
    return _flat_softmax(build, x, axis, log=False)


@operator("Softmax", since=13)
def softmax(build: Builder, x: Value, *, axis: int = -1) -> Value:
    return _softmax(build, x, axis, log=False)


@operator("LogSoftmax")
def flat_log_softmax(build: Builder, x: Value, *, axis: int = 1) -> Value:
    return _flat_softmax(build, x, axis, log=True)


@operator("LogSoftmax", since=13)
def log_softmax(build: Builder, x: Value, *, axis: int = -1) -> Value:
    return _softmax(build, x, axis, log=True)


@operator("Hardmax", since=13)
def hardmax(build: Builder, x: Value, *, axis: int = -1) -> Value:
    """1 where the highest is first met along the axis, 0 elsewhere."""
    axis = axis_within(axis, len(x.shape))
    if 0 in x.shape:
        return x
    one = tuple(1 if it == axis else extent for it, extent in enumerate(x.shape))
    result = [(one, np.dtype(np.int64))]
    (place,) = build.call("argmax", [x], result, axis=axis, last=False)
    order = line(build, x.shape[axis], axis, len(x.shape))
    return build.map(("equal", operand(0), operand(1)), order, place, dtype=x.dtype)


@operator("Hardmax")
def flat_hardmax(build: Builder, x: Value, *, axis: int = 1) -> Value:
    return build.reshape(hardmax(build, _flattened(build, x, axis), axis=1), x.shape)


# ---------------------------------------------------------------- norms of vectors


@operator("LpNormalization")
def lp_normalization(build: Builder, x: Value, *, axis: int = -1, p: int = 2) -> Value:
    """A vector of zeros stays."""
    if p not in (1, 2):
        raise RefusedError(f"p is {p}, expected 1 or 2")
    axis = axis_within(axis, len(x.shape))
    powers = build.reduce("sum", build.map(powered(p, _X), x), [axis], keepdims=True)
    norm = rooted(p, operand(1))
    is_zero = ("equal", operand(1), number(0))
    return build.map(("where", is_zero, number(0.0), ("divide", _X, norm)), x, powers)


@operator("MeanVarianceNormalization", since=9)
def mean_variance_normalization(
    build: Builder, x: Value, *, axes: tuple[int, ...] = (0, 2, 3)
) -> Value:
    axes = axes_of(axes, len(x.shape))
    mean = build.reduce("mean", x, axes, keepdims=True)
    away = build.map(("subtract", _X, operand(1)), x, mean)
    spread = build.reduce("mean", build.map(("multiply", _X, _X), away), axes, keepdims=True)
    # What keeps the operator's own definition from dividing by zero.
    root = ("add", ("sqrt", operand(1)), number(1e-9))
    return build.map(("divide", _X, root), away, spread)


@operator("LRN")
def lrn(
    build: Builder,
    x: Value,
    *,
    alpha: float = 1e-4,
    beta: float = 0.75,
    bias: float = 1.0,
    size: int,
) -> Value:
    """The mean of squares over neighbouring channels, as pooling of channels times pixels."""
    if size < 1 or len(x.shape) < 3:
        raise RefusedError(f"size is {size} for {list(x.shape)}, expected 1 or more, (N, C, ...)")
    samples, channels = x.shape[:2]
    square = build.map(("multiply", _X, _X), x)
    planes = build.reshape(square, (samples, 1, channels, math.prod(x.shape[2:])))
    means = build.emit(
        "pool",
        [planes],
        function="mean",
        kernel=(size, 1),
        strides=(1, 1),
        dilations=(1, 1),
        padding=(((size - 1) // 2, size // 2), (0, 0)),
        counts=planes.shape[2:],
        counts_padding=True,
    )[0]
    scaled = ("add", number(bias), ("multiply", number(alpha), operand(1)))
    divided = ("divide", _X, ("power", scaled, number(beta)))
    return build.map(divided, x, build.reshape(means, x.shape))
