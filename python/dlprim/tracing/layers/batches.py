"""`dlprim.batch_norm` in a trace, where statistics may outlive the call."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.arguments.scalars import flag, fraction, real
from dlprim.arguments.traced import lifted
from dlprim.graph.expressions import Expression, operand
from dlprim.primitives.populations import Population
from dlprim.tracing.array import TracedArray
from dlprim.tracing.layers.operands import checked_layer, floats, shaped, values
from dlprim.tracing.refusals import refuse

_AWAY: Expression = ("subtract", operand(0), operand(1))
_AWAY_SQUARED: Expression = ("multiply", _AWAY, _AWAY)


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


def in_population(
    population: Population,
    x: Any,
    running: tuple[Any, Any],
    parameters: tuple[Any, Any],
    numbers: tuple[float, float],
) -> Any:
    """As in training, of x that is a part of a batch, by the statistics of all parts."""
    momentum, epsilon = numbers
    (x,) = floats(x=x)
    weight, bias = lifted(x.tracer, parameters)
    build, shape = x.tracer.build, (x.shape[1], *[1] * (x.ndim - 2))
    axes, wide = (0, *range(2, x.ndim)), x.astype(np.float32)
    own = np.mean(wide, axis=axes)
    squares = build.map(_AWAY_SQUARED, *values(wide, own.reshape(shape)))
    spread = np.mean(TracedArray(x.tracer, squares), axis=axes)
    how = {"pixels": x.size // max(1, x.shape[1]), "population": population}
    found = build.call(
        "moments_of_population",
        values(own, spread),
        [((), np.float32), *[(own.shape, np.float32)] * 2],
        **how,
    )
    count, mean, variance = (TracedArray(x.tracer, it) for it in found)
    operands = values(wide, mean, variance, weight, bias)
    (made,) = build.emit("population_norm", operands, epsilon=epsilon, **how)
    y = TracedArray(x.tracer, made)
    _move(running, (mean, variance * (count / np.maximum(count - 1, 1))), momentum)
    return y.astype(x.dtype)


def _move(running: tuple[Any, Any], found: tuple[Any, Any], momentum: float) -> None:
    """Statistics that outlive the call, towards those of a batch."""
    for it, now in zip(running, found, strict=True):
        if it is not None:
            before = lifted(now.tracer, it)
            now.tracer.write(before.held, before + momentum * (now - before))


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
    mean, variance = (it.astype(np.float32) for it in found)
    _move(running, (mean, variance * (count / max(1, count - 1))), momentum)
    return y
