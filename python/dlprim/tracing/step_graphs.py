"""The graph of a training step: what a function is, its gradients, and what they change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlprim.arguments.floats import bfloat16_dtype
from dlprim.graph.builder import Builder
from dlprim.graph.expressions import operand
from dlprim.graph.graph import Graph, Value
from dlprim.graph.joint import gradient
from dlprim.graph.operators.updates import SETTINGS
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
    rule : str
    trained : tuple of int
        Of each row of the optimiser the number of its parameter; -1 where that is none of ours.
    owned : tuple of tuple of bool
        Of each row which of three states and a copy it has.
    has_counts, is_clipped : bool
    turn : str
        "only", or of a step in several calls "first", "middle" or "last".
    parameters, states : int
        How many arrays come in front of the arguments of a call.
    """

    rule: str
    trained: tuple[int, ...]
    owned: tuple[tuple[bool, ...], ...]
    has_counts: bool
    is_clipped: bool
    turn: str
    parameters: int
    states: int

    @property
    def updates(self) -> bool:
        return self.turn in ("only", "last")

    def rows(self) -> list[int]:
        """Those of parameters of ours."""
        return [row for row, at in enumerate(self.trained) if at >= 0]


class StepMaker:
    """The graph of a step in the making."""

    def __init__(self, plan: StepPlan, graph: Graph) -> None:
        self._plan, self._graph = plan, graph
        self._parameters = graph.inputs[: plan.parameters]
        self._states: dict[Value, Value] = {}
        self._builder = Builder()
        self._norm: Value | None = None

    def change(self, loss: Value, states: Sequence[Any]) -> None:
        """Adds gradients, and what parameters, their moments and the function's states become."""
        plan, graph = self._plan, self._graph
        rows = plan.rows()
        trained = [self._parameters[plan.trained[row]] for row in rows]
        joint = gradient(join_layers(graph), [loss], trained)
        cotangent = joint.inputs[-1]
        known = {**joint.constants, cotangent: np.ones((), cotangent.dtype)}
        self._builder = Builder.of(Graph(graph.inputs, joint.outputs, joint.nodes, known))
        places = {it: at for at, node in enumerate(joint.nodes) for it in node.outputs}
        # What no node makes are zeros: the loss does not depend on these parameters, which stay.
        found = zip(rows, joint.outputs[len(graph.outputs) :], strict=True)
        gradients = {row: it for row, it in found if it in places}
        self._update(
            {row: gradients[row] for row in sorted(gradients, key=lambda it: places[gradients[it]])}
        )
        before = graph.inputs[plan.parameters : plan.parameters + plan.states]
        for state, number in zip(before, states, strict=True):
            if not isinstance(number, int):
                raise TypeError("a state that the function returns is no array, expected one")
            value = graph.outputs[number]
            if (value.shape, value.dtype) != (state.shape, state.dtype):
                raise ValueError(
                    f"a state of {state.dtype}{list(state.shape)} becomes {value.dtype}"
                    f"{list(value.shape)}, expected its shape and dtype"
                )
            self._states[state] = value

    def trace(self, result: Result) -> Trace:
        """The graph; results are that and the norm of gradients, None where nobody asks for it."""
        kept = sorted({it for it in result.leaves if isinstance(it, int)})
        leaves = [kept.index(it) if isinstance(it, int) else it for it in result.leaves]
        outputs = [self._graph.outputs[it] for it in kept]
        leaves.append((None,) if self._norm is None else len(outputs))
        outputs += [] if self._norm is None else [self._norm]
        tree = Tree(tuple, (), (result.tree, Tree(None)))
        return Trace(self._builder.graph(outputs, self._states), Result(tree, tuple(leaves)))

    def _input(self, name: str, shape: Sequence[int], dtype: npt.DTypeLike) -> Value:
        return self._builder.input(name, shape, dtype)

    def _update(self, gradients: Mapping[int, Value]) -> None:
        """In the order of `more_arrays`."""
        plan, b = self._plan, self._builder
        settings = counts = limit = None
        if plan.updates:
            settings = self._input("settings", (len(SETTINGS[plan.rule]),), np.float64)
            if plan.is_clipped:
                limit = self._input("limit", (), np.float64)
            if plan.has_counts:
                counts = self._input("counts", (len(plan.trained),), np.int64)
        owned = {row: self._owned(row) for row in plan.rows()} if plan.updates else {}
        if plan.turn != "only":
            gradients = self._summed(gradients)
        if settings is None:
            return
        factor = None
        if limit is not None:
            self._norm, factor = b.emit("clip", [limit, *gradients.values()])
        for rows in self._together(gradients):
            operands = [settings, counts, factor]
            for row in rows:
                weights = self._parameters[plan.trained[row]]
                operands += [weights, gradients[row], *owned[row]]
            made = iter(b.emit("update", operands, rule=plan.rule, places=tuple(rows)))
            for row in rows:
                weights = self._parameters[plan.trained[row]]
                self._states.update(
                    (it, next(made)) for it in (weights, *owned[row]) if it is not None
                )
        if counts is not None and gradients:
            more = np.zeros(counts.shape, np.int64)
            more[list(gradients)] = 1
            self._states[counts] = b.map(_ADD, counts, b.constant(more))

    def _owned(self, row: int) -> list[Value | None]:
        """States and a copy of a parameter."""
        shape = self._parameters[self._plan.trained[row]].shape
        names = ("first", "second", "third", "copy")
        dtypes = (*[np.dtype(np.float32)] * 3, bfloat16_dtype())
        return [
            self._input(f"{name} of {row}", shape, dtype) if has else None
            for name, dtype, has in zip(names, dtypes, self._plan.owned[row], strict=True)
        ]

    def _summed(self, gradients: Mapping[int, Value]) -> dict[int, Value]:
        """Gradients with those of calls before, kept for calls that follow."""
        b, sums = self._builder, {}
        for row in self._plan.rows():
            shape = self._parameters[self._plan.trained[row]].shape
            sums[row] = self._input(f"sum of {row}", shape, np.float32)
        found = {}
        for row, it in gradients.items():
            found[row] = it if self._plan.turn == "first" else b.map(_ADD, sums[row], it)
            if not self._plan.updates:
                self._states[sums[row]] = found[row]
        return found

    def _together(self, gradients: Mapping[int, Value]) -> list[list[int]]:
        """Rows that one step updates, in the order in which their gradients are there."""
        rows = list(gradients)
        sizes = {row: gradients[row].size for row in rows}
        if self._plan.is_clipped or sum(sizes.values()) <= _FEW:
            return [rows] if rows else []
        alone = [[row] for row in rows if sizes[row] > _SMALL]
        others = [row for row in rows if sizes[row] <= _SMALL]
        return [*alone, others] if others else alone
