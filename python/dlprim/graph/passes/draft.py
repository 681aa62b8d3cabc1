"""A graph that a pass is rewriting.

A pass goes over the nodes in order. A rule is shown each node with its inputs as they are by then,
and returns values that stand in for the node's outputs, or None. What nobody reads any more falls
away at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dlprim.graph.graph import Array, Graph, Node, Value, sorted_nodes
from dlprim.graph.operators import OPERATORS


class CompileError(ValueError):
    """A graph that cannot be compiled; says in which pass, at which node and why."""

    @classmethod
    def at(cls, place: str, error: Exception) -> CompileError:
        """Of what happened there."""
        if isinstance(error, CompileError):
            return cls(f"{place}, {error}")
        return cls(f"{place}: {type(error).__name__}: {error}")


class Draft:
    """The nodes so far, what made each value, and how often it is read.

    Attributes
    ----------
    makers : dict of Value to Node
    constants : dict of Value to ndarray
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.constants: dict[Value, Array] = dict(graph.constants)
        self.makers: dict[Value, Node] = {}
        self._uses = graph.uses()
        self._given = {*graph.inputs, *graph.constants}
        self._stand_ins: dict[Value, Value] = {}
        self._originals: dict[Node, Node] = {}
        self._refused = dict(graph.refused)

    def constant(self, array: Array, name: str) -> Value:
        """A new constant."""
        value = Value(name, array.shape, array.dtype)
        self.constants[value] = array
        return value

    def emit(
        self, operator: str, inputs: Sequence[Value | None], name: str, **attributes: Any
    ) -> tuple[Value, ...]:
        """The results of a new node."""
        results = OPERATORS[operator].infer(inputs, attributes)
        outputs = tuple(Value(name, shape, dtype) for shape, dtype in results)
        self.keep(Node(operator, tuple(inputs), outputs, attributes, name))
        return outputs

    def keep(self, node: Node) -> None:
        """Takes a node as it is."""
        self.makers.update(dict.fromkeys(node.outputs, node))

    def maker(self, value: Value | None, *operators: str) -> Node | None:
        """What makes the value, if it is one of these operators (of any where none are named)."""
        node = None if value is None else self.makers.get(value)
        return node if node is not None and (not operators or node.operator in operators) else None

    def only_maker(self, value: Value | None, *operators: str) -> Node | None:
        """As `maker`, if nothing else reads the value."""
        if value is None or self._uses.get(value, 0) != 1:
            return None
        return self.maker(value, *operators)

    def original(self, node: Node) -> Node:
        """The node of the graph that a rule is shown with other inputs."""
        return self._originals.get(node, node)

    def made(self, value: Value) -> Value | None:
        """What a value of the graph is by now, None where only a later node makes it."""
        value = self._stand_ins.get(value, value)
        return value if value in self.makers or value in self._given else None

    def number(self, value: Value | None) -> float | None:
        """The only element of a constant, None for all else."""
        array = None if value is None else self.constants.get(value)
        return None if array is None or array.size != 1 else array.reshape(-1)[0].item()

    def refuse(self, what: str, node: Node, reason: str) -> None:
        """Notes why no such thing is made of the node, for who reads what is."""
        self._refused[what, node.operator, node.name] = reason

    def apply(self, rule: Callable[[Draft, Node], Sequence[Value] | None]) -> Graph:
        """The graph with the rule applied to all nodes."""
        for node in self._graph.nodes:
            inputs = tuple(it if it is None else self._stand_ins.get(it, it) for it in node.inputs)
            if inputs != node.inputs:
                shown = Node(node.operator, inputs, node.outputs, node.attributes, node.name)
                self._originals[shown] = node
                node = shown
            try:
                outputs = rule(self, node)
            except MemoryError:
                raise
            except Exception as error:
                raise CompileError.at(f"node {node.operator} '{node.name}'", error) from error
            if outputs is None:
                self.keep(node)
                continue
            for old, new in zip(node.outputs, outputs, strict=False):
                if new is not old:
                    self._stand_ins[old] = new
                    self._uses[new] = self._uses.get(new, 0) + self._uses.get(old, 0)
        return self._finished()

    def _finished(self) -> Graph:
        outputs = tuple(self._stand_ins.get(value, value) for value in self._graph.outputs)
        states = {
            state: self._stand_ins.get(value, value) for state, value in self._graph.states.items()
        }
        results = (*outputs, *states.values())
        nodes = sorted_nodes(results, tuple(dict.fromkeys(self.makers.values())))
        needed = set(results).union(*(node.operands for node in nodes))
        constants = {value: array for value, array in self.constants.items() if value in needed}
        return Graph(self._graph.inputs, outputs, nodes, constants, self._refused, states)
