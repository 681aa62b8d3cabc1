"""Losses: how far scores are from labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.derivatives import times
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Node, Value
from dlprim.graph.operators.elements import converted
from dlprim.graph.operators.indexed import put_along
from dlprim.graph.operators.operator import Arrays, Attributes, Values, callee, there, widened
from dlprim.onnx.registry import RefusedError, operator

# ---------------------------------------------------------------- losses


def _likelihood_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    """A label's score gets what its loss is weighted by; the weights of classes are summed."""
    scores, labels, weights = node.inputs
    scores, places, dtype = there(scores), there(labels), there(scores).dtype
    ignored, diff = node.attributes["ignored"], there(diffs[0])
    is_counted = b.map(_COUNTED if ignored is None else _counted(ignored), places, dtype=dtype)
    if ignored is not None:
        inside: Expression = (
            "where",
            ("equal", operand(0), number(ignored)),
            number(0),
            operand(0),
        )
        places = b.map(inside, places)
    shares = is_counted
    if weights is not None:
        shares = b.apply("multiply", is_counted, b.gather(weights, places, 0))
    if node.attributes["reduction"] == "mean":
        every = tuple(range(len(shares.shape)))
        diff = b.apply("divide", diff, b.reduce("sum", shares, every))
    wide = (*places.shape[:1], 1, *places.shape[1:])
    own = b.reshape(places, wide)
    updates = b.map(("negate", _PRODUCT), shares, diff)
    by_scores = put_along(b, b.reshape(updates, wide), own, 1, scores)
    if weights is None:
        return [by_scores, None, None]
    (chosen,) = b.call("gather_elements", [scores, own], [(wide, dtype)], axis=1)
    losses = b.apply("negate", b.reshape(chosen, places.shape))
    if node.attributes["reduction"] == "mean":
        losses = b.apply("subtract", losses, node.output)
    parts = b.map(times(operand(0), operand(1), operand(2)), losses, is_counted, diff)
    extent = weights.shape[0]
    (by_weights,) = b.emit("scatter_add", [places, parts], axis=0, extent=extent)
    return [by_scores, None, by_weights]


_COUNTED = number(1.0)
_PRODUCT: Expression = ("multiply", operand(0), operand(1))


def _counted(ignored: int) -> Expression:
    return ("where", ("equal", operand(0), number(ignored)), number(0.0), number(1.0))


@callee("negative_log_likelihood", _likelihood_gradient)
def negative_log_likelihood_array(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Of log probabilities (N, C, ...) and labels (N, ...), weights (C,): each, sum or mean.

    The mean is over the weights; a label ``ignored`` has none.
    """
    scores, labels, weights = arrays
    ignored, reduction = attributes["ignored"], attributes["reduction"]
    is_counted = np.ones(labels.shape, bool) if ignored is None else labels != ignored
    inside = np.where(is_counted, labels, 0)
    classes = scores.shape[1]
    if np.any((inside < -classes) | (inside >= classes)):
        raise ValueError(f"labels are expected to be classes, below {classes}")
    chosen = np.take_along_axis(widened(scores), np.expand_dims(inside % classes, 1), 1)[:, 0]
    shares = is_counted * (1.0 if weights is None else widened(weights)[inside])
    losses = np.where(is_counted, -chosen * shares, 0)
    with np.errstate(all="ignore"):
        if reduction == "mean":
            losses = losses.sum() / np.sum(shares)
        elif reduction == "sum":
            losses = losses.sum()
        return [converted(np.asarray(losses), scores.dtype)]


def _loss(
    build: Builder,
    scores: Value,
    labels: Value,
    weights: Value | None,
    reduction: str,
    ignored: int | None,
) -> Value:
    if reduction not in ("mean", "sum", "none"):
        raise RefusedError(f"reduction is {reduction!r}, expected 'mean', 'sum' or 'none'")
    shape = scores.shape[:1] + scores.shape[2:]
    if len(scores.shape) < 2 or labels.shape != shape:
        raise RefusedError(
            f"labels of {list(labels.shape)}, expected {list(shape)} for {list(scores.shape)}"
        )
    if weights is not None and weights.shape != scores.shape[1:2]:
        raise RefusedError(f"weights of {list(weights.shape)}, expected [{scores.shape[1]}]")
    result = shape if reduction == "none" else ()
    return build.call(
        "negative_log_likelihood",
        [scores, labels, weights],
        [(result, scores.dtype)],
        reduction=reduction,
        ignored=ignored,
    )[0]


@operator("NegativeLogLikelihoodLoss", since=12)
def negative_log_likelihood(
    build: Builder,
    scores: Value,
    labels: Value,
    weights: Value | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Value:
    return _loss(build, scores, labels, weights, reduction, ignore_index)


@operator("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy(
    build: Builder,
    scores: Value,
    labels: Value,
    weights: Value | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Value, ...]:
    if len(scores.shape) < 2:
        raise RefusedError(f"scores of {list(scores.shape)}, expected (N, C, ...)")
    log = build.emit("softmax", [scores], axis=1, log=True)[0]
    return _loss(build, log, labels, weights, reduction, ignore_index), log
