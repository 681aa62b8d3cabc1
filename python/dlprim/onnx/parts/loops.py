"""Loops around a body that is one network: many runs of it in a call of the core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dlprim import _core
from dlprim.graph.compiled import CompiledGraph
from dlprim.onnx.parts.part import Part
from dlprim.onnx.program import Block


class Form(NamedTuple):
    """What inputs of a body are, from the front: both of a loop or none, states, rows."""

    is_loop: bool
    states: int
    rows: int


class Looped(NamedTuple):
    """Runs of a network in the core.

    Attributes
    ----------
    loop : Loop of the core
    kept : list of (tuple of int, dtype)
        What each run gives besides states and condition.
    fixed : list of str
        What it reads from outside of the body.
    """

    loop: Any
    kept: list[tuple[tuple[int, ...], Any]]
    fixed: list[str]


def looped(
    part: Part, graph: CompiledGraph, block: Block, outputs: Sequence[str], form: Form
) -> Looped | None:
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
    return Looped(loop, [(it.shape, it.dtype) for it in values], list(fixed))
