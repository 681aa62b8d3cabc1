"""Networks in another floating-point type than they were written in.

What follows from inputs and from tables of weights is converted. What is made of numbers and
indices alone, like angles of positions and masks, is computed as it was and rounded where it meets
the rest: a position that was rounded to 8 bits would be another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import number, operand
from dlprim.graph.graph import Array, Graph, Node, Value

DTYPES = ("float32", "bfloat16")
_FLOATS = ("float32", "float16", "bfloat16")
# Of a constant that counts as a table of weights.
_TABLE = 1024
_READ_TABLES = ("convolution", "einsum", "gather", "matmul", "transposed_convolution")
# Operands that stay as they are: scales and weights of positions.
_KEPT = {"dequantize": (0, 1, 2), "resample": (1, 2)}


def computed_in(graph: Graph, dtype: str) -> Graph:
    """The graph with its floats in this type, for inputs and outputs of the types they had.

    Quantised graphs are left as they are, and so is what is computed in float64.
    """
    if any(node.operator == "quantize" for node in graph.nodes):
        return graph
    return _Conversion(graph, np.dtype(getattr(ml_dtypes, dtype, dtype))).converted()


class _Conversion:
    def __init__(self, graph: Graph, dtype: np.dtype[Any]) -> None:
        self.graph, self.dtype = graph, dtype
        self.builder = Builder()
        self.values: dict[Value, Value] = {}
        self.rounded: dict[Value, Value] = {}

    def converted(self) -> Graph:
        for value in self.graph.inputs:
            given = self.builder.input(value.name, value.shape, value.dtype)
            self.values[value] = self.builder.cast(given, self.dtype) if _is_float(value) else given
        for value, array in self.graph.constants.items():
            self.values[value] = self.builder.constant(array, value.name)
        for node in self.graph.nodes:
            self.builder.name = node.name
            self.emit(node)
        outputs = [self.builder.cast(self.values[it], it.dtype) for it in self.graph.outputs]
        return self.builder.graph(outputs)

    def emit(self, node: Node) -> None:
        is_exact = not self.is_converted(node)
        is_call = node.operator == "call"
        operands: list[Value | None] = []
        for place, value in enumerate(node.inputs):
            if value is None:
                operands.append(None)
            elif is_exact or is_call or place in _KEPT.get(node.operator, ()):
                operands.append(self.builder.cast(self.values[value], value.dtype))
            else:
                operands.append(self.lowered(value))
        attributes = dict(node.attributes)
        if not is_exact and attributes.get("dtype") in _FLOATS:
            attributes["dtype"] = self.dtype.name
        results: Sequence[Value] = self.builder.emit(node.operator, operands, **attributes)
        if is_call and not is_exact:
            results = [self.builder.cast(it, self.dtype) if _is_float(it) else it for it in results]
        self.values.update(zip(node.outputs, results, strict=True))

    def is_converted(self, node: Node) -> bool:
        """Whether an operand is converted, or a table of weights is read."""
        if self.dtype == np.float32:  # which holds all that halves do
            return any(_is_float(it) for it in (*node.operands, *node.outputs))
        for value in node.operands:
            is_constant = value in self.graph.constants
            if _is_float(value) and not is_constant and self.values[value].dtype == self.dtype:
                return True
            is_table = is_constant and _is_float(value) and value.size >= _TABLE
            if is_table and node.operator in _READ_TABLES:
                return True
        return False

    def lowered(self, value: Value) -> Value:
        """The value in the type that is computed in; what is finite stays finite."""
        known = self.values[value]
        if not _is_float(value) or known.dtype == self.dtype:
            return known
        if known not in self.rounded:
            self.rounded[known] = self.round(known)
        return self.rounded[known]

    def round(self, value: Value) -> Value:
        most = float(ml_dtypes.finfo(self.dtype).max)  # type: ignore[no-untyped-call]
        if self.builder.is_constant(value):
            array: Array = self.builder.array(value)
            kept = np.where(np.isinf(array), array, np.clip(array, -most, most))
            return self.builder.constant(kept.astype(self.dtype), value.name)
        x = operand(0)
        inside = ("minimum", ("maximum", x, number(-most)), number(most))
        is_finite = ("less", ("abs", x), number(np.inf))
        return self.builder.map(("where", is_finite, inside, x), value, dtype=self.dtype)


def _is_float(value: Value) -> bool:
    return value.dtype.name in _FLOATS
