"""Optimiser steps as operators: what parameters and their moments become.

Numbers that a schedule changes are operands, so that one network serves a whole training run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dlprim.graph.operators.elements import converted
from dlprim.graph.operators.operator import (
    Arrays,
    Attributes,
    Operator,
    Result,
    Values,
    there,
)

_NO_GRADIENT = "it is a step of an optimiser"
_FLOAT = np.dtype(np.float32)

# The settings of each rule, in order; and rules that ask how often a parameter was updated.
SETTINGS = {
    "sgd": ("learning_rate", "momentum", "weight_decay"),
    "nesterov": ("learning_rate", "momentum", "weight_decay"),
    "adam": ("learning_rate", "beta1", "beta2", "eps", "weight_decay"),
    "adamw": ("learning_rate", "beta1", "beta2", "eps", "weight_decay"),
    "lamb": ("learning_rate", "beta1", "beta2", "eps", "weight_decay"),
    "rmsprop": ("learning_rate", "alpha", "eps", "weight_decay", "momentum"),
}
_COUNTING = ("adam", "adamw", "lamb")
# Operands in front of those of parameters, and of each of these: weights, gradient, three states, a
# copy of the weights in bfloat16.
_HEAD, _OF_PARAMETER = 3, 6


def parameters_of(operands: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The operands of each parameter of an update."""
    for begin in range(_HEAD, len(operands), _OF_PARAMETER):
        yield operands[begin : begin + _OF_PARAMETER]


def _infer_update(values: Values, attributes: Attributes) -> list[Result]:
    """Operands: settings as float64, how often parameters were updated, a factor of gradients."""
    rule, settings = attributes["rule"], there(values[0])
    expected = (len(SETTINGS[rule]),)
    if settings.shape != expected or settings.dtype != np.float64:
        raise ValueError(f"settings are {settings!r}, expected float64{list(expected)}")
    if rule in _COUNTING:
        counts = there(values[1])
        if counts.dtype != np.int64 or counts.shape <= (max(attributes["places"], default=-1),):
            raise ValueError(f"counts are {counts!r}, expected int64 for each parameter")
    results = []
    for weights, gradient, *others in parameters_of(values):
        w = there(weights)
        for place, it in enumerate((w, there(gradient), *others)):
            dtype = "bfloat16" if place == _OF_PARAMETER - 1 else "float32"
            if it is not None and (it.shape, it.dtype.name) != (w.shape, dtype):
                raise ValueError(f"an operand is {it!r}, expected {dtype}{list(w.shape)}")
        results += [(w.shape, it.dtype) for it in (w, *others) if it is not None]
    return results


def _compute_update(arrays: Arrays, attributes: Attributes) -> list[Any]:
    settings, counts, factor, *_ = arrays
    named = dict(zip(SETTINGS[attributes["rule"]], map(float, settings), strict=True))
    results: list[Any] = []
    places = attributes["places"]
    for place, (w, g, *states, copy) in zip(places, parameters_of(arrays), strict=True):
        steps = 0 if counts is None else int(counts[place]) + 1
        gradient = g.astype(np.float64) * (1.0 if factor is None else float(factor))
        wide = [None if it is None else it.astype(np.float64) for it in (w, *states)]
        made = _RULES[attributes["rule"]](wide, gradient, named, steps)
        results += [converted(it, _FLOAT) for it in made if it is not None]
        if copy is not None:
            results.append(converted(converted(made[0], _FLOAT), copy.dtype))
    return results


def _sgd(arrays: list[Any], g: Any, it: dict[str, float], nesterov: bool) -> list[Any]:
    w, velocity = arrays[:2]
    slope = g + it["weight_decay"] * w
    if velocity is not None:
        velocity = it["momentum"] * velocity + slope
        slope = slope + it["momentum"] * velocity if nesterov else velocity
    return [w - it["learning_rate"] * slope, velocity]


def _adam(arrays: list[Any], g: Any, it: dict[str, float], steps: int, decays: bool) -> list[Any]:
    w, mean, square = arrays[:3]
    rate, beta1, beta2 = it["learning_rate"], it["beta1"], it["beta2"]
    if not decays:
        g = g + it["weight_decay"] * w
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * g**2
    root = np.sqrt(square / (1 - beta2**steps)) + it["eps"]
    kept = 1 - rate * it["weight_decay"] if decays else 1.0
    return [w * kept - rate / (1 - beta1**steps) * mean / root, mean, square]


def _lamb(arrays: list[Any], g: Any, it: dict[str, float], steps: int) -> list[Any]:
    w, mean, square = arrays[:3]
    beta1, beta2 = it["beta1"], it["beta2"]
    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * g**2
    root = np.sqrt(square / (1 - beta2**steps)) + it["eps"]
    step = mean / (1 - beta1**steps) / root + it["weight_decay"] * w
    lengths = np.sqrt(np.sum(w**2)), np.sqrt(np.sum(step**2))
    stretch = lengths[0] / lengths[1] if min(lengths) > 0 else 1.0
    return [w - it["learning_rate"] * stretch * step, mean, square]


def _rmsprop(arrays: list[Any], g: Any, it: dict[str, float]) -> list[Any]:
    w, velocity, square, mean = arrays
    alpha = it["alpha"]
    g = g + it["weight_decay"] * w
    square = alpha * square + (1 - alpha) * g**2
    variance = square
    if mean is not None:
        mean = alpha * mean + (1 - alpha) * g
        variance = np.maximum(square - mean**2, 0)
    slope = g / (np.sqrt(variance) + it["eps"])
    if velocity is not None:
        slope = velocity = it["momentum"] * velocity + slope
    return [w - it["learning_rate"] * slope, velocity, square, mean]


_RULES: dict[str, Any] = {
    "sgd": lambda arrays, g, it, _: _sgd(arrays, g, it, False),
    "nesterov": lambda arrays, g, it, _: _sgd(arrays, g, it, True),
    "adam": lambda arrays, g, it, steps: _adam(arrays, g, it, steps, False),
    "adamw": lambda arrays, g, it, steps: _adam(arrays, g, it, steps, True),
    "lamb": _lamb,
    "rmsprop": lambda arrays, g, it, _: _rmsprop(arrays, g, it),
}


def _infer_clip(values: Values, attributes: Attributes) -> list[Result]:
    """Operands: what the norm is at most, as float64, and gradients. Results: norm and factor."""
    limit, *gradients = map(there, values)
    if limit.shape or limit.dtype != np.float64:
        raise ValueError(f"the limit is {limit!r}, expected float64[]")
    for it in gradients:
        if it.dtype != np.float32:
            raise ValueError(f"a gradient is {it!r}, expected float32")
    return [((), _FLOAT), ((), _FLOAT)]


def _compute_clip(arrays: Arrays, attributes: Attributes) -> list[Any]:
    limit, *gradients = arrays
    norm = np.sqrt(sum(np.sum(it.astype(np.float64) ** 2) for it in gradients))
    factor = limit / (norm + 1e-6)
    return [_FLOAT.type(norm), _FLOAT.type(1.0 if factor >= 1 else factor)]


UPDATES = {
    "clip": Operator("rows", _infer_clip, _compute_clip, _NO_GRADIENT),
    "update": Operator("rows", _infer_update, _compute_update, _NO_GRADIENT),
}
