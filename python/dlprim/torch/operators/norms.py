"""Normalisations and their gradients, which take statistics again from what was normalised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Value
from dlprim.torch.operators.table import FLOAT32, Call, asked, require, rule

_X, _Y, _Z = operand(0), operand(1), operand(2)


def _root(epsilon: float) -> Expression:
    return ("divide", number(1.0), ("sqrt", ("add", _X, number(epsilon))))


def _given(c: Call, found: Sequence[Value | None], mask: Sequence[bool]) -> tuple[Any, ...]:
    """What is asked for, of the types that are expected."""
    return tuple(
        c.b.cast(it, dtype) if wanted and it is not None and dtype is not None else None
        for it, wanted, dtype in zip(found, mask, c.dtypes, strict=True)
    )


# ---------------------------------------------------------------- layer norm, group norm


def _of_layer(shape: Sequence[int], epsilon: float) -> tuple[str, dict[str, Any]]:
    return "normalize", {"axes": len(shape), "rms": False, "epsilon": epsilon}


def _statistics(c: Call, x: Value, axes: tuple[int, ...], epsilon: float) -> tuple[Value, Value]:
    """The mean, and what is multiplied by; nodes that nothing reads are dropped."""
    wide = c.b.cast(x, FLOAT32)
    mean = c.b.reduce("mean", wide, axes, keepdims=True)
    distance: Expression = ("subtract", _X, _Y)
    squares = c.b.map(("multiply", distance, distance), wide, mean)
    factor = c.b.map(_root(epsilon), c.b.reduce("mean", squares, axes, keepdims=True))
    dtypes = [it or FLOAT32 for it in c.dtypes[1:3]]
    return c.b.cast(mean, dtypes[0]), c.b.cast(factor, dtypes[1])


@rule("dlprim.layer_norm.default")
def own_layer_norm(
    c: Call, x: Value, weight: Any, bias: Any, shape: Sequence[int], epsilon: float
) -> Value:
    operator, form = _of_layer(shape, epsilon)
    return c.b.emit(operator, [x, *c.given(x.dtype, weight, bias)], **form)[0]


@rule("aten.native_layer_norm.default")
def layer_norm(
    c: Call, x: Value, shape: Sequence[int], weight: Any, bias: Any, epsilon: float
) -> tuple[Any, ...]:
    axes = tuple(range(len(x.shape) - len(shape), len(x.shape)))
    y = own_layer_norm(c, x, weight, bias, shape, epsilon)
    return y, *_statistics(c, x, axes, epsilon)


@rule("again.aten.native_layer_norm_backward.default")
def layer_norm_backward(
    c: Call, diff: Value, x: Value, shape: Sequence[int], *rest: Any, operands: Any, **how: Any
) -> tuple[Any, ...]:
    _, _, *parameters, mask = rest
    operator, form = _of_layer(shape, operands[4])
    return _given(c, c.gradients(operator, [x, *parameters], diff, form), mask)


@rule("dlprim.layer_norm_backward.default")
def own_layer_norm_backward(
    c: Call, diff: Value, x: Value, weight: Any, shape: Sequence[int], *how: Any
) -> tuple[Value, ...]:
    epsilon, mask = how
    operator, form = _of_layer(shape, epsilon)
    like = Value("parameter", tuple(shape), x.dtype)
    return asked(c, c.gradients(operator, [x, *c.given(x.dtype, weight), like], diff, form), mask)


@rule("aten.native_group_norm.default")
def group_norm(c: Call, x: Value, weight: Any, bias: Any, *how: Any) -> tuple[Value, ...]:
    count, _, _, groups, epsilon = how
    require(x.size > 0, "there are no elements")
    inputs = [x, *c.given(x.dtype, weight, bias)]
    (y,) = c.b.emit("group_norm", inputs, groups=groups, epsilon=epsilon)
    rows = c.b.reshape(x, (count, groups, x.size // (count * groups)))
    return y, *(c.b.reshape(it, (count, groups)) for it in _statistics(c, rows, (2,), epsilon))


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
    *parameters, _, epsilon = how
    weight, bias, mean, var = c.given(FLOAT32, *parameters)
    assert mean is not None
    assert var is not None
    factor = c.b.map(_root(epsilon), var)
    factor = factor if weight is None else c.b.apply("multiply", factor, weight)
    shift = c.b.map(("negate", ("multiply", _X, _Y)), mean, factor)
    shift = shift if bias is None else c.b.apply("add", shift, bias)
    spread = [_spread(c, it, x) for it in (factor, shift)]
    return c.map(("add", ("multiply", _X, _Y), _Z), x, *spread), None, None


@rule("aten._native_batch_norm_legit_functional.default")
def batch_norm_training(c: Call, x: Value, *how: Any) -> tuple[Value, ...]:
    weight, bias, mean, var, training, momentum, epsilon = how
    require(training, "it takes running statistics")
    count = x.size // max(1, x.shape[1])
    require(count > 1, "there is one element for each channel")
    y, own, biased = c.b.emit("batch_norm", [x, *c.given(FLOAT32, weight, bias)], epsilon=epsilon)

    def moved(old: Value, new: Value, share: float) -> Value:
        sum_of = ("add", ("multiply", _X, number(1 - momentum)), ("multiply", _Y, number(share)))
        return c.b.map(sum_of, old, new)

    statistics = moved(mean, own, momentum), moved(var, biased, momentum * count / (count - 1))
    found = (y, own, c.b.map(_root(epsilon), biased), *statistics)
    return tuple(c.b.cast(it, dtype or FLOAT32) for it, dtype in zip(found, c.dtypes, strict=True))


@rule("aten.native_batch_norm_backward.default")
def batch_norm_backward(c: Call, diff: Value, x: Value, *how: Any) -> tuple[Any, ...]:
    """By the statistics that the forward pass has saved, or the running ones."""
    *tensors, training, epsilon, mask = how
    weight, running_mean, running_var, mean, factor = c.given(FLOAT32, *tensors)
    if not training:
        known = c.given(FLOAT32, diff, x)
        known += running_mean, running_var
        return _given(c, _by_running(c, weight, known, epsilon), mask)
    assert factor is not None
    # What was saved is the root of 1 / (variance + epsilon).
    square: Expression = ("multiply", _X, _X)
    spread = ("subtract", ("divide", number(1.0), square), number(epsilon))
    variance = c.b.map(spread, factor)
    inputs = [c.b.cast(diff, x.dtype), x, mean, variance, weight, None, None]
    found = c.b.emit("batch_norm_gradient", inputs, epsilon=epsilon, residual=False)
    return _given(c, found, mask)


def _by_running(c: Call, weight: Value | None, known: Sequence[Any], epsilon: float) -> list[Value]:
    """By x, weight and bias, of statistics that do not follow from x."""
    diff, x, mean, var = known
    factor = _spread(c, c.b.map(_root(epsilon), var), x)
    axes = (0, *range(2, len(x.shape)))
    y = c.b.map(("multiply", ("subtract", _X, _Y), _Z), x, _spread(c, mean, x), factor)
    by_weight = c.b.reduce("sum", c.b.apply("multiply", diff, y), axes)
    if weight is not None:
        factor = c.b.apply("multiply", factor, _spread(c, weight, x))
    return [c.b.apply("multiply", diff, factor), by_weight, c.b.reduce("sum", diff, axes)]
