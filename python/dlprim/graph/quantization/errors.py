"""How far quantising one layer moves its result, measured on calibration inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dlprim.graph.expressions import operand
from dlprim.graph.graph import Array, Graph, Node, Value
from dlprim.graph.passes.draft import Draft
from dlprim.graph.passes.precision.parameters import Parameters
from dlprim.graph.quantization.insertion import pair
from dlprim.graph.quantization.layers import Layer
from dlprim.graph.quantization.weights import axis_of, in_bytes

_SQUARE = ("multiply", operand(0), operand(0))
_DIFFERENCE = ("subtract", operand(0), operand(1))


def with_errors(
    graph: Graph, layers: Sequence[Layer], parameters: Mapping[Value, Parameters]
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
        if node not in ends:
            return
        draft.keep(node)
        both = [node.output, _rounded(draft, ends[node], parameters)]
        how = {"expression": _DIFFERENCE, "dtype": "float32"}
        difference = draft.emit("map", both, node.name, **how)[0]
        outputs.extend((square(draft, difference), square(draft, node.output)))

    ends = {layer.nodes[-1]: layer for layer in layers}
    draft = Draft(graph)
    draft.apply(rule)
    nodes = tuple(dict.fromkeys(draft.makers.values()))
    return Graph(graph.inputs, tuple(outputs), nodes, draft.constants)


def _rounded(draft: Draft, layer: Layer, parameters: Mapping[Value, Parameters]) -> Value:
    """The layer's result of operands in 8 bits."""
    made: dict[Value, Value] = {}
    for node in layer.nodes:
        inputs = [it if it is None else made.get(it, it) for it in node.inputs]
        for place, value in enumerate(node.inputs):
            if value is not None and (node, value) in layer.edges:
                inputs[place] = pair(draft, made.get(value, value), parameters[value])
        if not layer.is_attention:
            w = node.operands[1]
            weights = in_bytes(draft.constants[w], axis_of(node)).floats
            inputs[1] = draft.constant(weights, w.name)
        outputs = draft.emit(node.operator, inputs, node.name, **node.attributes)
        made.update(zip(node.outputs, outputs, strict=True))
    return made[layer.output]


def relative(sums: Array) -> list[float]:
    """The norm of each error as a part of the result's norm, of rows with both squares."""
    errors, results = sums.T
    return [float(it) for it in np.sqrt(errors / np.where(results > 0, results, 1))]
