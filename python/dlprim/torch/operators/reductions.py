"""Reductions, softmax, losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Node, Value
from dlprim.graph.operators import OPERATORS
from dlprim.torch.operators.table import Call, axis_of, require, rule

_X, _Y, _Z = operand(0), operand(1), operand(2)


def _axes(x: Value, axes: Any) -> tuple[int, ...]:
    if axes is None or axes == []:
        return tuple(range(len(x.shape)))
    listed = [axes] if isinstance(axes, int) else axes
    return tuple(axis_of(it, len(x.shape)) for it in listed)


def _reduced(function: str, c: Call, x: Value, axes: Any, keepdim: bool) -> Value:
    require(bool(x.shape), "it has no axes")
    require(x.dtype.kind not in "biu", "integers are reduced")
    return c.cast(c.b.reduce(function, x, _axes(x, axes), keepdim))


@rule("aten.sum.default", "aten.sum.dim_IntList")
def total(c: Call, x: Value, axes: Any = None, keepdim: bool = False, **_: Any) -> Value:
    return _reduced("sum", c, c.cast(x), axes, keepdim)


@rule("aten.mean.default", "aten.mean.dim")
def mean(c: Call, x: Value, axes: Any = None, keepdim: bool = False, **_: Any) -> Value:
    return _reduced("mean", c, c.cast(x), axes, keepdim)


@rule("aten.amax.default")
def amax(c: Call, x: Value, axes: Any = None, keepdim: bool = False) -> Value:
    return _reduced("max", c, x, axes, keepdim)


@rule("aten.amin.default")
def amin(c: Call, x: Value, axes: Any = None, keepdim: bool = False) -> Value:
    return _reduced("min", c, x, axes, keepdim)


@rule("aten.var.correction")
def variance(
    c: Call, x: Value, axes: Any = None, correction: Any = 1, keepdim: bool = False
) -> Value:
    require(bool(x.shape), "it has no axes")
    listed = _axes(x, axes)
    count = int(np.prod([x.shape[axis] for axis in listed]))
    rest = count - (1 if correction is None else correction)
    require(rest > 0, "there are too few elements")
    middle = c.b.reduce("mean", x, listed, keepdims=True)
    distance: Expression = ("subtract", _X, _Y)
    squares = c.b.map(("multiply", distance, distance), x, middle)
    share = c.b.reduce("mean", squares, listed, keepdim)
    return c.b.map(("multiply", _X, number(count / rest)), share)


# ---------------------------------------------------------------- softmax


@rule("aten._softmax.default")
def softmax(c: Call, x: Value, axis: int, half_to_float: bool = False) -> Value:
    require(bool(x.shape), "it has no axes")
    return c.b.emit("softmax", [c.cast(x)], axis=axis_of(axis, len(x.shape)), log=False)[0]


@rule("aten._log_softmax.default")
def log_softmax(c: Call, x: Value, axis: int, half_to_float: bool = False) -> Value:
    require(bool(x.shape), "it has no axes")
    return c.b.emit("softmax", [c.cast(x)], axis=axis_of(axis, len(x.shape)), log=True)[0]


_LOWEST = -3.4028234663852886e38


@rule("aten._safe_softmax.default")
def safe_softmax(c: Call, x: Value, axis: int, dtype: Any = None) -> Value:
    """Rows of nothing but minus infinity become zeros."""
    y = softmax(c, x, axis)
    highest = c.b.reduce("max", c.cast(x), (axis_of(axis, len(x.shape)),), keepdims=True)
    kept = ("where", ("less", _Y, number(_LOWEST)), number(0.0), _X)
    return c.b.map(kept, y, highest)


def _softmax_through(c: Call, diff: Value, y: Value, axis: int, log: bool) -> Value:
    rule_of = OPERATORS["softmax"].gradient
    assert callable(rule_of)
    form = {"axis": axis_of(axis, len(y.shape)), "log": log}
    found = rule_of(c.b, Node("softmax", (y,), (y,), form, "softmax"), [diff])[0]
    assert isinstance(found, Value)
    return c.cast(found)


@rule("aten._softmax_backward_data.default")
def softmax_backward(c: Call, diff: Value, y: Value, axis: int, dtype: Any) -> Value:
    return _softmax_through(c, diff, y, axis, False)


@rule("aten._log_softmax_backward_data.default")
def log_softmax_backward(c: Call, diff: Value, y: Value, axis: int, dtype: Any) -> Value:
    return _softmax_through(c, diff, y, axis, True)


# ---------------------------------------------------------------- losses

_NONE, _MEAN = 0, 1


def _hits(c: Call, scores: Value, classes: Value) -> list[Value]:
    """The class of each row and the number of each column, to be compared."""
    require(scores.dtype.itemsize == 4, "scores are no float32")
    require(len(scores.shape) == len(classes.shape) + 1 > 1, "there are no rows of scores")
    rest = (1,) * (len(scores.shape) - 2)
    own = c.b.cast(c.b.reshape(classes, (classes.shape[0], 1, *classes.shape[1:])), np.float32)
    every = np.arange(int(scores.shape[1]), dtype=np.float32).reshape(1, -1, *rest)
    return [own, c.b.constant(every, "classes")]


def _counted(c: Call, classes: Value, ignored: int) -> Value:
    own = c.b.cast(classes, np.float32)
    is_seen = ("where", ("equal", _X, number(float(ignored))), number(0.0), number(1.0))
    return c.b.map(is_seen, own)


@rule("aten.nll_loss_forward.default", "aten.nll_loss2d_forward.default")
def nll_loss(
    c: Call, scores: Value, classes: Value, weight: Any, reduction: int, ignored: int
) -> tuple[Value, Value]:
    require(weight is None, "classes have weights")
    own, every = _hits(c, scores, classes)
    chosen = ("where", ("equal", _Y, _Z), ("negate", _X), number(0.0))
    if ignored >= 0:
        ignores = ("equal", _Y, number(float(ignored)))
        chosen = ("where", ignores, number(0.0), chosen)
    losses = c.b.reduce("sum", c.b.map(chosen, scores, own, every), (1,))
    axes = tuple(range(len(classes.shape)))
    count = c.b.reduce("sum", _counted(c, classes, ignored), axes)
    if reduction == _NONE:
        return losses, c.b.constant(np.zeros((), np.float32), "none")
    whole = c.b.reduce("sum", losses, axes)
    return (c.b.apply("divide", whole, count) if reduction == _MEAN else whole), count


@rule("aten.nll_loss_backward.default", "aten.nll_loss2d_backward.default")
def nll_loss_backward(
    c: Call, diff: Value, scores: Value, classes: Value, weight: Any, *how: Any
) -> Value:
    reduction, ignored, count = how
    require(weight is None, "classes have weights")
    own, every = _hits(c, scores, classes)
    if reduction == _NONE:
        diff = c.b.reshape(diff, (diff.shape[0], 1, *diff.shape[1:]))
    elif reduction == _MEAN:
        diff = c.b.apply("divide", diff, count)
    chosen: Expression = ("where", ("equal", _Y, _Z), ("negate", _X), number(0.0))
    if ignored >= 0:
        ignores = ("equal", _Y, number(float(ignored)))
        chosen = ("where", ignores, number(0.0), chosen)
    return c.b.map(chosen, diff, own, every)


def _differences(c: Call, x: Value, y: Value, reduction: int) -> Value:
    distance: Expression = ("subtract", _X, _Y)
    squares = c.b.map(("multiply", distance, distance), x, y)
    axes = tuple(range(len(squares.shape)))
    if reduction == _NONE or not axes:
        return squares
    return c.b.reduce("mean" if reduction == _MEAN else "sum", squares, axes)


@rule("aten.mse_loss.default")
def mse_loss(c: Call, x: Value, y: Value, reduction: int = _MEAN) -> Value:
    return _differences(c, x, y, reduction)


@rule("aten.mse_loss_backward.default")
def mse_loss_backward(c: Call, diff: Value, x: Value, y: Value, reduction: int) -> Value:
    factor = 2 / max(1, int(x.size)) if reduction == _MEAN else 2.0
    slope = ("multiply", number(factor), ("subtract", _Y, _Z))
    return c.map(("multiply", _X, slope), diff, x, y)
