"""Axes along which arrays are reduced: which ones, and what they make of a shape."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from dlprim.arguments.arrays import Array, Shape
from dlprim.arguments.scalars import flag, integer, shown

LONG = 1 << 16  # elements of the parts that a row of twice as many, or more, is cut into


class Block(NamedTuple):
    """Axes next to each other that are all reduced, or all kept."""

    size: int
    is_reduced: bool


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """The argument axis, counted from the front and in order; an array of none has one."""
    if axis is None:
        return tuple(range(ndim))
    named = [("axis", axis)]
    if isinstance(axis, tuple | list):
        named = [(f"axis[{place}]", it) for place, it in enumerate(axis)]
    most = ndim or 1
    found = sorted(integer(name, each, -most, most) % most for name, each in named)
    if len(set(found)) < len(found):
        raise ValueError(f"axis is {shown(axis)}, expected each axis once")
    return tuple(found) if ndim else ()


def kept_shape(shape: Shape, axes: tuple[int, ...], keepdims: Any) -> Shape:
    """Of the result, by the argument keepdims."""
    if flag("keepdims", keepdims):
        return tuple(1 if it in axes else extent for it, extent in enumerate(shape))
    return tuple(extent for it, extent in enumerate(shape) if it not in axes)


def require_elements(src: Array, axes: tuple[int, ...]) -> None:
    """Raise ValueError where an axis of x has none."""
    for it in axes:
        if src.shape[it] == 0:
            raise ValueError(
                f"x has shape {src.shape}, expected an element or more along axis {it}"
            )


def blocks_of(shape: Shape, axes: tuple[int, ...]) -> list[Block]:
    return joined(Block(extent, it in axes) for it, extent in enumerate(shape) if extent != 1)


def joined(blocks: Iterable[Block]) -> list[Block]:
    """Neighbours of one kind made into one."""
    found: list[Block] = []
    for it in blocks:
        if found and found[-1].is_reduced == it.is_reduced:
            found[-1] = Block(found[-1].size * it.size, it.is_reduced)
        else:
            found.append(it)
    return found
