"""A graph computed node by node with NumPy: the oracle of passes and of what is compiled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlprim.graph.graph import Array, Graph, Value
from dlprim.graph.operators import OPERATORS


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
