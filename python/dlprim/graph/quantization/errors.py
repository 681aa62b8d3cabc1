"""How far quantising one layer moves its result, measured on calibration inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dlprim.graph.expressions import operand
from dlprim.graph.graph import Array, Graph, Node, Value
from dlprim.graph.passes.draft import Draft
from dlprim.graph.passes.precision.parameters import Parameters
from dlprim.graph.quantization.insertion import pair, quantized_weights

_SQUARE = ("multiply", operand(0), operand(0))
_DIFFERENCE = ("subtract", operand(0), operand(1))


def with_errors(
    graph: Graph, layers: Sequence[Node], parameters: Mapping[Value, Parameters]
) -> Graph:
    """Gives for each layer the squares of the error and of its result, summed.

    Every layer is given what the float network gives it, so errors do not add up on the way.
    """
    outputs: list[Value] = []

    def square(draft: Draft, value: Value) -> Value:
        squared = draft.emit("map", [value], value.name, expression=_SQUARE, dtype="float32")[0]
        axes = tuple(range(len(value.shape)))
        how = {"function": "sum", "axes": axes, "keepdims": False}
        return draft.emit("reduce", [squared], value.name, **how)[0]

    def rule(draft: Draft, node: Node) -> None:
        if node not in layers:
            return
        draft.keep(node)
        x, w, *rest = node.inputs
        assert x is not None
        assert w is not None
        weights = quantized_weights(node, draft.constants[w]).floats
        inputs = [pair(draft, x, parameters[x]), draft.constant(weights, w.name), *rest]
        y = draft.emit(node.operator, inputs, node.name, **node.attributes)[0]
        both = [node.output, y]
        how = {"expression": _DIFFERENCE, "dtype": "float32"}
        difference = draft.emit("map", both, node.name, **how)[0]
        outputs.extend((square(draft, difference), square(draft, node.output)))

    draft = Draft(graph)
    draft.apply(rule)
    nodes = tuple(dict.fromkeys(draft.makers.values()))
    return Graph(graph.inputs, tuple(outputs), nodes, draft.constants)


def relative(sums: Array) -> list[float]:
    """The norm of each error as a part of the result's norm, of rows with both squares."""
    errors, results = sums.T
    return [float(it) for it in np.sqrt(errors / np.where(results > 0, results, 1))]
