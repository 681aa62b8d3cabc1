"""Expressions of maps that are sums of multiples of their operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dlprim.graph.expressions import Expression
from dlprim.graph.graph import Array


class Affine(NamedTuple):
    """``sum(factors[i] * operand i) + shift``; factors and shift are numbers or arrays."""

    factors: dict[int, Any]
    shift: Any


def _scaled(it: Affine, by: Any) -> Affine:
    return Affine({place: factor * by for place, factor in it.factors.items()}, it.shift * by)


def _sum(a: Affine, b: Affine) -> Affine:
    factors = dict(a.factors)
    for place, factor in b.factors.items():
        factors[place] = factors[place] + factor if place in factors else factor
    return Affine(factors, a.shift + b.shift)


def affine(expression: Expression, constants: Sequence[Array | None]) -> Affine | None:
    """The expression as an affine function of the operands that are no constants, if it is one.

    Computed in float64: what is folded into weights is rounded once.
    """
    name, *rest = expression
    if name == "input":
        known = constants[rest[0]]
        if known is None:
            return Affine({rest[0]: 1.0}, 0.0)
        return Affine({}, known.astype(np.float64))
    if name == "number":
        return Affine({}, rest[0] * 1.0)
    if name not in ("add", "subtract", "multiply", "divide", "negate"):
        return None
    parts = [affine(it, constants) for it in rest]
    first, second = parts[0], parts[-1]
    if first is None or second is None:
        return None
    if name == "negate":
        return _scaled(first, -1.0)
    if name in ("add", "subtract"):
        return _sum(first, _scaled(second, 1.0 if name == "add" else -1.0))
    if name == "divide":
        if second.factors or not np.all(second.shift):  # by zero it is no multiple
            return None
        return _scaled(first, 1 / second.shift)
    if first.factors and second.factors:
        return None
    varying, fixed = (second, first) if second.factors else (first, second)
    return _scaled(varying, fixed.shift)
