"""Norms of batches, as in training, with the sum and the relu behind them, and their gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.graph.derivatives import times
from dlprim.graph.expressions import number, operand
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

    Of that of the result, x, mean, variance, weight, the result where a relu made it, and what is
    added to the first.
    """
    diff, x, mean, variance, weight, y, addend = values
    x = there(x)
    _require_channels(x, (mean, variance, weight))
    _require_alike(x, (diff, y, addend))
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


BATCH_NORMS = {
    "batch_norm": Operator("rows", _infer_batch_norm, _compute_batch_norm, _batch_norm_gradient),
    "batch_norm_gradient": Operator(
        "rows", _infer_gradient, _compute_gradient, "norms of batches are differentiated once"
    ),
}
