"""Networks of halves computed in float32, which holds all that halves do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.graph import Array, Graph, Node, Value
from dlprim.graph.lowering.sharing import made_of, passing

# What networks can be computed in, whatever they were written in.
DTYPES = ("float32", "bfloat16")


def in_float32(graph: Graph, halves: Sequence[str]) -> Graph:
    """The graph with float32 for these types, and inputs and outputs of the types they had."""
    return _Conversion(graph, halves).converted()


def _widened(array: Array) -> Array:
    wide = passing(array.shape, np.dtype(np.float32))
    wide[...] = array
    return wide


class _Conversion:
    def __init__(self, graph: Graph, halves: Sequence[str]) -> None:
        self.graph, self.halves = graph, halves
        self.builder = Builder()
        self.values: dict[Value, Value] = {}
        self.given: list[Value] = []  # inputs

    def converted(self) -> Graph:
        for value in self.graph.inputs:
            given = self.builder.input(value.name, value.shape, value.dtype)
            self.given.append(given)
            self.values[value] = self.wide(given)
        for value, array in self.graph.constants.items():
            wide = array
            if value.dtype.name in self.halves:
                widen = partial(_widened, array)
                wide = made_of(widen(), array, "float32", widen)
            self.values[value] = self.builder.constant(wide, value.name)
        for node in self.graph.nodes:
            self.builder.name = node.name
            self.emit(node)
        outputs = [self.builder.cast(self.values[it], it.dtype) for it in self.graph.outputs]
        states = {
            given: self.builder.cast(self.values[self.graph.states[state]], state.dtype)
            for state, given in zip(self.graph.inputs, self.given, strict=True)
            if state in self.graph.states
        }
        return self.builder.graph(outputs, states)

    def emit(self, node: Node) -> None:
        """The node on float32; functions without a formula see the types that they expect."""
        is_call = node.operator == "call"
        operands = [None if it is None else self.operand(it, is_call) for it in node.inputs]
        attributes = dict(node.attributes)
        if not is_call and attributes.get("dtype") in self.halves:
            attributes["dtype"] = "float32"
        results = self.builder.emit(node.operator, operands, **attributes)
        self.values.update(zip(node.outputs, map(self.wide, results), strict=True))

    def operand(self, value: Value, is_as_it_was: bool) -> Value:
        known = self.values[value]
        return self.builder.cast(known, value.dtype) if is_as_it_was else known

    def wide(self, value: Value) -> Value:
        is_half = value.dtype.name in self.halves
        return self.builder.cast(value, "float32") if is_half else value
