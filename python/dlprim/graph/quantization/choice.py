"""Which layers multiply in 8 bits, and which arrays are kept so between them.

Inputs of layers with constant weights are quantised, and those of both products of attention, and
nothing that would not help one: no masks, no scores in front of softmax, no parameters of norms, no
tables. Between layers on images sums and means join in, so that whole blocks stay in 8 bits; the
residual stream of a text model stays in floats.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from dlprim.graph.graph import Graph, Node, Value
from dlprim.graph.quantization.layers import Layer, layers_of
from dlprim.graph.quantization.table import is_image

_ADD = ("add", ("input", 0), ("input", 1))


class Choice(NamedTuple):
    """Layers, and values whose ranges must be known."""

    layers: tuple[Layer, ...]
    values: tuple[Value, ...]


def choose(graph: Graph, attention: Collection[str], exclude: Collection[str] = ()) -> Choice:
    """All layers that can be quantised, of attention that of these names, but for excluded ones."""
    layers = tuple(
        layer
        for layer in layers_of(graph, attention)
        if not any(node.name in exclude for node in (layer.nodes[0], layer.nodes[-1]))
    )
    values = {value: None for layer in layers if not layer.is_attention for _, value in layer.edges}
    if not layers:
        return Choice((), ())
    for node in graph.nodes:
        averages = node.operator == "reduce" or (
            node.operator == "pool" and node.attributes["function"] == "mean"
        )
        if averages and is_image(node.operands[0]):
            values[node.operands[0]] = None
    uses, readers = graph.uses(), graph.readers()
    made = {layer.output for layer in layers if not layer.is_attention}
    for node in reversed(graph.nodes):  # a sum is decided on behind those that read it
        if node.operator != "map" or node.attributes["expression"] != _ADD:
            continue
        first, second = node.operands
        if not is_image(node.output) or first.shape != second.shape or first is second:
            continue
        if not _ends_in(node.output, values, uses, readers):
            continue
        # A layer adds the other operand to its sums; two arrays without one are both read as bytes.
        fused = next((it for it in (first, second) if it in made and uses[it] == 1), None)
        values.update(dict.fromkeys(it for it in (first, second) if it is not fused))
    values.update((value, None) for layer in layers for _, value in layer.edges)
    return Choice(layers, tuple(value for value in values if value not in graph.constants))


def _ends_in(
    value: Value,
    values: Collection[Value],
    uses: dict[Value, int],
    readers: dict[Value, list[Node]],
) -> bool:
    """Whether a value is one of these, perhaps behind an activation."""
    while value not in values:
        if uses.get(value, 0) != 1 or value not in readers:
            return False
        node = readers[value][0]
        if node.operator != "map" or len(node.operands) != 1:
            return False
        value = node.output
    return True
