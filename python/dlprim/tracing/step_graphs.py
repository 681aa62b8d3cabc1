"""The graph of a training step: what a function is, its gradients, and what they change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dlprim.arguments.traced import Held
from dlprim.graph.builder import Builder
from dlprim.graph.expressions import operand
from dlprim.graph.graph import Graph, Value
from dlprim.graph.joint import gradient
from dlprim.graph.passes.layers import join_layers
from dlprim.tracing.traces import Result, Trace
from dlprim.tracing.trees import Tree

# Elements of all parameters that are updated together, at the end, and of one that always is:
# others are updated as soon as their gradient is there, which then need not be kept.
_FEW, _SMALL = 1 << 20, 1 << 16
_ADD = ("add", operand(0), operand(1))


class StepPlan(NamedTuple):
    """What the networks of a step have in common.

    Attributes
    ----------
    rules : tuple of str
        Of each group of parameters.
    is_clipped : bool
    turn : str
        "only", or of a step in several calls "last" or one in front of it, "other".
    is_exchanged : bool
        Whether gradients are what the network gives, behind its results; somebody else updates.
    """

    rules: tuple[str, ...]
    is_clipped: bool
    turn: str
    is_exchanged: bool = False

    @property
    def updates(self) -> bool:
        return self.turn in ("only", "last")


class StepArrays(NamedTuple):
    """What networks of a step are given besides what the function meets.

    Attributes
    ----------
    rows : list of tuple
        Of each parameter of the optimiser its array, and of three states and a copy what holds
        them, or None.
    groups : sequence of int
        Of each of these parameters the number of its group.
    settings : sequence of Held
        Of each group.
    limit : Held
    counts : Held or None
    sums : callable
        Of the number of a parameter what holds the sum of its gradients, 0 at first.
    """

    rows: list[tuple[Any, ...]]
    groups: Sequence[int]
    settings: Sequence[Held]
    limit: Held
    counts: Held | None
    sums: Callable[[int], Held]


class StepMaker:
    """The graph of a step in the making.

    Attributes
    ----------
    given : dict of int to Value
        Of an exchanged step the gradients, by the rows of their parameters.
    """

    def __init__(self, plan: StepPlan, trace: Trace, arrays: StepArrays) -> None:
        self._plan, self._trace, self._arrays = plan, trace, arrays
        self._held = list(trace.held)
        self._states: dict[Value, Value] = {}
        self._builder = Builder()
        self._norm: Value | None = None
        self.given: dict[int, Value] = {}
        self._met: dict[int, Value] = {}  # inputs of the graph by the identity of their arrays
        inputs = trace.graph.inputs
        for it, value in zip(self._held, inputs[len(inputs) - len(self._held) :], strict=True):
            if not it.is_drawn:
                self._met[id(it.held)] = value
        # Parameters that the function meets, by their rows.
        self._parameters = {
            row: self._met[id(array)]
            for row, (array, *_) in enumerate(arrays.rows)
            if id(array) in self._met
        }

    def change(self, loss: Value) -> None:
        """Adds gradients, and what parameters, their moments and other arrays become."""
        graph, rows = self._trace.graph, list(self._parameters)
        joint = gradient(join_layers(graph), [loss], list(self._parameters.values()))
        cotangent = joint.inputs[-1]
        known = {**joint.constants, cotangent: np.ones((), cotangent.dtype)}
        self._builder = Builder.of(Graph(graph.inputs, joint.outputs, joint.nodes, known))
        places = {it: at for at, node in enumerate(joint.nodes) for it in node.outputs}
        # What no node makes are zeros, of parameters that the loss does not depend on: these take
        # part, as their moments go on and they may decay.
        gradients = dict(zip(rows, joint.outputs[len(graph.outputs) :], strict=True))
        rows.sort(key=lambda it: places.get(gradients[it], -1))
        self._update({row: gradients[row] for row in rows})
        for it, number in self._trace.writes:
            state = self._met[id(it.held)]
            if state in self._states:
                raise ValueError(f"{it.name!r} is written by the function and by the optimiser")
            self._states[state] = graph.outputs[number]

    def trace(self, result: Result) -> Trace:
        """The graph; results are that and the norm of gradients, None where nobody asks for it."""
        kept = sorted({it for it in result.leaves if isinstance(it, int)})
        leaves = [kept.index(it) if isinstance(it, int) else it for it in result.leaves]
        outputs = [self._trace.graph.outputs[it] for it in kept]
        leaves.append((None,) if self._norm is None else len(outputs))
        outputs += [] if self._norm is None else [self._norm]
        outputs += self.given.values()
        tree = Tree(tuple, (), (result.tree, Tree(None)))
        graph = self._builder.graph(outputs, self._states)
        return Trace(graph, Result(tree, tuple(leaves)), tuple(self._held))

    def _input(self, it: Held) -> Value:
        self._held.append(it)
        return self._builder.input(it.name, *it.form)

    def _update(self, gradients: Mapping[int, Value]) -> None:
        plan, b, arrays = self._plan, self._builder, self._arrays
        gradients = gradients if plan.turn == "only" else self._summed(gradients)
        if not plan.updates or not gradients:
            return
        if plan.is_exchanged:
            self.given = dict(gradients)
            return
        settings = [self._input(it) for it in arrays.settings]
        counts = None if arrays.counts is None else self._input(arrays.counts)
        factor = None
        if plan.is_clipped:
            limit = self._input(arrays.limit)
            self._norm, factor = b.emit("clip", [limit, *gradients.values()])
        for rows in self._together(gradients):
            group = arrays.groups[rows[0]]
            operands, changing = [settings[group], counts, factor], []
            for row in rows:
                own = [None if it is None else self._input(it) for it in arrays.rows[row][1:]]
                operands += [self._parameters[row], gradients[row], *own]
                changing += [self._parameters[row], *(it for it in own if it is not None)]
            made = b.emit("update", operands, rule=plan.rules[group], places=tuple(rows))
            self._states.update(zip(changing, made, strict=True))
        if counts is not None:
            more = np.zeros(counts.shape, np.int64)
            more[list(gradients)] = 1
            self._states[counts] = b.map(_ADD, counts, b.constant(more))

    def _summed(self, gradients: Mapping[int, Value]) -> dict[int, Value]:
        """Gradients with those of calls before, kept for calls that follow."""
        found = {}
        for row, it in gradients.items():
            total = self._input(self._arrays.sums(row))
            found[row] = self._builder.map(_ADD, total, it)
            if not self._plan.updates:
                self._states[total] = found[row]
        return found

    def _together(self, gradients: Mapping[int, Value]) -> list[list[int]]:
        """Rows of a group that are updated at once, in the order in which gradients are there."""
        rows, groups = list(gradients), self._arrays.groups
        sizes = {row: gradients[row].size for row in rows}
        alone, others = [], rows
        if not self._plan.is_clipped and sum(sizes.values()) > _FEW:
            alone = [[row] for row in rows if sizes[row] > _SMALL]
            others = [row for row in rows if sizes[row] <= _SMALL]
        numbers = sorted({groups[row] for row in others})
        return alone + [[row for row in others if groups[row] == it] for it in numbers]
