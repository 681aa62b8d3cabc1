"""Loops around a body that is one network: many runs of it in a call of the core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dlprim import _core
from dlprim.graph.compiled import CompiledGraph
from dlprim.graph.graph import Array
from dlprim.onnx.importer import FAILURES
from dlprim.onnx.parts.part import Part, refused
from dlprim.onnx.program import Block

# The number of the next run, whether the condition holds, and the states.
Ran = tuple[int, bool, tuple[Array, ...]]


class Form(NamedTuple):
    """What inputs of a body are, from the front: both of a loop or none, states, rows."""

    is_loop: bool
    states: int
    rows: int


class Steps:
    """Runs of a body for arrays of known shapes.

    Attributes
    ----------
    kept : tuple of Value
        What each run gives besides states and condition.
    """

    def __init__(self, loop: Any, part: Part, kept: Sequence[Any], fixed: tuple[str, ...]) -> None:
        self.kept = tuple(kept)
        self._loop, self._part, self._fixed = loop, part, fixed
        self._values: Mapping[str, Any] = {}

    def of(self, values: Mapping[str, Any]) -> Steps:
        """The same, with values from outside of the body."""
        made = Steps(self._loop, self._part, self.kept, self._fixed)
        made._values = values
        return made

    def run(
        self,
        states: Sequence[Array],
        rows: Sequence[Array],
        kept: Sequence[Array],
        runs: tuple[int, int, bool],
    ) -> Ran | None:
        """Some runs, at least one, of (first, count, condition); None for other arrays."""
        fixed = tuple([self._values[name] for name in self._fixed])
        try:
            ran: Ran | None = self._loop.run((fixed, tuple(states), tuple(rows), tuple(kept)), runs)
        except FAILURES as error:
            raise refused(error) from error
        return ran


def steps_of(
    part: Part, graph: CompiledGraph, block: Block, outputs: Sequence[str], form: Form
) -> Steps | None:
    """The runs of a body that is one network; None where more goes on between two of them."""
    front = 2 if form.is_loop else 0
    states = block.inputs[front : front + form.states]
    feeds: dict[str, tuple[str, int]] = dict(
        zip(block.inputs[:front], (("number", 0), ("condition", 0)), strict=False)
    )
    feeds.update((name, ("state", place)) for place, name in enumerate(states))
    rows = block.inputs[front + form.states :]
    feeds.update((name, ("row", place)) for place, name in enumerate(rows))
    fixed: dict[str, int] = {}
    listed = [
        feeds.get(it.name) or ("fixed", fixed.setdefault(it.name, len(fixed)))
        for it in graph.graph.inputs
    ]
    results = {name: place for place, name in enumerate(part.section.outputs)}
    condition, carried = -1, []
    if form.is_loop and outputs[0] != block.inputs[1]:
        if outputs[0] not in results:
            return None
        condition = results[outputs[0]]
    first = 1 if form.is_loop else 0
    last = first + form.states
    for own, name in zip(states, outputs[first:last], strict=True):
        if own != name and name not in results:
            return None
        carried.append(-1 if own == name else results[name])
    kept: list[tuple[bool, int]] = []
    values = []
    inputs = {it.name: it for it in graph.graph.inputs}
    for name in outputs[last:]:
        if name in results:
            kept.append((True, results[name]))
            values.append(graph.graph.outputs[results[name]])
        elif name in states and name in inputs:
            kept.append((False, states.index(name)))
            values.append(inputs[name])
        else:
            return None
    try:
        loop = _core.Loop(graph.network, listed, carried, condition, kept)
    except ValueError:  # the number or the condition is of another type
        return None
    return Steps(loop, part, values, tuple(fixed))
