"""One step for a chain of nodes on rows: a network of its own that runs for pieces of the rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlprim.graph.graph import Array, Graph, Node, Value
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.passes.pieces import rows_of


def _row_matrix(value: Value, rows: int) -> Value:
    """So many rows of the value."""
    return Value(value.name, (rows, value.shape[-1]), value.dtype)


def _result(to: Lowering, nodes: Sequence[Node]) -> Value:
    """What others read of the last node."""
    return next(it for it in nodes[-1].outputs if it in to.readers or it in to.graph.results)


class _PieceMaker:
    """The graph of a chain for some of its rows.

    Attributes
    ----------
    graph : Graph
    inputs : dict of Value to Value
        Matrices of so many rows by what they are parts of.
    """

    def __init__(self, to: Lowering, nodes: Sequence[Node], rows: int) -> None:
        self.inputs: dict[Value, Value] = {}
        self._known = to.graph.constants
        self._rows = rows
        self._constants: dict[Value, Array] = {}
        self._made: dict[Value, Value] = {}
        self._nodes: list[Node] = []
        for node in nodes:
            self._add(node)
        outputs = (self._made[_result(to, nodes)],)
        inputs = tuple(self.inputs.values())
        self.graph = Graph(inputs, outputs, tuple(self._nodes), self._constants)

    def _add(self, node: Node) -> None:
        operands = tuple(it if it is None else self._operand(node, it) for it in node.inputs)
        if node.operator == "reshape":  # of axes in front of the last one: rows are what they were
            (source,) = operands
            assert source is not None
            self._made[node.output] = source
            return
        results = tuple(_row_matrix(it, self._rows) for it in node.outputs)
        self._made.update(zip(node.outputs, results, strict=True))
        attributes = {name: it for name, it in node.attributes.items() if name != "pieces"}
        if "axis" in attributes:  # the last one, or of a single scale
            attributes["axis"] = 1
        self._nodes.append(Node(node.operator, operands, results, attributes, node.name))

    def _operand(self, node: Node, value: Value) -> Value:
        array = self._known.get(value)
        if array is not None:
            if node.operator == "map":  # along the last axis, or a single one
                array = np.ascontiguousarray(array).reshape(-1)
            known = Value(value.name, array.shape, value.dtype)
            self._constants[known] = array
            return known
        if value in self._made:
            return self._made[value]
        return self.inputs.setdefault(value, _row_matrix(value, self._rows))


def _label(rows: int, name: str) -> str:
    return f"pieces of {rows} rows {name}"


def lower_pieces(to: Lowering, node: Node) -> bool:
    """The step, at the last node of the chain; steps of each node where one calls Python."""
    chain = to.chains["pieces", *node.attributes["pieces"]]
    if node is not chain[-1]:
        return True
    _, rows = node.attributes["pieces"]
    whole = _result(to, chain)
    makers = [_PieceMaker(to, chain, it) for it in (rows, rows_of(whole) % rows) if it]
    networks = [to.network_of(it.graph) for it in makers]
    if any(it.runs_alone for it in networks):
        for it in chain:
            to.lower_alone(it)
        return True
    inputs = [to.number(to.dense(it)) for it in makers[0].inputs]
    result = to.number(to.result(whole))
    rest = networks[1] if len(networks) > 1 else None
    label = to.call(_label, rows, node.name)
    to.network.pieces(networks[0], rest, inputs, [result], label)
    return True
