"""Norms of batches, as in training, with the sum and the relu behind them, and their gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.graph.derivatives import times
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.operators.elements import converted
from dlprim.graph.operators.operator import (
    Arrays,
    Attributes,
    Operator,
    Result,
    Values,
    there,
    widened,
)

if TYPE_CHECKING:
    from dlprim.graph.builder import Builder


_PRODUCT: Expression = ("multiply", operand(0), operand(1))
_SUM: Expression = ("add", operand(0), operand(1))


def _statistics(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of what is one number for each channel."""
    return np.dtype(np.float32) if dtype.itemsize == 2 else dtype


def _require_channels(x: Value, values: Values) -> None:
    if len(x.shape) < 2:
        raise ValueError(f"x of {list(x.shape)} has no channels, expected (N, C, ...)")
    for value in values:
        if value is not None and value.shape != x.shape[1:2]:
            raise ValueError(f"{value!r} does not fit the channels of {list(x.shape)}")


def _require_alike(x: Value, values: Values) -> None:
    for value in values:
        if value is not None and (value.shape, value.dtype) != (x.shape, x.dtype):
            raise ValueError(f"{value!r} is not like x, {x.dtype}{list(x.shape)}")


def _axes(rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Those that are summed over, and the shape of a number for each channel."""
    return (0, *range(2, rank)), (-1,) + (1,) * (rank - 2)


def _infer_batch_norm(values: Values, attributes: Attributes) -> list[Result]:
    """The result, and mean and variance (biased) of each channel of x (N, C, ...).

    x, weight, bias and a residual, which is added; the ``activation`` "relu" follows where it is
    there.
    """
    x = there(values[0])
    _require_channels(x, values[1:3])
    _require_alike(x, values[3:])
    if attributes.get("activation") not in (None, "relu"):
        raise ValueError(f"activation is {attributes['activation']!r}, expected 'relu' or None")
    return [(x.shape, x.dtype), *[(x.shape[1:2], _statistics(x.dtype))] * 2]


def _compute_batch_norm(arrays: Arrays, attributes: Attributes) -> list[Any]:
    x, weight, bias, residual = (None if it is None else widened(it) for it in (*arrays, None)[:4])
    assert x is not None
    axes, channels = _axes(x.ndim)
    count = np.float64(x.size / max(1, x.shape[1]))  # of none the mean is no number
    mean = x.sum(axis=axes) / count
    variance = np.square(x - mean.reshape(channels)).sum(axis=axes) / count
    y = (x - mean.reshape(channels)) / np.sqrt(variance + attributes["epsilon"]).reshape(channels)
    y = y if weight is None else y * weight.reshape(channels)
    y = y if bias is None else y + bias.reshape(channels)
    y = y if residual is None else y + residual
    if attributes.get("activation") is not None:
        y = np.maximum(y, 0)
    dtype = arrays[0].dtype
    return [converted(y, dtype), *(converted(it, _statistics(dtype)) for it in (mean, variance))]


# ---------------------------------------------------------------- gradients


def _infer_gradient(values: Values, attributes: Attributes) -> list[Result]:
    """The gradients by x, weight and bias and, where ``residual`` says so, by the residual.

    Of that of the result, x, mean, variance, weight, the result where a relu made it, and, with a
    residual, what is added to the first.
    """
    diff, x, mean, variance, weight, y, addend = values
    x = there(x)
    _require_channels(x, (mean, variance, weight))
    _require_alike(x, (diff, y, addend))
    if addend is not None and not attributes["residual"]:
        raise ValueError("two terms of a gradient are for a norm with a residual")
    by_channel = (x.shape[1:2], _statistics(x.dtype))
    whole = (x.shape, x.dtype)
    return [whole, by_channel, by_channel, *([whole] if attributes["residual"] else [])]


def _compute_gradient(arrays: Arrays, attributes: Attributes) -> list[Any]:
    diff, x, mean, variance, weight, y, addend = (
        None if it is None else widened(it) for it in arrays
    )
    assert diff is not None
    assert x is not None
    assert mean is not None
    assert variance is not None
    axes, channels = _axes(x.ndim)
    count = max(1, x.size // max(1, x.shape[1]))

    def spread(it: Array) -> Array:
        return it.reshape(channels)

    with np.errstate(all="ignore"):
        diff = diff if addend is None else diff + addend
        diff = diff if y is None else np.where(y <= 0, 0, diff)
        scale = 1 / np.sqrt(variance + attributes["epsilon"])
        rows = (x - spread(mean)) * spread(scale)
        by_weight, by_bias = (diff * rows).sum(axis=axes), diff.sum(axis=axes)
        away = spread(by_bias / count) + rows * spread(by_weight / count)
        by_x = spread(scale if weight is None else scale * weight) * (diff - away)
    dtype = arrays[1].dtype
    made = [converted(by_x, dtype)]
    made += [converted(it, _statistics(dtype)) for it in (by_weight, by_bias)]
    return [*made, converted(diff, dtype)] if attributes["residual"] else made


def _batch_norm_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    """Statistics are results like others."""
    x, weight, bias, residual = (*node.inputs, None)[:4]
    found: list[Value | None] = [None] * 4
    if diffs[0] is not None:
        y, mean, variance = node.outputs
        gate = None if node.attributes.get("activation") is None else y
        is_apart = gate is not None and residual is not None
        by_x, by_weight, by_bias, *passed = b.emit(
            "batch_norm_gradient",
            [diffs[0], x, mean, variance, weight, gate, None],
            epsilon=node.attributes["epsilon"],
            residual=is_apart,
        )
        found[0] = by_x
        found[1] = None if weight is None else b.cast(by_weight, weight.dtype)
        found[2] = None if bias is None else b.cast(by_bias, bias.dtype)
        found[3] = passed[0] if is_apart else diffs[0]
    for term in _by_statistics(b, node, diffs):
        found[0] = term if found[0] is None else b.apply("add", found[0], term)
    return found[: len(node.inputs)]


def _by_statistics(b: Builder, node: Node, diffs: Values) -> list[Value]:
    """What reaches x through mean and variance."""
    x, terms = there(node.inputs[0]), []
    channels = (x.shape[1],) + (1,) * (len(x.shape) - 2)
    share = x.shape[1] / max(1, x.size)
    if diffs[1] is not None:
        slope = b.reshape(b.map(times(number(share), operand(0)), diffs[1]), channels)
        terms.append(b.cast(b.expand(slope, x.shape), x.dtype))
    if diffs[2] is not None:
        mean, slope = (b.reshape(there(it), channels) for it in (node.outputs[1], diffs[2]))
        away = times(number(2 * share), operand(2), ("subtract", operand(0), operand(1)))
        terms.append(b.map(away, x, mean, slope))
    return terms


# ---------------------------------------------------------------- gradients of gradients


class _Backward:
    """What a gradient is made of, written out: rows = (x - mean) * scale, and the gate of relu."""

    def __init__(self, b: Builder, node: Node) -> None:
        diff, x, mean, variance, weight, self.gate, addend = node.inputs
        x = there(x)
        self.axes, self._b = _axes(len(x.shape))[0], b
        self._channels = (x.shape[1],) + (1,) * (len(x.shape) - 2)
        self._dtype = _statistics(x.dtype)
        self.share = number(x.shape[1] / max(1, x.size))
        root: Expression = ("sqrt", ("add", operand(0), number(node.attributes["epsilon"])))
        self.scale = self.of(("divide", number(1.0), root), there(variance))
        self.factor = self.scale if weight is None else self.of(_PRODUCT, self.scale, weight)
        self.away = self.of(("subtract", operand(0), operand(1)), x, self.spread(there(mean)))
        self.rows = self.of(_PRODUCT, self.away, self.spread(self.scale))
        whole = there(diff) if addend is None else self.of(_SUM, there(diff), addend)
        self.diff = self.gated(whole)
        self.sums = (node.outputs[1], node.outputs[2])  # by weight, by bias

    def of(self, expression: Expression, *values: Value) -> Value:
        """A map in the type of sums."""
        return self._b.map(expression, *values, dtype=self._dtype)

    def spread(self, value: Value) -> Value:
        """A number for each channel, as it is broadcast."""
        return self._b.reshape(value, self._channels)

    def sum(self, value: Value) -> Value:
        """Of each channel."""
        return self._b.reduce("sum", value, self.axes)

    def gated(self, value: Value) -> Value:
        """What passes relu."""
        if self.gate is None:
            return value
        passes: Expression = ("less_equal", operand(1), number(0.0))
        return self.of(("where", passes, number(0.0), operand(0)), value, self.gate)

    def total(self, terms: list[Value]) -> Value | None:
        """Their sum, None of none."""
        made = terms[0] if terms else None
        for term in terms[1:]:
            made = self.of(_SUM, there(made), term)
        return made


def _second_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    """By the gradient, x, mean, variance, weight and what is added; relu's result only decides."""
    it, (by_x, by_weight, by_bias, *passed) = _Backward(b, node), diffs
    of_diff = [given for given in passed if given is not None]
    of_rows: list[Value] = []
    of_scale: list[Value] = []
    by_factor: Value | None = None
    if by_x is not None:
        found = _through_x(it, by_x)
        of_diff.append(found[0])
        of_rows.append(found[1])
        by_factor = found[2]
        weight = node.inputs[4]
        of_scale.append(by_factor if weight is None else it.of(_PRODUCT, by_factor, weight))
    if by_weight is not None:
        of_diff.append(it.of(_PRODUCT, it.rows, it.spread(by_weight)))
        of_rows.append(it.of(_PRODUCT, it.diff, it.spread(by_weight)))
    if by_bias is not None:
        of_diff.append(b.expand(it.spread(by_bias), it.rows.shape))
    made: list[Value | None] = [None] * len(node.inputs)
    made[0] = made[6] = it.gated(there(it.total(of_diff)))
    if of_rows:
        by_rows = there(it.total(of_rows))
        made[1] = by_source = it.of(_PRODUCT, by_rows, it.spread(it.scale))
        made[2] = b.apply("negate", it.sum(by_source))
        of_scale.append(it.sum(it.of(_PRODUCT, by_rows, it.away)))
        slope = times(number(-0.5), operand(0), operand(1), operand(1), operand(1))
        made[3] = it.of(slope, there(it.total(of_scale)), it.scale)
    if by_factor is not None:
        made[4] = it.of(_PRODUCT, by_factor, it.scale)
    return [
        None if found is None or value is None else b.cast(found, value.dtype)
        for found, value in zip(made, node.inputs, strict=True)
    ]


def _through_x(it: _Backward, diff: Value) -> tuple[Value, Value, Value]:
    """By the gradient that passed relu, by rows and by the factor, of what was made for x."""
    by_weight, by_bias = it.sums
    scaled = it.of(_PRODUCT, diff, it.spread(it.factor))
    along, along_rows = it.sum(scaled), it.sum(it.of(_PRODUCT, scaled, it.rows))
    means = times(it.share, ("add", operand(1), ("multiply", operand(2), operand(3))))
    less: Expression = ("subtract", operand(0), means)
    by_diff = it.of(less, scaled, it.spread(along), it.rows, it.spread(along_rows))
    both = (
        "add",
        ("multiply", operand(0), operand(1)),
        ("multiply", operand(2), operand(3)),
    )
    values = scaled, it.spread(by_weight), it.diff, it.spread(along_rows)
    by_rows = it.of(times(number(-1.0), it.share, both), *values)
    whole = it.of(less, it.diff, it.spread(by_bias), it.rows, it.spread(by_weight))
    return by_diff, by_rows, it.sum(it.of(_PRODUCT, diff, whole))


BATCH_NORMS = {
    "batch_norm": Operator("rows", _infer_batch_norm, _compute_batch_norm, _batch_norm_gradient),
    "batch_norm_gradient": Operator("rows", _infer_gradient, _compute_gradient, _second_gradient),
}
