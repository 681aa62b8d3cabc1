"""Puts quantised arrays and weights into a float graph, as pairs of `quantize` and `dequantize`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlprim.graph.graph import Array, Graph, Node, Value
from dlprim.graph.lowering.sharing import made_of
from dlprim.graph.passes.draft import Draft
from dlprim.graph.passes.precision.parameters import Bytes, Parameters, constants_of
from dlprim.graph.quantization.layers import layers_of
from dlprim.graph.quantization.table import Table, is_image, names_of
from dlprim.graph.quantization.weights import axis_of, in_bytes

# That compute with images in 8 bits, or read them as bytes.
_READERS = ("concat", "map", "pad", "pool", "reduce", "reshape", "slice", "transpose")


def pair(draft: Draft, value: Value, parameters: Parameters) -> Value:
    """The value rounded to 8 bits."""
    scale, zero_point = constants_of(draft, parameters, value.name)
    inputs = [value, scale, zero_point]
    q = draft.emit("quantize", inputs, value.name, axis=0, dtype=parameters.dtype)[0]
    return Bytes(q, parameters).dequantized(draft, value.name)


def insert(graph: Graph, table: Table) -> Graph:
    """The graph with what the table says; what it names and the graph has not is left out."""
    names = names_of(graph)
    ends = {node.name for node in graph.nodes if names[node.outputs[0]] in table.layers}
    layers = [it for it in layers_of(graph, ends) if names[it.output] in table.layers]
    edges = {edge for layer in layers for edge in layer.edges}
    weighted = {layer.nodes[0] for layer in layers if not layer.is_attention}
    inner = {value for it in layers if it.is_attention for _, value in it.edges}
    rounded: dict[Value | None, Value] = {}
    draft = Draft(graph)

    def remember(old: Value, new: Value) -> None:
        parameters = table.arrays.get(names[old])
        if parameters is not None and new.dtype == np.float32:
            rounded[old] = pair(draft, new, parameters)

    def rule(draft: Draft, shown: Node) -> Sequence[Value]:
        node = draft.original(shown)
        inputs = [
            rounded[old]
            if old in rounded
            and ((node, old) in edges or (_reads_bytes(node, old) and old not in inner))
            else new
            for old, new in zip(node.inputs, shown.inputs, strict=True)
        ]
        if node in weighted:
            inputs[1] = _weights(draft, node)
        outputs = node.outputs
        if inputs == list(node.inputs):
            draft.keep(node)
        else:
            outputs = draft.emit(node.operator, inputs, node.name, **node.attributes)
        for old, new in zip(node.outputs, outputs, strict=True):
            remember(old, new)
        return outputs

    for value in graph.inputs:
        remember(value, value)
    return draft.apply(rule)


def _reads_bytes(node: Node, value: Value | None) -> bool:
    return node.operator in _READERS and value is not None and is_image(value)


def _weights(draft: Draft, node: Node) -> Value:
    source = draft.constants[node.operands[1]]
    found = in_bytes(source, axis_of(node))

    def make() -> Array:
        return in_bytes(source, found.axis).values

    values = made_of(found.values, source, ("8 bits", found.axis), make)
    inputs = [
        draft.constant(values, f"{node.name}.weights"),
        draft.constant(found.scale, f"{node.name}.scale"),
        None,
    ]
    return draft.emit("dequantize", inputs, node.name, axis=found.axis, dtype="float32")[0]
