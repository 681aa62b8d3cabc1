"""A graph computed node by node with NumPy: the oracle of passes and of what is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlprim.graph.expressions import functions_of
from dlprim.graph.graph import Array, Graph, Node, Value
from dlprim.graph.operators import OPERATORS

# These give the same bits by the engines and by NumPy: moves, functions that NumPy computes in any
# case, and maps by functions that are rounded as IEEE 754 says.
SAME_OPERATORS = {
    "call",
    "concat",
    "expand",
    "gather",
    "pad",
    "reshape",
    "slice",
    "transpose",
}
_SAME_FUNCTIONS = {
    "abs",
    "add",
    "and",
    "divide",
    "equal",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "multiply",
    "negate",
    "not",
    "not_equal",
    "or",
    "reciprocal",
    "sqrt",
    "subtract",
    "where",
}


def interpret(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of the graph for these inputs; arrays of states hold what they become then."""
    arrays: dict[Value, Array] = {
        value: array.astype(value.dtype, copy=False) for value, array in graph.constants.items()
    }
    for value, array in zip(graph.inputs, inputs, strict=True):
        arrays[value] = np.asarray(array)
    for node in graph.nodes:
        operands = [None if value is None else arrays[value] for value in node.inputs]
        results = OPERATORS[node.operator].compute(operands, node.attributes)
        arrays.update(zip(node.outputs, results, strict=True))
    outputs = [arrays[value] for value in graph.outputs]
    if graph.states:  # of which outputs may be views
        outputs = [array.copy() for array in outputs]
    became = [arrays[value].copy() for value in graph.states.values()]
    for state, array in zip(graph.states, became, strict=True):
        arrays[state][...] = array
    return outputs


def is_same_in_numpy(node: Node) -> bool:
    """Whether the engines and NumPy give the same bits."""
    if node.operator == "map":
        return functions_of(node.attributes["expression"]) <= _SAME_FUNCTIONS
    return node.operator in SAME_OPERATORS or not has_floats(node)


def has_floats(node: Node) -> bool:
    """Whether the engines might compute the node in floats."""
    dtypes = {value.dtype.name for value in (*node.operands, *node.outputs)}
    return not dtypes.isdisjoint(("float32", "bfloat16"))


def computed(operator: str, arrays: Sequence[Any], attributes: Any) -> tuple[Array, ...]:
    """The results of a node by NumPy."""
    return tuple(map(np.asarray, OPERATORS[operator].compute(arrays, attributes)))
