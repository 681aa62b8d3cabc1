"""Sums of arrays that are zero but for parts of their own, as the gradients by slices are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dlprim.graph.graph import Graph, Node, Value
from dlprim.graph.passes.draft import Draft
from dlprim.graph.passes.layers import is_sum


class _Part(NamedTuple):
    """A value, and where it lies along an axis among zeros."""

    axis: int
    begin: int
    value: Value


def _parts(draft: Draft, value: Value) -> list[_Part] | None:
    """What a sum that nothing else reads is made of, None where that is something else."""
    total = draft.only_maker(value, "map")
    if total is not None:
        return _parts_of_sum(draft, total) if is_sum(total) else None
    pad = draft.only_maker(value, "pad")
    if pad is None or len(pad.inputs) > 1 or pad.attributes["mode"] != "constant":
        return None
    widths = pad.attributes["widths"]
    axes = [axis for axis, pair in enumerate(widths) if any(pair)]
    if len(axes) != 1 or min(widths[axes[0]]) < 0:
        return None
    return [_Part(axes[0], widths[axes[0]][0], pad.operands[0])]


def _parts_of_sum(draft: Draft, node: Node) -> list[_Part] | None:
    found: list[_Part] = []
    for it in node.operands:
        parts = _parts(draft, it)
        if parts is None:
            return None
        found += parts
    return found


def _joined(draft: Draft, node: Node) -> Sequence[Value] | None:
    """A sum of parts that lie behind each other and leave nothing out."""
    parts = _parts_of_sum(draft, node) if is_sum(node) else None
    if parts is None or len({it.axis for it in parts}) != 1:
        return None
    axis, end = parts[0].axis, 0
    parts.sort(key=lambda it: it.begin)
    for it in parts:
        if it.begin != end:
            return None
        end += it.value.shape[axis]
    if end != node.output.shape[axis]:
        return None
    return draft.emit("concat", [it.value for it in parts], node.name, axis=axis)


def _turned(draft: Draft, node: Node) -> Sequence[Value] | None:
    """A transpose of parts, as parts that are transposed: the one copy is in its order."""
    joined = draft.only_maker(node.operands[0], "concat")
    if joined is None:
        return None
    axes = node.attributes["axes"]
    parts = [draft.emit("transpose", [it], node.name, axes=axes)[0] for it in joined.operands]
    axis = axes.index(joined.attributes["axis"] % len(axes))
    return draft.emit("concat", parts, node.name, axis=axis)


def join_parts(graph: Graph) -> Graph:
    """Puts gradients by slices of one array behind each other, instead of adding zeros to them."""

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        if node.operator == "map":
            return _joined(draft, node)
        return _turned(draft, node) if node.operator == "transpose" else None

    return Draft(graph).apply(rule)
