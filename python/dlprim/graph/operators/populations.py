"""What the parts of a batch know together: moments, forward, and sums of gradients, backward.

Each part, on a rank of its own mostly, runs its own network; calls here wait for those of the
others. `dlprim.primitives.populations` says what combines them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Node, Value
from dlprim.graph.operators.operator import Arrays, Attributes, Values, callee, there

if TYPE_CHECKING:
    from dlprim.graph.builder import Builder


def _gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    """By mean and variance of this part, of those by mean and variance of all."""
    (own, _), (_, mean, _) = map(there, node.inputs), node.outputs
    by_mean, by_variance = (
        b.zeros(mean.shape, mean.dtype) if it is None else it for it in diffs[1:]
    )
    results = [((), np.float32), *[(mean.shape, np.float32)] * 2]
    how = {name: node.attributes[name] for name in ("pixels", "population")}
    found = b.call("sums_of_population", [by_variance, by_mean], results, **how)
    count, of_variance, of_mean = found
    share: Expression = ("divide", number(float(how["pixels"])), operand(0))
    away: Expression = ("subtract", operand(3), operand(4))
    moved = ("multiply", number(2.0), ("multiply", away, operand(1)))
    values = count, of_variance, of_mean, own, mean
    whole = b.map(("multiply", share, ("add", operand(2), moved)), *values, dtype=mean.dtype)
    spread = b.map(("multiply", share, operand(1)), count, of_variance, dtype=mean.dtype)
    return [whole, spread]


@callee("moments_of_population", _gradient)
def _moments(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Number of values for each channel, mean and variance of all parts, of those of this one."""
    found = attributes["population"].moments(attributes["pixels"], *arrays)
    return [np.asarray(it, np.float32) for it in found]


@callee("sums_of_population", "nobody takes gradients of gradients over several ranks")
def _sums(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """The same number, and sums of two arrays over all parts."""
    found = attributes["population"].sums(attributes["pixels"], *arrays)
    return [np.asarray(it, np.float32) for it in found]
