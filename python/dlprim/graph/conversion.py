"""Networks in float32, of whatever type they were written in."""

from __future__ import annotations

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.graph import Graph, Node, Value

DTYPES = ("float32", "bfloat16")
_HALVES = ("float16", "bfloat16")


def in_float32(graph: Graph) -> Graph:
    """The graph with its halves in float32, for inputs and outputs of the types they had."""
    values = [*graph.inputs, *graph.constants, *(it for node in graph.nodes for it in node.outputs)]
    if not any(value.dtype.name in _HALVES for value in values):
        return graph
    builder = Builder()
    made: dict[Value, Value] = {}
    for value in graph.inputs:
        made[value] = _widened(builder, builder.input(value.name, value.shape, value.dtype))
    for value, array in graph.constants.items():
        made[value] = _widened(builder, builder.constant(array, value.name))
    for node in graph.nodes:
        builder.name = node.name
        made.update(zip(node.outputs, _emitted(builder, node, made), strict=True))
    return builder.graph([builder.cast(made[it], it.dtype) for it in graph.outputs])


def _widened(builder: Builder, value: Value) -> Value:
    return builder.cast(value, np.float32) if value.dtype.name in _HALVES else value


def _emitted(builder: Builder, node: Node, made: dict[Value, Value]) -> list[Value]:
    """The node's results in float32; functions of NumPy are given the types that they know."""
    is_call = node.operator == "call"
    operands = [
        None if it is None else builder.cast(made[it], it.dtype) if is_call else made[it]
        for it in node.inputs
    ]
    attributes = dict(node.attributes)
    if not is_call and attributes.get("dtype") in _HALVES:
        attributes["dtype"] = "float32"
    results = builder.emit(node.operator, operands, **attributes)
    return [_widened(builder, it) for it in results]
