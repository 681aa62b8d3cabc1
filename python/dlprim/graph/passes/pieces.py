"""Chains of steps on rows that run for a piece of the rows at a time.

The nodes of a chain get an attribute, ``pieces``: the number of the chain and the rows of a piece.
What they compute is what it was; lowering makes one step of them. That rows of results follow from
the same rows of inputs is decided here, and what pays by the core, from bytes and caches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlprim import _core
from dlprim.graph.extents import Extent, derived
from dlprim.graph.graph import Graph, Node, Value

_PRODUCTS = ("matmul", "quantized_matmul")
_FLOATS = ("float32", "bfloat16")
# Nodes among which those of one chain are, so that large networks take no time squared.
_MOST_APART = 64


def rows_of(value: Value) -> int:
    """Of the value as a matrix whose columns are the last axis."""
    return value.size // value.shape[-1] if value.size else 0


def is_row_wise(graph: Graph, node: Node) -> bool:
    """Whether each row of the results follows from the same rows of what is not constant."""
    known = [it for it in node.operands if it in graph.constants]
    others = [it for it in node.operands if it not in graph.constants]
    alike = [*others, *node.outputs]
    if not others or any(not it.shape or not it.size for it in alike):
        return False
    if len({rows_of(it) for it in alike}) != 1:
        return False
    return _ROW_WISE.get(node.operator, _never)(node, known, others)


def _never(node: Node, known: list[Value], others: list[Value]) -> bool:
    return False


def _product(node: Node, known: list[Value], others: list[Value]) -> bool:
    x, w = node.operands[:2]
    is_linear = others == [x] and len(w.shape) == 2 and len(x.shape) >= 2
    if node.operator == "quantized_matmul":
        return is_linear
    is_kept = node.output.dtype.name in (x.dtype.name, "float32")
    return is_linear and x.dtype == w.dtype and x.dtype.name in _FLOATS and is_kept


def _map(node: Node, known: list[Value], others: list[Value]) -> bool:
    shape = node.output.shape
    dtypes = {it.dtype.name for it in (*node.operands, node.output)}
    are_rows = all(it.size == 1 or it.shape[-1:] == (it.size,) == shape[-1:] for it in known)
    return are_rows and all(it.shape == shape for it in others) and dtypes <= {*_FLOATS}


def _softmax(node: Node, known: list[Value], others: list[Value]) -> bool:
    (x,) = node.operands
    return x.dtype.name in _FLOATS and node.attributes["axis"] in (-1, len(x.shape) - 1)


def _norm(node: Node, known: list[Value], others: list[Value]) -> bool:
    summands = node.operands[: 2 if node.operator == "add_normalize" else 1]
    is_last = node.attributes["axes"] == 1 and others == list(summands)
    return is_last and all(it.dtype.name in _FLOATS for it in others)


def _conversion(node: Node, known: list[Value], others: list[Value]) -> bool:
    return len(others) == 1 and all(it.size == 1 for it in known)


def _reshape(node: Node, known: list[Value], others: list[Value]) -> bool:
    return others[0].shape[-1:] == node.output.shape[-1:]


_ROW_WISE = {
    "add_normalize": _norm,
    "dequantize": _conversion,
    "map": _map,
    "matmul": _product,
    "normalize": _norm,
    "quantize": _conversion,
    "quantized_matmul": _product,
    "reshape": _reshape,
    "softmax": _softmax,
}


def _rows_of_piece(rows: int, dtype: str, flops: int, weights: int, arrays: Sequence[int]) -> int:
    """Of operations for a row, and bytes."""
    of_row = [it / rows for it in arrays]
    return _core.rows_of_piece(rows, dtype, float(flops), float(weights), of_row)


@dataclass(frozen=True)
class _Chain:
    """Nodes of which only the last one makes what others read."""

    graph: Graph
    nodes: tuple[Node, ...]

    @property
    def products(self) -> list[Node]:
        return [node for node in self.nodes if node.operator in _PRODUCTS]

    def rows_of_piece(self) -> int:
        """0 where pieces do not pay."""
        steps = [node for node in self.nodes if node.operator != "reshape"]
        arrays = [steps[0].operands[0], *(node.outputs[0] for node in steps)]
        weights = {it for node in steps for it in node.operands if it in self.graph.constants}
        flops = sum(2 * node.operands[1].size for node in self.products)
        rows: int = derived(
            _rows_of_piece,
            rows_of(arrays[0]),
            self.products[0].operands[0].dtype.name,
            flops,
            sum(it.nbytes for it in weights),
            [it.nbytes for it in arrays],
        )
        return rows


class _Search:
    """What chains of a graph are found with."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._readers = graph.readers()
        self._kept = set(graph.results)
        self._left = {node for node in graph.nodes if is_row_wise(graph, node)}

    def chains(self) -> Iterator[_Chain]:
        """The longest ones with two products, from the first node on."""
        for place, first in enumerate(self._graph.nodes):
            if first not in self._left or first.operator == "reshape":
                continue
            nodes = self._followed(place)
            while len(nodes) > 1 and not self._is_closed(nodes):
                nodes.pop()
            while nodes[-1].operator == "reshape":
                nodes.pop()
            chain = _Chain(self._graph, tuple(nodes))
            if len(chain.products) > 1 and self._is_closed(nodes):
                self._left.difference_update(nodes)
                yield chain

    def _followed(self, place: int) -> list[Node]:
        """A node and what reads its results, or theirs, row by row."""
        nodes = [self._graph.nodes[place]]
        made = set(nodes[0].outputs)
        rows = rows_of(nodes[0].outputs[0])
        for node in self._graph.nodes[place + 1 : place + _MOST_APART]:
            if not self._goes_on(nodes[-1]):
                break
            is_next = node in self._left and not made.isdisjoint(node.operands)
            if is_next and rows_of(node.outputs[0]) == rows:
                nodes.append(node)
                made.update(node.outputs)
        return nodes

    def _goes_on(self, node: Node) -> bool:
        """Whether the node may be another than the last one of a chain."""
        return self._kept.isdisjoint(node.outputs) and all(
            self._left.issuperset(self._readers.get(value, ())) for value in node.outputs
        )

    def _is_closed(self, nodes: Sequence[Node]) -> bool:
        """Whether what all nodes but the last make is read by them alone, and of that one value."""
        inside = set(nodes)
        between = [value for node in nodes[:-1] for value in node.outputs]
        last = [it for it in nodes[-1].outputs if it in self._kept or self._readers.get(it)]
        return (
            len(last) == 1
            and self._kept.isdisjoint(between)
            and all(inside.issuperset(self._readers.get(value, ())) for value in between)
        )


def run_in_pieces(graph: Graph) -> Graph:
    """Marks chains of products that run in pieces, and says of others why they do not."""
    marked: dict[Node, Node] = {}
    refused: dict[tuple[str, str, str], str] = {}
    for number, chain in enumerate(_Search(graph).chains()):
        rows = chain.rows_of_piece()
        first = chain.nodes[0]
        if not rows:
            whole = rows_of(first.outputs[0])
            refused["in pieces of rows", first.operator, first.name] = (
                f"{'these' if isinstance(whole, Extent) else whole} rows through "
                f"{len(chain.products)} products would not be faster"
            )
            continue
        for node in chain.nodes:
            attributes: dict[str, Any] = {**node.attributes, "pieces": (number, rows)}
            marked[node] = Node(node.operator, node.inputs, node.outputs, attributes, node.name)
    nodes = tuple(marked.get(node, node) for node in graph.nodes)
    return replace(graph, nodes=nodes, refused={**graph.refused, **refused})
