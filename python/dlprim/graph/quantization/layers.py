"""What is quantised as one: a layer with constant weights, or both products of attention."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from dlprim.graph.graph import Graph, Node, Value
from dlprim.graph.passes import PASSES, optimized
from dlprim.graph.passes.affine import affine
from dlprim.graph.passes.attention import recognise_attention

# Of both products and what stands between them, that nothing else reads by then.
_ATTENTION = PASSES.index(recognise_attention) + 1


class Layer(NamedTuple):
    """Nodes that compute in 8 bits together or not at all.

    Attributes
    ----------
    nodes : tuple of Node
        In their order; the last one makes the result.
    edges : tuple of (Node, Value)
        What reads which array in 8 bits: nodes of the layer, and moves in front of them.
    """

    nodes: tuple[Node, ...]
    edges: tuple[tuple[Node, Value], ...]

    @property
    def output(self) -> Value:
        return self.nodes[-1].output

    @property
    def is_attention(self) -> bool:
        return len(self.nodes) > 1


def attention_names(graph: Graph) -> frozenset[str]:
    """Of the nodes that end attention, as passes recognise it."""
    found = optimized(graph, _ATTENTION).nodes
    return frozenset(node.name for node in found if node.operator == "attention")


def layers_of(graph: Graph, attention: Collection[str]) -> Iterator[Layer]:
    """All that can be quantised, with attention that ends in nodes of these names."""
    makers = graph.makers()
    places = {node: place for place, node in enumerate(graph.nodes)}
    ends: set[Value] = set()
    for node in graph.nodes:
        if _has_weights(graph, node):
            edges = list(_edges(makers, node, node.operands[0]))
            is_moved = len(edges) > 1 and edges[1][1] in ends
            yield Layer((node,), tuple(edges if is_moved else edges[:1]))
        elif node.operator == "matmul" and node.name in attention:
            layer = _attention(graph, makers, places, node)
            if layer is not None:
                ends.add(node.output)
                yield layer


def _has_weights(graph: Graph, node: Node) -> bool:
    """Whether it multiplies a float array by constant weights that one axis of channels scales."""
    if node.operator not in ("convolution", "matmul") or node.attributes.get("activation"):
        return False
    x, w, bias, residual = (*node.inputs, None, None)[:4]
    if x is None or w is None or w not in graph.constants or x in graph.constants:
        return False
    ranks = (2,) if node.operator == "matmul" else (3, 4)
    has_form = len(w.shape) in ranks and len(x.shape) >= 2 and w.size > 0
    is_float = all(it.dtype.name == "float32" for it in (x, w, node.output))
    return has_form and is_float and residual is None and (bias is None or bias in graph.constants)


def _attention(
    graph: Graph, makers: Mapping[Value, Node], places: Mapping[Node, int], last: Node
) -> Layer | None:
    """Both products, and what makes weights of scores between them."""
    weights, v = last.operands
    between: set[Node] = set()
    products: dict[Node, None] = {}
    stack = [weights]
    while stack:
        value = stack.pop()
        node = makers.get(value)
        if node is None or node in between:
            continue
        if node.operator == "matmul" and value.shape == weights.shape:
            products[node] = None
        elif node.operator in ("map", "softmax"):
            between.add(node)
            stack.extend(node.operands)
    if len(products) != 1:
        return None
    (first,) = products
    nodes, made = [first], {first.output}
    for node in sorted(between, key=places.__getitem__):  # not what makes the mask
        if not made.isdisjoint(node.operands):
            nodes.append(node)
            made.update(node.outputs)
    edges = [(last, weights), *_edges(makers, last, v)]
    for operand in first.operands:
        reader, source = first, operand
        while (scaling := makers.get(source)) is not None and _is_scaling(graph, scaling):
            nodes.insert(0, scaling)
            reader = scaling
            source = next(it for it in scaling.operands if it not in graph.constants)
        edges.extend(_edges(makers, reader, source))
    if any(value in graph.constants for _, value in edges):
        return None
    return Layer((*nodes, last), tuple(edges))


def _edges(
    makers: Mapping[Value, Node], reader: Node, value: Value
) -> Iterator[tuple[Node, Value]]:
    """Where the value is read, and where moves of whole arrays begin that make it.

    The same elements have the same parameters on both ends, so that what moves are bytes.
    """
    yield reader, value
    is_moved = False
    while (node := makers.get(value)) is not None and node.operator in ("reshape", "transpose"):
        reader, value, is_moved = node, node.operands[0], True
    if is_moved and value in makers:
        yield reader, value


def _is_scaling(graph: Graph, node: Node) -> bool:
    """Whether it multiplies one array by a number."""
    computed = [it for it in node.operands if it not in graph.constants]
    if node.operator != "map" or len(computed) != 1 or computed[0].shape != node.output.shape:
        return False
    known = [graph.constants.get(it) for it in node.operands]
    found = affine(node.attributes["expression"], known)
    return (
        found is not None
        and [np.size(it) for it in found.factors.values()] == [1]
        and not np.any(np.asarray(found.shift) != 0)
    )
