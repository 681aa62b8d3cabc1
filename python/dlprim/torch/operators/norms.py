"""Normalisations and their gradients, which take statistics again from what was normalised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Value
from dlprim.torch.operators.table import FLOAT32, Call, require, rule

_X, _Y, _Z = operand(0), operand(1), operand(2)


def _root(epsilon: float) -> Expression:
    return ("divide", number(1.0), ("sqrt", ("add", _X, number(epsilon))))


def _given(c: Call, found: Sequence[Value | None], mask: Sequence[bool]) -> tuple[Any, ...]:
    """What is asked for, of the types that are expected."""
    return tuple(
        c.b.cast(it, dtype) if wanted and it is not None and dtype is not None else None
        for it, wanted, dtype in zip(found, mask, c.dtypes, strict=True)
    )


# ---------------------------------------------------------------- layer norm


@rule("aten.native_layer_norm.default")
def layer_norm(
    c: Call, x: Value, shape: Sequence[int], weight: Any, bias: Any, epsilon: float
) -> tuple[Value, ...]:
    form = {"axes": len(shape), "rms": False, "epsilon": epsilon}
    inputs = [x, *(it and c.b.cast(it, x.dtype) for it in (weight, bias))]
    axes = tuple(range(len(x.shape) - len(shape), len(x.shape)))
    (y,) = c.b.emit("normalize", inputs, **form)
    return y, *_statistics(c, x, axes, epsilon)


def _statistics(c: Call, x: Value, axes: tuple[int, ...], epsilon: float) -> tuple[Value, Value]:
    """The mean, and what is multiplied by; nodes that nothing reads are dropped."""
    wide = c.b.cast(x, FLOAT32)
    mean = c.b.reduce("mean", wide, axes, keepdims=True)
    distance: Expression = ("subtract", _X, _Y)
    squares = c.b.map(("multiply", distance, distance), wide, mean)
    factor = c.b.map(_root(epsilon), c.b.reduce("mean", squares, axes, keepdims=True))
    dtypes = [it or FLOAT32 for it in c.dtypes[1:3]]
    return c.b.cast(mean, dtypes[0]), c.b.cast(factor, dtypes[1])


@rule("again.aten.native_layer_norm_backward.default")
def layer_norm_backward(
    c: Call, diff: Value, x: Value, shape: Sequence[int], *rest: Any, operands: Any, **how: Any
) -> tuple[Any, ...]:
    _, _, *parameters, mask = rest
    form = {"axes": len(shape), "rms": False, "epsilon": operands[4]}
    return _given(c, c.gradients("normalize", [x, *parameters], diff, form), mask)


# ---------------------------------------------------------------- group norm


@rule("aten.native_group_norm.default")
def group_norm(c: Call, x: Value, weight: Any, bias: Any, *how: Any) -> tuple[Value, ...]:
    count, _, _, groups, epsilon = how
    require(x.size > 0, "there are no elements")
    inputs = [x, *(it and c.b.cast(it, x.dtype) for it in (weight, bias))]
    (y,) = c.b.emit("group_norm", inputs, groups=groups, epsilon=epsilon)
    rows = c.b.reshape(x, (count, groups, x.size // (count * groups)))
    shape = (count, groups)
    return y, *(c.b.reshape(it, shape) for it in _statistics(c, rows, (2,), epsilon))


@rule("again.aten.native_group_norm_backward.default")
def group_norm_backward(
    c: Call, diff: Value, x: Value, *rest: Any, operands: Any, **how: Any
) -> tuple[Any, ...]:
    require(x.size > 0, "there are no elements")
    _, weight, bias, *_, groups, epsilon = operands
    form = {"groups": groups, "epsilon": epsilon}
    return _given(c, c.gradients("group_norm", [x, weight, bias], diff, form), rest[-1])


# ---------------------------------------------------------------- batch norm


def _spread(c: Call, parameter: Value, x: Value) -> Value:
    return c.b.reshape(parameter, (x.shape[1], *[1] * (len(x.shape) - 2)))


@rule("aten._native_batch_norm_legit_no_training.default")
def batch_norm(c: Call, x: Value, *how: Any) -> tuple[Value | None, ...]:
    """Multiplied and shifted, by numbers that are made of the parameters alone."""
    weight, bias, mean, var, _, epsilon = how
    factor = c.b.map(_root(epsilon), c.b.cast(var, FLOAT32))
    if weight is not None:
        factor = c.b.apply("multiply", factor, c.b.cast(weight, FLOAT32))
    shift = c.b.map(("negate", ("multiply", _X, _Y)), c.b.cast(mean, FLOAT32), factor)
    if bias is not None:
        shift = c.b.apply("add", shift, c.b.cast(bias, FLOAT32))
    spread = [_spread(c, it, x) for it in (factor, shift)]
    return c.map(("add", ("multiply", _X, _Y), _Z), x, *spread), None, None


@rule("aten._native_batch_norm_legit_functional.default")
def batch_norm_training(c: Call, x: Value, *how: Any) -> tuple[Value, ...]:
    weight, bias, mean, var, training, momentum, epsilon = how
    require(training, "it takes running statistics")
    count = x.size // max(1, x.shape[1])
    require(count > 1, "there is one element for each channel")
    inputs = [x, *(it and c.b.cast(it, FLOAT32) for it in (weight, bias))]
    y, own, biased = c.b.emit("batch_norm", inputs, epsilon=epsilon)
    unbiased = momentum * count / (count - 1)

    def moved(old: Value, new: Value, share: float) -> Value:
        sum_of = ("add", ("multiply", _X, number(1 - momentum)), ("multiply", _Y, number(share)))
        return c.b.map(sum_of, old, new)

    factor = c.b.map(_root(epsilon), biased)
    found = (y, own, factor, moved(mean, own, momentum), moved(var, biased, unbiased))
    return tuple(c.b.cast(it, dtype or FLOAT32) for it, dtype in zip(found, c.dtypes, strict=True))


@rule("aten.native_batch_norm_backward.default")
def batch_norm_backward(c: Call, diff: Value, x: Value, weight: Any, *how: Any) -> tuple[Any, ...]:
    """By the statistics that the forward pass has saved, or the running ones."""
    running_mean, running_var, mean, factor, training, epsilon, mask = how
    weight = None if weight is None else c.b.cast(weight, FLOAT32)
    if not training:
        known = [c.b.cast(it, FLOAT32) for it in (diff, x, running_mean, running_var)]
        return _given(c, _by_running(c, weight, known, epsilon), mask)
    # What was saved is the root of 1 / (variance + epsilon).
    square: Expression = ("multiply", _X, _X)
    spread = ("subtract", ("divide", number(1.0), square), number(epsilon))
    variance = c.b.map(spread, c.b.cast(factor, FLOAT32))
    mean = c.b.cast(mean, FLOAT32)
    inputs = [c.b.cast(diff, x.dtype), x, mean, variance, weight, None, None]
    found = c.b.emit("batch_norm_gradient", inputs, epsilon=epsilon, residual=False)
    return _given(c, found, mask)


def _by_running(c: Call, weight: Any, known: Sequence[Value], epsilon: float) -> list[Value]:
    """By x, weight and bias, of statistics that do not follow from x."""
    diff, x, mean, var = known
    factor = _spread(c, c.b.map(_root(epsilon), var), x)
    axes = (0, *range(2, len(x.shape)))
    y = c.b.map(("multiply", ("subtract", _X, _Y), _Z), x, _spread(c, mean, x), factor)
    by_weight = c.b.reduce("sum", c.b.apply("multiply", diff, y), axes)
    if weight is not None:
        factor = c.b.apply("multiply", factor, _spread(c, weight, x))
    return [c.b.apply("multiply", diff, factor), by_weight, c.b.reduce("sum", diff, axes)]
