"""When states change, and which values are made where a state lies.

A run that raises leaves states as they were: nothing is written there in front of a node that may
refuse what it is given. Nor is it in front of one that reads what the state was. So nodes that make
what states become run as late as that asks for and as early as it allows, and where they cannot be
late enough, their results are copied to the states at the end.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from heapq import heappop, heappush

from dlprim.graph.graph import Graph, Node, Value
from dlprim.graph.lowering.place import Place

# Of these a place may be none of the array's.
_PLACED = {
    "cross_entropy",
    "einsum",
    "experts",
    "formula",
    "gather",
    "placed_rows",
    "recurrent",
    "recurrent_gradient",
    "scatter_add",
}
_MOVES = {"expand", "reshape", "slice", "transpose"}
_SAME = {"reshape", "transpose"}  # with all elements
_IN_PIECES = {"images", "pieces"}
# Which input says the places where no other does.
_INDICES = {
    "gather": 1,
    "placed_rows": 2,
    "recurrent": 7,
    "recurrent_gradient": 5,
    "scatter_add": 0,
}


def refusing(graph: Graph) -> set[Node]:
    """Nodes that may refuse the elements that a run gives them."""
    makers = graph.makers()

    def source(value: Value) -> Value:
        node = makers.get(value)
        while node is not None and node.operator in _SAME:
            value = node.operands[0]
            node = makers.get(value)
        return value

    found, seen = set(), set()
    for node in graph.nodes:
        if node.operator == "call":
            found.add(node)
        elif node.operator in _PLACED:
            place = _INDICES.get(node.operator)
            given = node.inputs if place is None else node.inputs[place : place + 1]
            varying = [
                it
                for it in given
                if it is not None and it.dtype.kind in "iu" and it not in graph.constants
            ]
            if place is not None and varying:
                # What looked at the same places before has refused those that this one would.
                key = source(varying[0]), _extent(node), "argument" in node.attributes
                if key in seen:
                    continue
                seen.add(key)
            if varying:
                found.add(node)
    return found


def _extent(node: Node) -> int:
    if node.operator == "scatter_add":
        return int(node.attributes["extent"])
    if node.operator == "placed_rows":
        cache, rows, _ = node.operands
        return -1 - int(cache.shape[2] - rows.shape[2])  # the extent of no table
    return int(node.operands[0].shape[node.attributes.get("axis", 0)])  # or steps


def _readers(graph: Graph) -> dict[Value, set[Node]]:
    """The nodes that read a state, or what moves make of it."""
    readers = graph.readers()
    found = {}
    for state in graph.states:
        nodes: set[Node] = set()
        waiting = [state]
        while waiting:
            for node in readers.get(waiting.pop(), ()):
                if node not in nodes:
                    nodes.add(node)
                    if node.operator in _MOVES:
                        waiting.extend(node.outputs)
        found[state] = nodes
    return found


def with_late_changes(graph: Graph, first: Collection[Node]) -> Graph:
    """The graph with nodes in an order in which states change late enough, where there is one.

    Parameters
    ----------
    graph : Graph
    first : collection of Node
        What runs in front of all changes.
    """
    makers, readers = graph.makers(), _readers(graph)
    waits: dict[Node, set[Node]] = {}  # of those that change states: what should run before
    for state, value in graph.states.items():
        if value in makers:
            waits.setdefault(makers[value], set()).update(readers[state])
    for node, others in waits.items():
        others.update(first)
        others.discard(node)
    return replace(graph, nodes=tuple(_ordered(graph, waits))) if waits else graph


def _ordered(graph: Graph, waits: Mapping[Node, set[Node]]) -> Iterable[Node]:
    """The nodes in the order that they have, those that wait behind what they wait for."""
    makers = graph.makers()
    places = {node: place for place, node in enumerate(graph.nodes)}
    behind: dict[Node, list[Node]] = {}
    missing = {}
    for node in graph.nodes:
        needed = {makers[it] for it in node.operands if it in makers}
        missing[node] = len(needed)
        for it in needed:
            behind.setdefault(it, []).append(node)
    waiting: dict[Node, list[Node]] = {}
    left = {node: len(others) for node, others in waits.items()}
    for node, others in waits.items():
        for it in others:
            waiting.setdefault(it, []).append(node)
    ready: list[int] = []
    held: list[int] = []

    def offer(node: Node) -> None:
        if missing[node] == 0:
            heappush(held if left.get(node, 0) else ready, places[node])

    for node in graph.nodes:
        offer(node)
    done: dict[Node, None] = {}
    while ready or held:
        node = graph.nodes[heappop(ready or held)]
        if node in done:
            continue
        done[node] = None
        for it in behind.get(node, ()):
            missing[it] -= 1
            offer(it)
        for it in waiting.get(node, ()):
            left[it] -= 1
            if it not in done and left[it] == 0:
                offer(it)
    return done


class States:
    """The states of a network in the making.

    Attributes
    ----------
    changing : dict of Value to Value
        States that a run changes, and what they become.
    """

    def __init__(self, graph: Graph, first: Collection[Node]) -> None:
        self.changing = {it: value for it, value in graph.states.items() if it is not value}
        self._of = {value: state for state, value in reversed(self.changing.items())}
        self._roots: dict[Value, int] = {}
        self._seen: dict[int, list[Value]] = {}  # values that lie where a state does, by its root
        if not self.changing:
            return
        # Steps of a chain are made at its end, and not in an order that is known here.
        self._in_chains = {it for it in graph.nodes if not _IN_PIECES.isdisjoint(it.attributes)}
        ends = {
            (kind, node.attributes[kind]): place
            for place, node in enumerate(graph.nodes)
            for kind in _IN_PIECES.intersection(node.attributes)
        }
        self._places = {
            node: max(
                place,
                *(ends[kind, node.attributes[kind]] for kind in _IN_PIECES & {*node.attributes}),
                -1,
            )
            for place, node in enumerate(graph.nodes)
        }
        self._last_read = dict.fromkeys(graph.results, math.inf)
        for node in graph.nodes:
            for value in node.operands:
                last = max(self._last_read.get(value, 0), self._places[node])
                self._last_read[value] = last
        self._last_first = max((self._places[it] for it in self._places if it in first), default=-1)

    def begin(self, state: Value, root: int) -> None:
        """The value of the network that a state is."""
        self._roots[state] = root
        self._seen[root] = []

    def see(self, value: Value, place: Place) -> None:
        """A value lies there."""
        if place.root in self._seen:
            self._seen[place.root].append(value)

    def lies_in_one(self, place: Place) -> bool:
        """Whether that is in what a state is before it changes."""
        return place.root in self._seen

    def state_for(self, value: Value, node: Node, replaced: Value | None) -> Value | None:
        """The state where a node may make a value, or None.

        Parameters
        ----------
        value : Value
        node : Node
        replaced : Value, optional
            What the node may write on while it reads it.
        """
        state = self._of.get(value)
        if state is None or node in self._in_chains:
            return None
        place = self._places[node]
        if self._last_first > place:
            return None
        for it in self._seen[self._roots[state]]:
            if self._last_read.get(it, -1) > place:
                return None
            count = node.operands.count(it)
            if count > (1 if it is state is replaced else 0):
                return None
        return state
