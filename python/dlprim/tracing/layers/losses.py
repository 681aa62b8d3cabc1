"""dlprim's losses in a trace."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dlprim.arguments.arrays import places_of
from dlprim.arguments.names import one_of_names
from dlprim.arguments.scalars import flag, fraction, integer
from dlprim.functions.loss import REDUCTIONS, LossAndGradient
from dlprim.tracing.array import TracedArray
from dlprim.tracing.layers.operands import alike, checked_layer, counted, floats, shaped
from dlprim.tracing.layers.rows import softmax_along
from dlprim.tracing.tracer import mapped, tracer_of


def _finished(losses: Any, reduction: Any) -> Any:
    kind = one_of_names("reduction", reduction, REDUCTIONS)
    if kind == "none":
        return losses
    return np.sum(losses) if kind == "sum" else np.mean(losses)


@checked_layer
def mse_loss(x: Any, y: Any, *, reduction: str = "mean") -> Any:
    x, y = floats(x=x, y=y)
    alike("y", y, "x", x)
    shaped("y", y, x.shape, "the shape of x")
    return _finished((x - y) ** 2, reduction)


@checked_layer
def binary_cross_entropy_with_logits(
    logits: Any,
    targets: Any,
    weight: Any = None,
    *,
    pos_weight: Any = None,
    reduction: str = "mean",
) -> Any:
    x, t, weight, positive = floats(
        logits=logits, targets=targets, weight=weight, pos_weight=pos_weight
    )
    alike("targets", t, "logits", x)
    shaped("targets", t, x.shape, "the shape of logits")
    share = mapped(lambda it: ("softplus", ("negate", it)), (x,))
    factor = 1.0 if positive is None else (positive - 1) * t + 1
    losses = (1 - t) * x + share * factor
    return _finished(losses if weight is None else losses * weight, reduction)


@checked_layer
def softmax_cross_entropy(
    logits: Any,
    targets: Any,
    *,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    gradient: bool = True,
) -> LossAndGradient:
    ignored = integer("ignore_index", ignore_index, -(2**63))
    kind = one_of_names("reduction", reduction, REDUCTIONS)
    x, weight = floats(logits=_lifted(logits, targets), weight=weight)
    labels = targets if isinstance(targets, TracedArray) else places_of("targets", targets)
    if labels.dtype.kind not in "iu":
        raise TypeError(f"targets has dtype {labels.dtype}, expected integers of int64")
    if x.ndim < 2 or x.shape[-1] == 0:
        raise ValueError(f"logits has shape {x.shape}, expected (..., K) with K >= 1")
    shaped("targets", labels, x.shape[:-1], f"logits has shape {x.shape}")
    shaped("weight", weight, x.shape[-1:], f"logits has shape {x.shape}")
    smoothing = fraction("label_smoothing", label_smoothing)

    def loss(scores: Any) -> Any:
        return _cross_entropy(scores, labels, weight, (ignored, kind, smoothing))

    value = loss(x)
    if not flag("gradient", gradient):
        return LossAndGradient(value, None)
    from dlprim.tracing.gradients import grad  # which calls functions of this kind

    return LossAndGradient(value, grad(lambda it: np.sum(loss(it)))(x))


def _lifted(x: Any, like: Any) -> Any:
    if isinstance(x, TracedArray):
        return x
    tracer = tracer_of((like,))
    return TracedArray(tracer, tracer.value(x))


def _cross_entropy(x: Any, labels: Any, weight: Any, how: tuple[int, str, float]) -> Any:
    ignored, kind, smoothing = how
    shares = softmax_along(x.astype(np.float32), -1, log=True)
    counts = np.not_equal(labels, ignored)
    safe = counted("targets", np.where(counts, labels, 0), x.shape[-1])
    if not isinstance(safe, TracedArray):
        safe, counts = _lifted(safe, x), _lifted(counts, x)
    losses = -np.take_along_axis(shares, safe[..., None], -1)[..., 0]
    factors = counts.astype(np.float32)
    if weight is not None:
        factors = factors * np.take(weight.astype(np.float32), safe, 0)
    losses = losses * (factors if smoothing == 0 else factors * (1 - smoothing))
    if smoothing:
        even = -(shares if weight is None else shares * weight.astype(np.float32)).mean(-1)
        losses = losses + np.where(counts, even * smoothing, 0)
    if kind == "none":
        return losses
    if kind == "sum":
        return np.sum(losses)
    # Where all are ignored the mean is no number, and its gradient 0.
    has_some = np.sum(counts.astype(np.float32)) > 0
    mean = np.sum(losses) / np.where(has_some, np.sum(factors), 1)
    return np.where(has_some, mean, math.nan)
