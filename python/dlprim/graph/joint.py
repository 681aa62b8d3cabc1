"""Graphs with their gradients: one joint graph, forward and backward.

`gradient(graph, outputs, of)` appends to the nodes of a graph those of the gradients of the sum of
``outputs``, each weighted by a cotangent of its shape and type, by the values ``of``. The joint
graph is a graph like others, of which gradients may be taken again:

- inputs: those of the graph, then a cotangent for each of ``outputs``, in that order;
- outputs: those of the graph, then a gradient for each of ``of``, in that order, of the shape and
  type of its value, zeros where no output depends on it;
- values and nodes of the graph are the same objects; constants stay constants.

What a node contributes is the third function of its row in `dlprim.graph.operators`. Integers and
conditions carry no gradient. Sums of contributions are added from the last node to the first, so
that results are the same bits in every run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlprim.graph.builder import Builder
from dlprim.graph.graph import Graph, Node, Value
from dlprim.graph.operators import OPERATORS
from dlprim.graph.operators.elements import is_differentiable
from dlprim.graph.verify import named


def gradient(graph: Graph, outputs: Sequence[Value], of: Sequence[Value]) -> Graph:
    """The joint graph of a graph and its gradients.

    Parameters
    ----------
    graph : Graph
    outputs : sequence of Value
        Floats that the graph makes or is given; mostly its outputs.
    of : sequence of Value
        Floats: inputs, constants, or what nodes make.

    Returns
    -------
    Graph
        As the head of this module says.

    Raises
    ------
    ValueError
        Where a value is not of the graph or holds no floats, or where a node that the gradient has
        to pass has none: its name, its operator, and why.
    """
    _require_known(graph, "outputs", outputs)
    _require_known(graph, "of", of)
    b = Builder.of(graph)
    found: dict[Value, Value] = {}
    for value in outputs:
        _add(b, found, value, b.input(f"cotangent of {value.name}", value.shape, value.dtype))
    depending = _depending(graph, of)
    for node in reversed(graph.nodes):
        diffs = [found.get(it) if it in depending else None for it in node.outputs]
        if any(diff is not None for diff in diffs):
            for operand, diff in zip(node.inputs, _contributions(b, node, diffs), strict=True):
                if operand is None or operand not in depending or diff is None:
                    continue
                if isinstance(diff, str):
                    raise ValueError(f"{named(node)} has no gradient by {operand.name}: {diff}")
                _add(b, found, operand, diff)
    gradients = [found[it] if it in found else b.zeros(it.shape, it.dtype) for it in of]
    return b.graph([*graph.outputs, *gradients], graph.states)


def _require_known(graph: Graph, name: str, values: Iterable[Value]) -> None:
    known = {*graph.inputs, *graph.constants, *graph.makers()}
    for value in values:
        if value not in known:
            raise ValueError(f"{name} has {value!r}, expected values of the graph")
        if not is_differentiable(value):
            raise ValueError(f"{name} has {value!r}, expected floats: others have no gradient")


def _depending(graph: Graph, of: Sequence[Value]) -> set[Value]:
    """The floats that follow from the values, and these."""
    depending = set(of)
    for node in graph.nodes:
        if not depending.isdisjoint(node.operands):
            depending.update(filter(is_differentiable, node.outputs))
    return depending


def _contributions(
    b: Builder, node: Node, diffs: list[Value | None]
) -> Sequence[Value | str | None]:
    rule = OPERATORS[node.operator].gradient
    if isinstance(rule, str):
        raise ValueError(f"{named(node)} has no gradient: {rule}")
    b.name = f"gradient of {node.name or node.outputs[0].name}"
    try:
        return rule(b, node, diffs)
    except ValueError as error:
        raise ValueError(f"{named(node)}: {error}") from error


def _add(b: Builder, found: dict[Value, Value], value: Value, diff: Value) -> None:
    assert diff.shape == value.shape, (value, diff)
    assert diff.dtype == value.dtype, (value, diff)
    found[value] = b.apply("add", found[value], diff) if value in found else diff
