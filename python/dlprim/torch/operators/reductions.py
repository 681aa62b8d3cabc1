"""Reductions, softmax, losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Value
from dlprim.graph.operators.indexed import alike
from dlprim.torch.operators.table import FLOAT32, Call, axis_of, require, rule

_X, _Y, _Z = operand(0), operand(1), operand(2)


def _axes(x: Value, axes: Any) -> tuple[int, ...]:
    if axes is None or axes == []:
        return tuple(range(len(x.shape)))
    listed = [axes] if isinstance(axes, int) else axes
    return tuple(axis_of(it, len(x.shape)) for it in listed)


def _reduced(function: str) -> Any:
    def reduced(c: Call, x: Value, axes: Any = None, keepdim: bool = False, **_: Any) -> Value:
        x = c.cast(x)
        require(bool(x.shape), "it has no axes")
        require(x.dtype.kind not in "biu", "integers are reduced")
        return c.cast(c.b.reduce(function, x, _axes(x, axes), keepdim))

    return reduced


_REDUCTIONS = {
    "amax.default": "max",
    "amin.default": "min",
    "mean.default": "mean",
    "mean.dim": "mean",
    "sum.default": "sum",
    "sum.dim_IntList": "sum",
}
for _name, _function in _REDUCTIONS.items():
    rule(f"aten.{_name}")(_reduced(_function))


@rule("aten.var.correction")
def variance(
    c: Call, x: Value, axes: Any = None, correction: Any = 1, keepdim: bool = False
) -> Value:
    require(bool(x.shape), "it has no axes")
    listed = _axes(x, axes)
    count = int(np.prod([x.shape[axis] for axis in listed]))
    rest = count - (1 if correction is None else correction)
    require(rest > 0, "there are too few elements")
    wide = c.b.cast(x, FLOAT32)
    middle = c.b.reduce("mean", wide, listed, keepdims=True)
    distance: Expression = ("subtract", _X, _Y)
    squares = c.b.map(("multiply", distance, distance), wide, middle)
    share = c.b.reduce("mean", squares, listed, keepdims=keepdim)
    return c.cast(c.b.map(("multiply", _X, number(count / rest)), share))


@rule("aten.var_mean.correction")
def variance_and_mean(c: Call, x: Value, axes: Any = None, **how: Any) -> tuple[Any, Any]:
    mean = _reduced("mean")(c, x, axes, how.get("keepdim", False))
    return variance(c, x, axes, **how), mean


@rule("aten.cumsum.default")
def running_sum(c: Call, x: Value, axis: int, **_: Any) -> Value:
    require(bool(x.shape), "it has no axes")
    wide = c.cast(x)
    how = {"axis": axis_of(axis, len(x.shape)), "exclusive": False, "reverse": False}
    return alike(c.b, "running_sum", wide, [wide], **how)


# ---------------------------------------------------------------- softmax


def _form(x: Value, axis: int, log: bool) -> dict[str, Any]:
    require(bool(x.shape), "it has no axes")
    return {"axis": axis_of(axis, len(x.shape)), "log": log}


def _softmax(log: bool) -> Any:
    def softmax(c: Call, x: Value, axis: int, half_to_float: bool = False) -> Value:
        return c.b.emit("softmax", [c.cast(x)], **_form(x, axis, log))[0]

    return softmax


def _softmax_through(log: bool) -> Any:
    def backward(c: Call, diff: Value, y: Value, axis: int, dtype: Any) -> Value:
        (found,) = c.gradients("softmax", [y], diff, _form(y, axis, log), y)
        assert found is not None
        return c.cast(found)

    return backward


for _name, _log in (("softmax", False), ("log_softmax", True)):
    rule(f"aten._{_name}.default")(_softmax(_log))
    rule(f"aten._{_name}_backward_data.default")(_softmax_through(_log))

_LOWEST = -3.4028234663852886e38


@rule("aten._safe_softmax.default")
def safe_softmax(c: Call, x: Value, axis: int, dtype: Any = None) -> Value:
    """Rows of nothing but minus infinity become zeros."""
    y = _softmax(False)(c, x, axis)
    highest = c.b.reduce("max", c.cast(x), (axis_of(axis, len(x.shape)),), keepdims=True)
    kept = ("where", ("less", _Y, number(_LOWEST)), number(0.0), _X)
    return c.b.map(kept, y, highest)


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


def _chosen(ignored: int) -> Expression:
    """Below zero where the class of a row is the number of the column, else 0."""
    chosen: Expression = ("where", ("equal", _Y, _Z), ("negate", _X), number(0.0))
    ignores = ("equal", _Y, number(float(ignored)))
    return ("where", ignores, number(0.0), chosen) if ignored >= 0 else chosen


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
    losses = c.b.reduce("sum", c.b.map(_chosen(ignored), scores, own, every), (1,))
    axes = tuple(range(len(classes.shape)))
    count = c.b.reduce("sum", _counted(c, classes, ignored), axes)
    if reduction == _NONE:
        return losses, c.b.constant(np.zeros((), np.float32), "none")
    whole = c.b.reduce("sum", losses, axes)
    return (c.b.apply("divide", whole, count) if reduction == _MEAN else whole), count


@rule("aten.nll_loss_backward.default", "aten.nll_loss2d_backward.default")
def nll_loss_backward(c: Call, diff: Value, scores: Value, *how: Any) -> Value:
    return c.through("aten.nll_loss_forward.default", diff, scores, *how[:-1])
