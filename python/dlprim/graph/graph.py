"""Networks as values: typed arrays and the nodes that make them, in single assignment.

A graph has known shapes. What a node computes is said by `dlprim.graph.operators`;
passes are functions from graph to graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Value:
    """One array of a network; two values are the same only if they are one object.

    Attributes
    ----------
    name : str
        As the model calls it, or the node that makes it; names say nothing else.
    shape : tuple of int
    dtype : numpy.dtype
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


@dataclass(frozen=True, eq=False)
class Node:
    """One operation on values.

    Attributes
    ----------
    operator : str
        A name of `dlprim.graph.operators.OPERATORS`.
    inputs : tuple of Value or None
        None stands for an operand that the operator does without.
    outputs : tuple of Value
    attributes : mapping
        Numbers, strings and tuples of them.
    name : str
        As the model calls it.
    """

    operator: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    @cached_property
    def operands(self) -> tuple[Value, ...]:
        """The inputs that are there."""
        return tuple(value for value in self.inputs if value is not None)

    @property
    def output(self) -> Value:
        """The only output."""
        (value,) = self.outputs
        return value


@dataclass(frozen=True, eq=False)
class Graph:
    """A network for inputs of known shapes.

    Attributes
    ----------
    inputs, outputs : tuple of Value
    nodes : tuple of Node
        In an order in which they can run.
    constants : mapping of Value to ndarray
        What is known before a run; nobody writes to these arrays. Of a bfloat16 value it may be one
        of float32, which whoever reads it rounds, so that packing weights converts them.
    refused : mapping of (str, str, str) to str
        Why passes left a node as it was: by what they would have made, operator and name.
    states : mapping of Value to Value
        Inputs whose arrays a run changes: what each of them holds behind it. Nodes that read such
        an input read what it held before.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[Value, Array]
    refused: Mapping[tuple[str, str, str], str] = field(default_factory=dict)
    states: Mapping[Value, Value] = field(default_factory=dict)

    @property
    def results(self) -> tuple[Value, ...]:
        """What a run leaves: outputs, and behind them what states become."""
        return (*self.outputs, *self.states.values())

    def makers(self) -> dict[Value, Node]:
        """The node of every value that a node makes."""
        return {value: node for node in self.nodes for value in node.outputs}

    def readers(self) -> dict[Value, list[Node]]:
        """The nodes that read a value, each once; what a run leaves is not asked."""
        readers: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.operands):
                readers.setdefault(value, []).append(node)
        return readers

    def uses(self) -> dict[Value, int]:
        """How often a value is read, by nodes or as a result of the graph."""
        uses: dict[Value, int] = dict.fromkeys(self.results, 0)
        for value in self.results:
            uses[value] += 1
        for node in self.nodes:
            for value in node.operands:
                uses[value] = uses.get(value, 0) + 1
        return uses


def sorted_nodes(outputs: Sequence[Value], nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Those of the nodes that the outputs need, in an order in which they can run.

    Outputs are made one by one as they come among the nodes, whatever their order is: a gradient as
    soon as it can be, so that what it is made of need not be kept.
    """
    makers = {value: node for node in nodes for value in node.outputs}
    places = {node: place for place, node in enumerate(nodes)}
    last = {makers[value] for value in outputs if value in makers}
    stack = [(node, False) for node in sorted(last, key=places.__getitem__, reverse=True)]
    done: dict[Node, None] = {}
    while stack:
        node, is_ready = stack.pop()
        if node in done:
            continue
        if is_ready:
            done[node] = None
            continue
        stack.append((node, True))
        stack.extend(
            (makers[value], False)
            for value in reversed(node.operands)
            if value in makers and makers[value] not in done
        )
    return tuple(done)


def parted_nodes(
    graph: Graph, pause: tuple[int, int] | None
) -> tuple[Sequence[Node], Sequence[Node]]:
    """The nodes in front of a pause and those behind it: with numbers of inputs and outputs, what
    these outputs need of these inputs comes first; all come behind it without.

    Raises
    ------
    ValueError
        The outputs need other inputs.
    """
    if pause is None:
        return (), graph.nodes
    inputs, results = pause
    first = sorted_nodes(graph.outputs[:results], graph.nodes)
    late = set(graph.inputs[inputs:])
    for node in first:
        if not late.isdisjoint(node.operands):
            raise ValueError(
                f"node {node.operator} '{node.name}' makes something for either part of the "
                "network, expected nodes for each"
            )
    known = set(first)
    return first, [node for node in graph.nodes if node not in known]
