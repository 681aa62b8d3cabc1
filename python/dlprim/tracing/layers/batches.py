"""`dlprim.batch_norm` in a trace, where statistics may outlive the call."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.arguments.scalars import flag, fraction, real
from dlprim.tracing.array import TracedArray
from dlprim.tracing.layers.operands import checked_layer, floats, shaped, values
from dlprim.tracing.refusals import refuse


@checked_layer
def batch_norm(
    x: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    x, mean, variance, weight, bias = floats(
        x=x, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias
    )
    if x.ndim < 2:
        raise ValueError(f"x has shape {x.shape}, expected (N, C, ...)")
    given = {"running_mean": mean, "running_var": variance, "weight": weight, "bias": bias}
    for name, it in given.items():
        shaped(name, it, x.shape[1:2], "C from x")
    if (mean is None) != (variance is None):
        raise ValueError("running_mean and running_var are expected both, or none of them")
    fraction("momentum", momentum)
    shape = (x.shape[1], *[1] * (x.ndim - 2))
    if flag("training", training):
        return _of_batch(x, (mean, variance), (weight, bias), (momentum, real("eps", eps, 0)))
    if mean is None:
        raise ValueError(
            "running_mean and running_var are missing, expected both, or training=True, which "
            "takes the statistics of x"
        )
    away = x - mean.reshape(shape)
    scale = 1 / np.sqrt(variance.reshape(shape) + real("eps", eps, 0))
    y = away * (scale if weight is None else scale * weight.reshape(shape))
    y = y if bias is None else y + bias.reshape(shape)
    return y.astype(x.dtype)


def _of_batch(
    x: Any,
    running: tuple[Any, Any],
    parameters: tuple[Any, Any],
    numbers: tuple[float, float],
) -> Any:
    """By the statistics of x, which move those that outlive the call."""
    momentum, epsilon = numbers
    if any(it is not None and it.held is None for it in running):
        refuse(
            "dlprim.batch_norm writes running_mean and running_var in training",
            "None for both, or what a module holds",
        )
    build, operands = x.tracer.build, values(x, *parameters)
    results = build.emit("batch_norm", operands, epsilon=epsilon)
    y, *found = (TracedArray(x.tracer, it) for it in results)
    count = x.size // max(1, x.shape[1])
    for before, now, factor in zip(running, found, (1, count / max(1, count - 1)), strict=True):
        if before is not None:
            moved = before + momentum * (now.astype(np.float32) * factor - before)
            x.tracer.write(before.held, moved)
    return y
