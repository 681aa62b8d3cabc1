"""Sums that a map makes on its way over the elements, such as the gradient of a bias."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from dlprim.graph.expressions import Expression
from dlprim.graph.graph import Node, Value
from dlprim.graph.lowering.formulas import (
    WrittenMap,
    definition_text,
    is_computed,
    share_text,
    written_map,
)
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.lowering.place import Place

Shape = tuple[int, int]


def _split(node: Node) -> int | None:
    """How many axes of a sum's operand are in front of the rest: summed are all of either."""
    rank = len(node.operands[0].shape)
    axes = sorted({axis % rank for axis in node.attributes["axes"]})
    if not axes or node.attributes["function"] not in ("sum", "mean"):
        return None
    if len(axes) == rank:
        return 0
    if axes == list(range(len(axes))):
        return len(axes)
    return rank - len(axes) if axes == list(range(rank - len(axes), rank)) else None


def _sum_of(to: Lowering, node: Node) -> Node | None:
    """The first sum of what a map makes that its pass makes, too."""
    y = node.output
    is_state = y in to.graph.states.values()
    if not is_computed(y.dtype) or not y.shape or y in to.blocked or is_state:
        return None
    for reader in to.readers.get(y, ()):
        is_plain = reader.operator == "reduce" and not {"pieces", "images"} & set(reader.attributes)
        if is_plain and not to.is_made(reader.output) and _split(reader) is not None:
            return reader
    return None


class _SummedMap(NamedTuple):
    """A map in rows, and the sum that is made of it on the way.

    Attributes
    ----------
    text : str
    results : list of (Value, shape)
        That of the sum, and in front of it that of the map where others read that.
    """

    text: str
    results: list[tuple[Value, tuple[int, ...]]]


def _summed(
    to: Lowering, node: Node, reduce: Node, written: WrittenMap, shape: Shape
) -> _SummedMap:
    y, axes = node.output, reduce.attributes["axes"]
    rank = len(y.shape)
    is_down = 0 in {axis % rank for axis in axes} and len(set(axes)) < rank
    kept, size = (1, shape[0]) if is_down else (0, shape[1])
    is_read = to.readers[y] != [reduce] or y in to.graph.results
    factor = share_text(size) if reduce.attributes["function"] == "mean" else ""
    ranges = f" where {written.ranges}"
    made = f"s(i{kept}) +=! {factor}"
    total = (reduce.output, (shape[kept],))
    if not is_read:
        statements = [f"{made}{written.value}{ranges}"]
        return _SummedMap(definition_text(written.operands, statements, "s"), [total])
    statements = [f"y(i0,i1) = {written.value}{ranges}", f"{made}y(i0,i1)"]
    return _SummedMap(definition_text(written.operands, statements, "y, s"), [(y, shape), total])


def lower_with_sum(
    to: Lowering, node: Node, expression: Expression, operands: Sequence[Place]
) -> bool:
    """A map of operands in its shape with a sum of it, in one pass; False where there is none."""
    reduce = _sum_of(to, node)
    split = None if reduce is None else _split(reduce)
    if reduce is None or split is None:
        return False
    shape = (math.prod(node.output.shape[:split]), math.prod(node.output.shape[split:]))
    rows = [it.reshaped(shape) for it in operands]
    flat = [it for it in rows if it is not None]
    written = written_map(expression, flat, shape) if len(flat) == len(rows) else None
    if written is None:
        return False
    made = _summed(to, node, reduce, written, shape)
    places = [to.new(it, value.dtype) for value, it in made.results]
    if not to.formula(made.text, written.places, places, f"map {node.name}"):
        return False
    for (value, _), place in zip(made.results, places, strict=True):
        shaped = place.reshaped(value.shape)
        assert shaped is not None
        to.put(value, shaped)
    return True
