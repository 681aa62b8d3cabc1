"""Mixtures of experts: each row goes through some of several pairs of linear layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlprim.graph.expressions import evaluate
from dlprim.graph.graph import Array, Value
from dlprim.graph.operators.elements import converted
from dlprim.graph.operators.operator import (
    NO_FUNCTION,
    Arrays,
    Attributes,
    Operator,
    Result,
    Values,
    there,
    widened,
)

Emit = Callable[..., Sequence[Value]]  # of an operator, its inputs and its attributes by name


def between(emit: Emit, y: Value, other: Value | None, attributes: Attributes) -> Value:
    """What goes from the first layer into the second one, of the first and maybe a third.

    ``function`` is of one operand, or of two where there is a gate: two halves of the first layer,
    with ``fusion`` 1 by turns, with 2 one after the other, or the first and the third.
    """
    operands = [y] if other is None else [y, other]
    if attributes["fusion"]:
        operands = _halves(emit, y, by_turns=attributes["fusion"] == 1)
    return emit("map", operands, expression=attributes["function"], dtype=y.dtype.name)[0]


def _halves(emit: Emit, y: Value, by_turns: bool) -> list[Value]:
    front, half = y.shape[:-1], y.shape[-1] // 2
    tail, axis = ((half, 2), len(front) + 1) if by_turns else ((2, half), len(front))
    (pairs,) = emit("reshape", [y], shape=(*front, *tail))
    counts = [*pairs.shape]
    counts[axis] = 1
    parts: list[Value] = []
    for place in (0, 1):
        starts = [0] * len(counts)
        starts[axis] = place
        how = {"starts": tuple(starts), "counts": tuple(counts), "steps": (1,) * len(counts)}
        (part,) = emit("slice", [pairs], **how)
        parts += emit("reshape", [part], shape=(*front, half))
    return parts


def _infer(values: Values, attributes: Attributes) -> list[Result]:
    """Rows (N, C), shares (experts, N), then weights (experts, results, inputs) and biases.

    These are of the first, the second and a third layer, of which the biases and the third may be
    absent; attributes are those of `between`. The result is, of each row, the sum of what its
    experts make of it times their shares.
    """
    x, shares, first, second = (there(values[at]) for at in (0, 1, 2, 4))
    if len(x.shape) != 2 or shares.shape[1:] != x.shape[:1] or first.shape[2] != x.shape[1]:
        raise ValueError(f"rows and shares are {x!r} and {shares!r}, expected (N, C) and (E, N)")
    return [((x.shape[0], second.shape[1]), x.dtype)]


def _compute(arrays: Arrays, attributes: Attributes) -> list[Any]:
    x, shares, *layers = arrays
    rows = widened(x)

    def layer(y: Array, place: int) -> Array:
        w, bias = layers[2 * place : 2 * place + 2]
        made: Array = y @ widened(w).transpose(0, 2, 1)
        return made if bias is None else made + widened(bias)[:, None]

    y = layer(rows[None], 0)
    operands = [y] if len(layers) < 6 or layers[4] is None else [y, layer(rows[None], 2)]
    if attributes["fusion"] == 1:
        operands = [y[..., 0::2], y[..., 1::2]]
    elif attributes["fusion"] == 2:
        operands = np.split(y, 2, -1)
    made = layer(evaluate(attributes["function"], operands), 1)
    taken = np.where(shares[..., None] == 0, 0, made * widened(shares)[..., None])
    return [converted(taken.sum(0), x.dtype)]


EXPERTS = {"experts": Operator("call", _infer, _compute, NO_FUNCTION)}
