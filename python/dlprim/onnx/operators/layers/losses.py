"""Losses, and dropout, which does nothing where nobody trains."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.graph import Value
from dlprim.graph.operators.elements import converted
from dlprim.graph.operators.operator import Arrays, Attributes, callee, widened
from dlprim.onnx.operators.shapes import one_number
from dlprim.onnx.registry import RefusedError, operator

# ---------------------------------------------------------------- losses


@callee("negative_log_likelihood")
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


# ---------------------------------------------------------------- Dropout


def _all_kept(build: Builder, x: Value) -> Value:
    return build.expand(build.constant(np.ones((), bool)), x.shape)


@operator("Dropout", since=7)
def dropout_alone(build: Builder, x: Value, *, ratio: float = 0.5, outputs: int = 1) -> Value:
    if outputs > 1:
        raise RefusedError(f"{outputs} outputs, expected 1 below opset 10")
    return x


@operator("Dropout", since=10)
def dropout_with_mask(build: Builder, x: Value, *, ratio: float = 0.5) -> tuple[Value, ...]:
    return x, _all_kept(build, x)


@operator("Dropout", since=12)
def dropout(
    build: Builder,
    x: Value,
    ratio: Value | None = None,
    training: Value | None = None,
    *,
    seed: int = 0,
) -> tuple[Value, ...]:
    if training is not None and build.array(training).any():
        share = 0.5 if ratio is None else float(one_number(build, ratio))
        if share:
            raise RefusedError(f"training_mode with a ratio of {share}, expected no training")
    return x, _all_kept(build, x)
