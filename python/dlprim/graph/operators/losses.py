"""The loss of a classifier, which comes with its gradient: both need one reading of the logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.graph.derivatives import times
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Node, Value
from dlprim.graph.operators.elements import converted
from dlprim.graph.operators.operator import (
    Arrays,
    Attributes,
    Operator,
    Result,
    Values,
    as_written,
    there,
    widened,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlprim.graph.builder import Builder

_PRODUCT: Expression = times(operand(0), operand(1))


def _infer(values: Values, attributes: Attributes) -> list[Result]:
    """Of logits (..., K), targets (...) and perhaps weights of the classes.

    The loss by ``reduction`` ("none", "mean", "sum"), and the gradient of its sum by the logits;
    of targets that are ``ignored`` none, and with ``smoothing`` as `dlprim.softmax_cross_entropy`.
    """
    x, targets, weight = (*values, None)[:3]
    x, targets = there(x), there(targets)
    if targets.dtype != np.int64 or targets.shape != x.shape[:-1] or not x.shape[-1]:
        raise ValueError(f"targets are {targets!r}, expected int64 of {list(x.shape[:-1])}")
    if weight is not None and weight.shape != x.shape[-1:]:
        raise ValueError(f"weights are {weight!r}, expected {list(x.shape[-1:])}")
    shape = targets.shape if attributes["reduction"] == "none" else ()
    wide = np.dtype(np.float32) if x.dtype.itemsize == 2 else x.dtype
    return [(shape, wide), (x.shape, x.dtype)]


def _compute(arrays: Arrays, attributes: Attributes) -> list[Any]:
    x, targets, weight = (*arrays, None)[:3]
    classes, smoothing = x.shape[-1], attributes["smoothing"]
    counts = np.asarray(targets != attributes["ignored"])
    wrong = counts & ((targets < 0) | (targets >= classes))
    if wrong.any():
        raise IndexError(f"target {targets[wrong][0]} is outside of {classes} elements")
    rows = widened(x).reshape(-1, classes)
    with np.errstate(all="ignore"):
        above = rows - rows.max(axis=1, keepdims=True, initial=-np.inf)
        logs = above - np.log(np.exp(above).sum(axis=1, keepdims=True))
        by_class = np.ones(classes) if weight is None else widened(weight)
        hits = np.arange(classes) == targets.reshape(-1, 1)
        shares = ((1 - smoothing) * hits + smoothing / classes) * by_class
        shares = np.where(counts.reshape(-1, 1), shares, 0)
        losses = -np.where(shares == 0, 0, shares * logs).sum(axis=1)
        slopes = np.exp(logs) * shares.sum(axis=1, keepdims=True) - shares
        slopes = np.where(counts.reshape(-1, 1), slopes, 0)
        value = losses if attributes["reduction"] == "none" else losses.sum()
        if attributes["reduction"] == "mean":
            divisor = np.where(hits & counts.reshape(-1, 1), by_class, 0).sum()
            value = np.float64(value) / divisor
            slopes = slopes / divisor if counts.any() else slopes
    (shape, wide), _ = _infer(arrays, attributes)
    return [converted(np.reshape(value, shape), wide), converted(slopes.reshape(x.shape), x.dtype)]


def _gradient(b: Builder, node: Node, diffs: Values) -> Sequence[Value | str | None]:
    """The second result times the gradient by the first."""
    by_loss, by_slopes = diffs
    is_weighted = len(node.inputs) > 2 and node.inputs[2] is not None
    if by_loss is None or by_slopes is not None or is_weighted:
        written = list(_by_nodes(b, node, diffs))
        if by_slopes is not None or by_loss is None:
            return written
    else:
        written = [None] * len(node.inputs)
    spread = b.reshape(by_loss, (*by_loss.shape, 1)) if by_loss.shape else by_loss
    slopes = node.outputs[1]
    return [b.map(_PRODUCT, slopes, spread), *written[1:]]


def _written(b: Builder, node: Node) -> list[Value | None]:
    x, targets, weight = (*node.inputs, None)[:3]
    x, targets, how = there(x), there(targets), node.attributes
    wide, classes, rows = node.outputs[0].dtype, x.shape[-1], (*x.shape[:-1], 1)
    last = (len(x.shape) - 1,)
    (logs,) = b.emit("softmax", [b.cast(x, wide)], axis=last[0], log=True)
    own = b.reshape(targets, rows)
    counts = b.map(("not_equal", operand(0), number(how["ignored"])), own, dtype="bool")
    every = b.constant(np.arange(classes), "classes")
    hits = b.map(("equal", operand(0), operand(1)), own, every, dtype="bool")
    factor = b.constant(np.ones(1, wide), "one") if weight is None else b.cast(weight, wide)
    hit: Expression = ("where", operand(1), operand(2), number(0.0))
    whole: Expression = ("where", operand(0), hit, number(0.0))
    weights = b.map(whole, counts, hits, factor, dtype=wide)
    even = times(number(how["smoothing"] / classes), operand(2))
    share: Expression = ("add", times(number(1 - how["smoothing"]), operand(3)), even)
    share = ("where", operand(0), share, number(0.0))
    shares = b.map(share, counts, hits, factor, weights, dtype=wide)
    taken: Expression = ("where", ("equal", operand(0), number(0.0)), number(0.0), _PRODUCT)
    losses = b.apply("negate", b.reduce("sum", b.map(taken, shares, logs), last))
    total = b.reduce("sum", shares, last, keepdims=True)
    slope: Expression = ("subtract", times(("exp", operand(0)), operand(1)), operand(2))
    slopes = b.map(slope, logs, total, shares)
    if how["reduction"] == "none":
        return [losses, b.cast(slopes, x.dtype)]
    value = b.reduce("sum", losses, range(len(losses.shape)))
    if how["reduction"] == "mean":
        divisor = b.reduce("sum", weights, range(len(x.shape)))
        value = b.apply("divide", value, divisor)
        zero = ("equal", operand(1), number(0.0))
        safe = ("where", zero, number(0.0), ("divide", operand(0), operand(1)))
        slopes = b.map(safe, slopes, divisor)
    return [value, b.cast(slopes, x.dtype)]


_by_nodes: Any = as_written(_written)

LOSSES = {"cross_entropy": Operator("rows", _infer, _compute, _gradient)}
