"""Arrays with more around them, made by copies of views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dlprim.graph.graph import Node
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.lowering.place import Place

Widths = Sequence[tuple[int, int]]

# Elements of a row from which on what is beside it is filled apart, and not the whole array first.
_WIDE_ROW = 16


def lower_pad(to: Lowering, node: Node) -> bool:
    """Copies; widths below zero only move the view."""
    x, value = (*node.inputs, None)[:2]
    assert x is not None
    widths, label = node.attributes["widths"], f"pad {node.name}"
    if 0 in node.output.shape or 0 in x.shape:
        return False
    place = to.place(x).sliced(
        tuple(max(0, -front) for front, _ in widths),
        tuple(n + min(0, a) + min(0, b) for n, (a, b) in zip(x.shape, widths, strict=True)),
        (1,) * len(widths),
    )
    more = [(max(0, front), max(0, back)) for front, back in widths]
    if node.attributes["mode"] == "constant":
        zero = Place.dense(to.constant(np.zeros(1, x.dtype)), (1,), x.dtype)
        around = zero if value is None else to.place(value).reshaped((1,))
        if 0 in place.shape or around is None:
            return False
        to.put(node.output, padded(to, place, more, around, label))
        return True
    for axis, (front, back) in enumerate(more):
        if front or back:
            ends = _ends(place, axis, (front, back), node.attributes["mode"])
            if ends is None:
                return False
            place = _joined(to, [ends[0], place, ends[1]], axis, label)
    to.put(node.output, place)
    return True


def padded(to: Lowering, place: Place, widths: Widths, around: Place, label: str) -> Place:
    """The array with copies of one element around it."""
    counts = zip(place.shape, widths, strict=True)
    whole = to.new(tuple(n + front + back for n, (front, back) in counts), place.dtype)
    rank = len(place.shape)
    everywhere = Place(around.root, around.offset, (1,) * rank, (0,) * rank, around.dtype)
    is_wide = rank > 0 and place.shape[-1] >= _WIDE_ROW
    for part in _rim(whole, place.shape, widths) if is_wide else [whole]:
        to.network.copy(to.number(everywhere.expanded(part.shape)), to.number(part), label)
    inner = whole.sliced(tuple(front for front, _ in widths), place.shape, (1,) * rank)
    to.network.copy(to.number(place), to.number(inner), label)
    return whole


def _rim(whole: Place, inner: tuple[int, ...], widths: Widths) -> Iterator[Place]:
    """What is in front of the inner part and behind it along one axis after the other."""
    for axis, (front, back) in enumerate(widths):
        for start, count in ((0, front), (front + inner[axis], back)):
            if count:
                yield _part(whole, axis, start, count, 1)
        whole = _part(whole, axis, front, inner[axis], 1)


def _ends(
    place: Place, axis: int, widths: tuple[int, int], mode: str
) -> tuple[Place, Place] | None:
    """What goes in front of an axis and behind it, None where the array has too few elements."""
    n, (front, back) = place.shape[axis], widths
    if mode == "edge":
        first, last = (_part(place, axis, start, 1, 1) for start in (0, n - 1))
        return tuple(
            it.expanded((*it.shape[:axis], count, *it.shape[axis + 1 :]))
            for it, count in ((first, front), (last, back))
        )  # type: ignore[return-value]
    if mode == "reflect" and max(widths) < n:
        return _part(place, axis, front, front, -1), _part(place, axis, n - 2, back, -1)
    if mode == "wrap" and max(widths) <= n:
        return _part(place, axis, n - front, front, 1), _part(place, axis, 0, back, 1)
    return None


def _part(place: Place, axis: int, start: int, count: int, step: int) -> Place:
    axes = range(len(place.shape))
    return place.sliced(
        tuple(start if it == axis else 0 for it in axes),
        tuple(count if it == axis else place.shape[it] for it in axes),
        tuple(step if it == axis else 1 for it in axes),
    )


def _joined(to: Lowering, parts: list[Place], axis: int, label: str) -> Place:
    shape = list(parts[1].shape)
    shape[axis] = sum(it.shape[axis] for it in parts)
    whole, start = to.new(tuple(shape), parts[1].dtype), 0
    for it in parts:
        if 0 not in it.shape:
            to.network.copy(
                to.number(it), to.number(_part(whole, axis, start, it.shape[axis], 1)), label
            )
        start += it.shape[axis]
    return whole
