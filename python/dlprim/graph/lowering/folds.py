"""Steps for what elements along an axis come to, and for the first of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlprim.graph.graph import Node, Value
from dlprim.graph.lowering.integers import TYPES
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.lowering.place import Place, inverse

_REDUCTIONS = ("sum", "mean", "product", "max", "min")
_AT_EACH = (False, False)


def _along(to: Lowering, x: Value, axes: Sequence[int]) -> Place:
    """The value as (before, along, behind) these axes, of a copy where they are apart."""
    first, last = axes[0], axes[-1]
    place = to.dense(x)
    if list(axes) != list(range(first, last + 1)):
        others = tuple(axis for axis in range(len(x.shape)) if axis not in axes)
        moved = to.place(x).transposed((*others, *axes))
        place, first, last = to.new(moved.shape, x.dtype), len(others), len(x.shape) - 1
        to.network.copy(to.number(moved), to.number(place), f"{x.name} in another order")
    shape = place.shape
    parts = (shape[:first], shape[first : last + 1], shape[last + 1 :])
    made = place.reshaped(tuple(math.prod(part) for part in parts))
    assert made is not None
    return made


def lower_fold(to: Lowering, node: Node) -> bool:
    """A reduction of any type, in which integers are exact and floats are summed as doubles."""
    (x,) = node.operands
    name = node.attributes["function"]
    axes = sorted({axis % len(x.shape) for axis in node.attributes["axes"]})
    is_known = x.dtype.name in TYPES and name in _REDUCTIONS
    if not is_known or node.output.dtype != x.dtype:
        return False
    if not axes:
        to.put(node.output, to.place(x))
        return True
    along = _along(to, x, axes)
    result = to.new((along.shape[0], along.shape[2]), x.dtype)
    label = f"{name} {node.name}"
    to.network.fold(to.number(along), to.number(result), name, _AT_EACH, label)
    shaped = result.reshaped(node.output.shape)
    assert shaped is not None
    to.put(node.output, shaped)
    return True


def lower_running(to: Lowering, node: Node) -> bool:
    """What elements have come to at each of them."""
    x = node.operands[0]
    it = node.attributes
    if x.dtype.name not in TYPES or not x.shape:
        return False
    along = _along(to, x, [it["axis"]])
    result = to.new(along.shape, x.dtype)
    how = (bool(it["exclusive"]), bool(it["reverse"]))
    label = f"{it['function']} {node.name}"
    to.network.fold(to.number(along), to.number(result), it["function"], how, label)
    shaped = result.reshaped(node.output.shape)
    assert shaped is not None
    to.put(node.output, shaped)
    return True


def lower_top(to: Lowering, node: Node) -> bool:
    """The greatest or least along an axis, which lies behind all others for it."""
    (x,) = node.operands
    axis, rank = node.attributes["axis"], len(x.shape)
    if x.dtype.name not in TYPES or not x.size:
        return False
    order = (*(it for it in range(rank) if it != axis), axis)
    source = to.place(x).transposed(order)
    label = f"top_k {node.name}"
    if not source.is_dense:
        moved = to.new(source.shape, x.dtype)
        to.network.copy(to.number(source), to.number(moved), label)
        source = moved
    made = []
    for value in node.outputs:
        shape = tuple(value.shape[it] for it in order)
        made.append(to.new(shape, value.dtype))
        to.put(value, made[-1].transposed(inverse(order)))
    numbers = [to.number(source), *map(to.number, made)]
    to.network.top(numbers, rank - 1, bool(node.attributes["largest"]), label)
    return True
