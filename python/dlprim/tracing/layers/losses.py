"""dlprim's losses in a trace."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.arguments.arrays import places_of
from dlprim.arguments.names import one_of_names
from dlprim.arguments.scalars import flag, fraction, integer
from dlprim.functions.loss import REDUCTIONS, LossAndGradient
from dlprim.graph.graph import Value
from dlprim.tracing.array import TracedArray
from dlprim.tracing.layers.operands import alike, checked_layer, counted, floats, shaped, values
from dlprim.tracing.tracer import made, mapped, tracer_of


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
    labels: Any = targets if isinstance(targets, TracedArray) else places_of("targets", targets)
    if labels.dtype.kind not in "iu":
        raise TypeError(f"targets has dtype {labels.dtype}, expected integers of int64")
    if x.ndim < 2 or x.shape[-1] == 0:
        raise ValueError(f"logits has shape {x.shape}, expected (..., K) with K >= 1")
    shaped("targets", labels, x.shape[:-1], f"logits has shape {x.shape}")
    shaped("weight", weight, x.shape[-1:], f"logits has shape {x.shape}")
    smoothing = fraction("label_smoothing", label_smoothing)

    if not isinstance(labels, TracedArray):
        # One that is ignored is in range.
        counted("targets", np.where(labels == ignored, 0, labels), x.shape[-1], ValueError)
    places = _lifted(labels, x).astype(np.int64)
    wide = None if weight is None else weight.astype(np.float32)
    how = {"ignored": ignored, "reduction": kind, "smoothing": smoothing}
    build, given = x.tracer.build, values(x, places, wide)
    results: list[Value] = []

    def emitted() -> Value:
        results.extend(build.emit("cross_entropy", given, **how))
        return results[0]

    loss = made(x.tracer, emitted)
    slopes: Any = TracedArray(x.tracer, results[1]) if flag("gradient", gradient) else None
    return LossAndGradient(loss, slopes)


def _lifted(x: Any, like: Any) -> Any:
    if isinstance(x, TracedArray):
        return x
    tracer = tracer_of((like,))
    return TracedArray(tracer, tracer.value(x))
