"""Losses: how far scores are from labels."""

from __future__ import annotations

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import number, operand
from dlprim.graph.graph import Value
from dlprim.onnx.registry import RefusedError, operator

X, Y, ZERO = operand(0), operand(1), number(0.0)


def _loss(
    build: Builder,
    scores: Value,
    labels: Value,
    weights: Value | None,
    reduction: str,
    ignored: int | None,
) -> Value:
    """Of log probabilities (N, C, ...) and labels (N, ...), weights (C,): each, sum or mean.

    The mean is over the weights; a label ``ignored`` has none.
    """
    if reduction not in ("mean", "sum", "none"):
        raise RefusedError(f"reduction is {reduction!r}, expected 'mean', 'sum' or 'none'")
    shape = scores.shape[:1] + scores.shape[2:]
    if len(scores.shape) < 2 or labels.shape != shape:
        raise RefusedError(
            f"labels of {list(labels.shape)}, expected {list(shape)} for {list(scores.shape)}"
        )
    if weights is not None and weights.shape != scores.shape[1:2]:
        raise RefusedError(f"weights of {list(weights.shape)}, expected [{scores.shape[1]}]")
    is_counted = None
    if ignored is not None:
        is_counted = build.map(("not_equal", X, number(ignored)), labels, dtype=bool)
        labels = build.map(("where", Y, X, number(0)), labels, is_counted)
    column = build.reshape(labels, (*shape[:1], 1, *shape[1:]))
    result = (column.shape, scores.dtype)
    (chosen,) = build.call("gather_elements", [scores, column], [result], axis=1)
    losses = build.map(("negate", X), build.reshape(chosen, shape))
    shares = None if weights is None else build.gather(weights, labels, 0)
    if is_counted is not None:
        count = build.cast(is_counted, scores.dtype)
        shares = count if shares is None else build.map(("where", Y, X, ZERO), shares, is_counted)
    if shares is not None:
        losses = build.map(("multiply", X, Y), losses, shares)
    if is_counted is not None:
        losses = build.map(("where", Y, X, ZERO), losses, is_counted)
    return _reduced(build, losses, shares, reduction)


def _reduced(build: Builder, losses: Value, shares: Value | None, reduction: str) -> Value:
    """Each, their sum, or their mean over the shares."""
    axes = range(len(losses.shape))
    if reduction == "none":
        return losses
    if reduction == "mean" and shares is None:
        return build.reduce("mean", losses, axes)
    total = build.reduce("sum", losses, axes)
    if reduction == "sum" or shares is None:
        return total
    return build.apply("divide", total, build.reduce("sum", shares, axes))


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
