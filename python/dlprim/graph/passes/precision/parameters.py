"""Values that are known in 8 bits: the integers, and what one of them stands for."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.operators import OPERATORS
from dlprim.graph.passes.draft import Draft

# Of scales: beyond them products of a scale and 8 bits leave float32.
_LEAST, _MOST = 2.0**-126, 2.0**100


class Parameters(NamedTuple):
    """What an integer q of a dtype stands for: ``(q - zero_point) * scale``."""

    scale: float
    zero_point: int
    dtype: str


class Bytes(NamedTuple):
    """A float array as the integers it was made of."""

    value: Value
    parameters: Parameters

    def dequantized(self, draft: Draft, name: str) -> Value:
        """The floats."""
        scale, zero_point = constants_of(draft, self.parameters, name)
        return draft.emit(
            "dequantize", [self.value, scale, zero_point], name, axis=0, dtype="float32"
        )[0]


def constants_of(draft: Draft, parameters: Parameters, name: str) -> tuple[Value, Value]:
    """Scale and zero point as operands."""
    scale = draft.constant(np.asarray(parameters.scale, np.float32), f"{name}.scale")
    zero_point = np.asarray(parameters.zero_point, parameters.dtype)
    return scale, draft.constant(zero_point, f"{name}.zero_point")


def parameters_of(draft: Draft, node: Node) -> Parameters | None:
    """Those of a `quantize` or `dequantize` node with one scale, None for others."""
    x, scale, zero_point = (*node.inputs, None)[:3]
    dtype = (node.output if node.operator == "quantize" else x or node.output).dtype.name
    number = draft.number(scale)
    zero = 0 if zero_point is None else draft.number(zero_point)
    if dtype not in ("uint8", "int8") or number is None or zero is None:
        return None
    if not (math.isfinite(number) and _LEAST <= number <= _MOST):
        return None
    return Parameters(number, int(zero), dtype)


def known_floats(draft: Draft, value: Value | None) -> Array | None:
    """The elements of a constant, also where it is one of integers with scales."""
    if value is None or value in draft.constants:
        return None if value is None else draft.constants[value]
    node = draft.maker(value, "dequantize")
    return None if node is None else folded(draft, node)


def folded(draft: Draft, node: Node) -> Array | None:
    """What a node computes of constants, None where it has other operands."""
    if not all(it in draft.constants for it in node.operands):
        return None
    arrays = [None if it is None else draft.constants[it] for it in node.inputs]
    array: Array = OPERATORS[node.operator].compute(arrays, node.attributes)[0]
    return array
