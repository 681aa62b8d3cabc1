"""Norms of batches and convolutions with what stands beside them, in one pass over memory.

The sum and the relu behind a norm, and the relu behind a convolution, become part of it in the
graph of a function, before its gradient is taken: so the gradient has them, too. A gradient that
was taken elsewhere gets the relu in front of it in the graph that it comes in, and the sum that
the gradient of a norm is given is joined to it in the joint graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Graph, Node, Value, sorted_nodes
from dlprim.graph.lowering.formulas import is_computed
from dlprim.graph.lowering.layouts import relu_gradient
from dlprim.graph.passes.draft import Draft

_SUMS = (("add", operand(0), operand(1)), ("add", operand(1), operand(0)))
_RELUS: tuple[Expression, ...] = (
    ("relu", operand(0)),
    ("maximum", operand(0), number(0.0)),
    ("maximum", number(0.0), operand(0)),
)
_GATE, _ADDEND = 5, 6  # of the inputs of a gradient


def is_sum(node: Node) -> bool:
    """Whether a map adds two arrays that are like its result."""
    if node.operator != "map" or node.attributes["expression"] not in _SUMS:
        return False
    if len(node.operands) != 2:
        return False
    y = node.output
    return all((it.shape, it.dtype) == (y.shape, y.dtype) for it in node.operands)


def _is_relu(node: Node) -> bool:
    if node.operator != "map" or node.attributes["expression"] not in _RELUS:
        return False
    return node.operands[0].dtype == node.output.dtype and len(node.operands) == 1


def _is_layer(node: Node) -> bool:
    """Whether steps of the node can end with relu."""
    if node.attributes.get("activation") is not None:
        return False
    y = node.outputs[0]
    is_image = len(y.shape) in (3, 4) and is_computed(y.dtype)
    return node.operator == "batch_norm" or (node.operator == "convolution" and is_image)


class _Layers:
    """Layers of a graph, and what they take, one layer after the other.

    A layer that takes a sum reads the other array of it, and so its statistics follow that array:
    no later layer may take a sum of which this makes a cycle.
    """

    def __init__(self, graph: Graph) -> None:
        self._uses, self._readers = graph.uses(), graph.readers()
        self.gone: set[Node] = set()
        self._takers: dict[Value, list[Node]] = {}  # layers, by what they add by now
        # Never falls from what a node reads to what it makes; an input or a constant is in front.
        self._places = {it: place for place, node in enumerate(graph.nodes) for it in node.outputs}

    def _reader(self, value: Value) -> Node | None:
        """What alone reads the value, once."""
        readers = self._readers.get(value, ())
        if len(readers) != 1 or self._uses[value] != 1 or readers[0] in self.gone:
            return None
        return readers[0]

    def joined(self, node: Node) -> Node | None:
        """The layer with what follows it, None where that is nothing."""
        y, *statistics = node.outputs
        inputs, attributes, taken = list(node.inputs), dict(node.attributes), []
        follower = self._reader(y)
        if follower is not None and len(inputs) == 3 and statistics and is_sum(follower):
            (other,) = (it for it in follower.operands if it is not y)
            if self._put_behind(node, other):
                inputs.append(other)
                taken.append(follower)
                y = follower.output
                follower = self._reader(y)
        if follower is not None and _is_relu(follower):
            attributes["activation"] = "relu"
            taken.append(follower)
            y = follower.output
        if not taken:
            return None
        self.gone.update((node, *taken))
        return Node(node.operator, tuple(inputs), (y, *statistics), attributes, node.name)

    def _put_behind(self, node: Node, value: Value) -> bool:
        """Lets the node read a value as well, False where that is made of what the node makes.

        Only what lies in front of the value is looked at, and then lies where the value does.
        """
        end = self._places.get(value, -1)
        waiting = [it for it in node.outputs if self._places[it] <= end]
        seen = set(waiting)
        while waiting:
            it = waiting.pop()
            if it is value:
                return False
            readers = (*self._readers.get(it, ()), *self._takers.get(it, ()))
            made = {made for reader in readers for made in reader.outputs}
            fresh = {it for it in made - seen if self._places[it] <= end}
            seen |= fresh
            waiting.extend(fresh)
        self._places.update(dict.fromkeys(seen, end))
        self._takers.setdefault(value, []).append(node)
        return True


def join_layers(graph: Graph) -> Graph:
    """Layers with the sums and the relus behind them; values that are left are the same ones."""
    layers = _Layers(graph)
    joined = [layers.joined(node) for node in graph.nodes if _is_layer(node)]
    made = [node for node in joined if node is not None]
    if not made:
        return graph
    nodes = [*(it for it in graph.nodes if it not in layers.gone), *made]
    return replace(graph, nodes=sorted_nodes([it for node in nodes for it in node.outputs], nodes))


class _Gates:
    """Gradients of norms that are given what a relu lets through, which becomes part of them.

    Who else reads what was let through then waits for all that the gradient reads: that must not be
    made of it.
    """

    def __init__(self, graph: Graph) -> None:
        self._readers, self._kept = graph.readers(), set(graph.outputs)
        self._made = {it: node for node in graph.nodes for it in node.outputs}
        self._waiting: dict[Value, list[Value]] = {}  # what waits for a value besides its readers
        self.gone: set[Node] = set()

    def joined(self, node: Node) -> Node | None:
        """The gradient with the relu in front of it, None where there is none."""
        gate = None if node.inputs[0] is None else self._made.get(node.inputs[0])
        found = None if gate is None or gate in self.gone else relu_gradient(gate)
        if gate is None or found is None:
            return None
        diff, y = found
        inputs = [diff, *node.inputs[1:_GATE], y, *node.inputs[_ADDEND:]]
        is_read = len(self._readers[gate.output]) > 1 or gate.output in self._kept
        if gate.output in inputs or (is_read and not self._is_apart(gate.output, inputs)):
            return None
        outputs = (*node.outputs, gate.output) if is_read else node.outputs
        attributes = {**node.attributes, "residual": is_read}
        self.gone.update((node, gate))
        return Node(node.operator, tuple(inputs), outputs, attributes, node.name)

    def _is_apart(self, value: Value, inputs: Sequence[Value | None]) -> bool:
        """Whether none of the inputs is made of the value, which then waits for them."""
        others = {it for it in inputs if it is not None}
        left, seen = [value], {value}
        while left:
            it = left.pop()
            readers = self._readers.get(it, ())
            made = {
                *(made for node in readers for made in node.outputs),
                *self._waiting.get(it, ()),
            }
            left.extend(made - seen)
            seen |= made
        if not seen.isdisjoint(others):
            return False
        for it in others:
            self._waiting.setdefault(it, []).append(value)
        return True


def join_gates(graph: Graph) -> Graph:
    """Gradients of norms with the relu behind the norm, where that is a map in front of them."""
    gates = _Gates(graph)
    made = {it: gates.joined(it) for it in graph.nodes if _is_open(it)}
    if not gates.gone:
        return graph
    nodes = [made.get(it) or it for it in graph.nodes if made.get(it) or it not in gates.gone]
    return replace(graph, nodes=sorted_nodes(graph.outputs, nodes))


def _is_open(node: Node) -> bool:
    """Whether a gradient of a norm can take a relu."""
    is_gradient = node.operator == "batch_norm_gradient"
    return is_gradient and node.inputs[_GATE] is None and not node.attributes["residual"]


def join_gradient_terms(graph: Graph) -> Graph:
    """Lets the gradient of a norm with a residual and relu add two terms of what it is given."""

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        if node.operator != "batch_norm_gradient" or not node.attributes["residual"]:
            return None
        total = draft.only_maker(node.inputs[0], "map")
        if total is None or not is_sum(total) or node.inputs[_ADDEND] is not None:
            return None
        diff, addend = total.operands
        inputs = [diff, *node.inputs[1:_ADDEND], addend]
        return draft.emit(node.operator, inputs, node.name, **node.attributes)

    return Draft(graph).apply(rule)
