"""What follows from constants alone, in the bits that a run gives.

It is written down as numbers and tuples for a function, which a recording calls again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dlprim.graph.compiled import compile_graph
from dlprim.graph.extents import derived
from dlprim.graph.graph import Array, Graph, Node, Value
from dlprim.graph.interpret import interpret, is_same_in_numpy


class _Written(NamedTuple):
    """A node whose values are numbers of places.

    Attributes
    ----------
    inputs : tuple of int or None
    outputs : tuple of (shape, dtype)
        Whose places are the next ones.
    """

    operator: str
    inputs: tuple[int | None, ...]
    outputs: tuple[tuple[Any, Any], ...]
    attributes: Any


def computed_as_in_a_run(
    nodes: Sequence[Node], arrays: dict[Value, Any], results: Sequence[Value], max_bytes: int
) -> Sequence[Array]:
    """The results of nodes in the bits that a run gives; ``arrays`` are what they read.

    Of each node an operand varies and the others are constants, as in most networks.
    """
    first = {node.operands[0]: None for node in nodes if node.operands[0] in arrays}
    given = [*first, *(it for it in arrays if it not in first)]
    values = [*given, *(it for node in nodes for it in node.outputs)]
    places: dict[Value | None, int | None] = {it: at for at, it in enumerate(values)}
    places[None] = None
    written = tuple(
        _Written(
            node.operator,
            tuple(places[it] for it in node.inputs),
            tuple((it.shape, it.dtype) for it in node.outputs),
            dict(node.attributes),
        )
        for node in nodes
    )
    operands = tuple((it.shape, it.dtype, arrays[it]) for it in given)
    asked = tuple(places[it] for it in results)
    found: Sequence[Array] = derived(_results, written, operands, len(first), asked, max_bytes)
    return found


def _results(
    written: Sequence[_Written],
    operands: Sequence[tuple[Any, Any, Any]],
    count: int,
    asked: Sequence[int],
    max_bytes: int,
) -> tuple[Array, ...]:
    """Of the operands the first so many vary."""
    values = [Value(f"{at}", shape, dtype) for at, (shape, dtype, _) in enumerate(operands)]
    arrays = [array for _, _, array in operands]
    nodes = []
    for it in written:
        inputs = tuple(None if at is None else values[at] for at in it.inputs)
        outputs = tuple(Value(it.operator, *typed) for typed in it.outputs)
        nodes.append(Node(it.operator, inputs, outputs, it.attributes, it.operator))
        values += outputs
    known = dict(zip(values[count : len(operands)], arrays[count:], strict=True))
    results = tuple(values[at] for at in asked)
    graph = Graph(tuple(values[:count]), results, tuple(nodes), known)
    if all(map(is_same_in_numpy, nodes)):
        return tuple(interpret(graph, arrays[:count]))
    return tuple(compile_graph(graph, max_bytes=max_bytes).run(arrays[:count]))
