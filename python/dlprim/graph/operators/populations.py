"""Normalisation of a part of a batch by the statistics of all its parts.

Each part, on a rank of its own mostly, runs its own network; calls here wait for those of the
others: `moments_of_population` forward, `sums_of_population` backward.
`dlprim.primitives.populations` says what combines them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Node, Value
from dlprim.graph.operators.operator import (
    Arrays,
    Attributes,
    Operator,
    Result,
    Values,
    callee,
    there,
)

if TYPE_CHECKING:
    from dlprim.graph.builder import Builder

_AWAY: Expression = ("subtract", operand(0), operand(1))
NORMALISED: Expression = ("add", ("multiply", _AWAY, operand(2)), operand(3))


def factor_of(epsilon: float) -> Expression:
    """What values are multiplied by, of weight and variance."""
    return ("divide", operand(0), ("sqrt", ("add", operand(1), number(epsilon))))


def channels_of(x: Value) -> tuple[int, ...]:
    """The shape in which what there is for each channel goes along with x."""
    return x.shape[1], *[1] * (len(x.shape) - 2)


def _infer(values: Values, attributes: Attributes) -> list[Result]:
    x = there(values[0])
    return [(x.shape, x.dtype)]


def _compute(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """x, (N, C, ...), by mean and variance of all parts, and weight and bias."""
    x, *others = arrays
    shape = (-1, *[1] * (x.ndim - 2))
    mean, variance, weight, bias = (it.reshape(shape) for it in others)
    return [(x - mean) * (weight / np.sqrt(variance + attributes["epsilon"])) + bias]


def _gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    """By x through mean and variance too, with the sums of all parts; none by these."""
    x, mean, variance, weight, _ = map(there, node.inputs)
    diff, shape, axes = there(diffs[0]), channels_of(x), (0, *range(2, len(x.shape)))

    def spread(value: Value) -> Value:
        return b.reshape(value, shape)

    scale = b.map(("divide", number(1.0), factor_of(node.attributes["epsilon"])[2]), mean, variance)
    away = b.map(("multiply", operand(2), _AWAY), x, spread(mean), diff)
    by_weight = b.apply("multiply", b.reduce("sum", away, axes), scale)
    by_bias = b.reduce("sum", diff, axes)
    results = [(it, mean.dtype) for it in ((), mean.shape, mean.shape)]
    how = {name: node.attributes[name] for name in ("pixels", "population")}
    count, weights, biases = b.call("sums_of_population", [by_weight, by_bias], results, **how)
    slope = b.map(
        ("divide", ("multiply", operand(0), operand(1)), operand(2)), weights, scale, count
    )
    common = b.apply("divide", biases, count)
    rest = ("add", operand(3), ("multiply", _AWAY, operand(4)))
    by_x = b.map(
        ("multiply", ("subtract", operand(2), rest), operand(5)),
        x,
        spread(mean),
        diff,
        *map(spread, (common, slope, b.apply("multiply", weight, scale))),
    )
    return [by_x, None, None, by_weight, by_bias]


@callee("moments_of_population", "that of population_norm goes through them")
def _moments(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Number of values for each channel, mean and variance of all parts, of those of this one."""
    found = attributes["population"].moments(attributes["pixels"], *arrays)
    return _as_listed(found, attributes)


@callee("sums_of_population", "nobody takes gradients of gradients over several ranks")
def _sums(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """The same number, and sums of the gradients by weight and bias over all parts."""
    found = attributes["population"].sums(attributes["pixels"], *arrays)
    return _as_listed(found, attributes)


def _as_listed(found: Sequence[Any], attributes: Attributes) -> list[Any]:
    """In the dtypes of a call's results."""
    dtypes = [dtype for _, dtype in attributes["results"]]
    return [np.asarray(it, dtype) for it, dtype in zip(found, dtypes, strict=True)]


POPULATIONS = {"population_norm": Operator("rows", _infer, _compute, _gradient)}
