"""Where the elements of a value lie: a piece of memory of the network, seen with strides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np


def dense_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes of an array in C order."""
    strides, step = [], itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(1, extent)
    return tuple(reversed(strides))


@dataclass(frozen=True)
class Place:
    """A view of a value of the network.

    Attributes
    ----------
    root : int
        The value of the network whose memory it is.
    offset : int
        Of the first element from that of the root, in bytes.
    shape, strides : tuple of int
        Strides in bytes.
    dtype : numpy.dtype
    """

    root: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]

    @staticmethod
    def dense(root: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Place:
        """All of a value in C order."""
        return Place(root, 0, shape, dense_strides(shape, dtype.itemsize), dtype)

    @property
    def is_dense(self) -> bool:
        expected = dense_strides(self.shape, self.dtype.itemsize)
        if 0 in self.shape:
            return True
        zipped = zip(self.shape, self.strides, expected, strict=True)
        return all(extent == 1 or a == b for extent, a, b in zipped)

    def transposed(self, axes: tuple[int, ...]) -> Place:
        shape = tuple(self.shape[axis] for axis in axes)
        strides = tuple(self.strides[axis] for axis in axes)
        return Place(self.root, self.offset, shape, strides, self.dtype)

    def sliced(
        self, starts: tuple[int, ...], counts: tuple[int, ...], steps: tuple[int, ...]
    ) -> Place:
        if 0 in counts:
            return Place(self.root, self.offset, counts, self.strides, self.dtype)
        offset = sum(start * it for start, it in zip(starts, self.strides, strict=True))
        strides = tuple(step * it for step, it in zip(steps, self.strides, strict=True))
        return Place(self.root, self.offset + offset, counts, strides, self.dtype)

    def expanded(self, shape: tuple[int, ...]) -> Place:
        lead = len(shape) - len(self.shape)
        strides = (0,) * lead + tuple(
            0 if have == 1 and want != 1 else stride
            for have, want, stride in zip(self.shape, shape[lead:], self.strides, strict=True)
        )
        return Place(self.root, self.offset, shape, strides, self.dtype)

    def reshaped(self, shape: tuple[int, ...]) -> Place | None:
        """The same elements in another shape, None where that takes a copy."""
        if self.is_dense:
            strides = dense_strides(shape, self.dtype.itemsize)
            return Place(self.root, self.offset, shape, strides, self.dtype)
        known = _strides_of(self, shape)
        return None if known is None else replace(self, shape=shape, strides=known)


def _strides_of(place: Place, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Of the same elements in another shape, None where they do not lie so.

    Axes fall into the shortest runs of as many elements as some of the new ones have, and each run
    has to be dense from its last axis on.
    """
    known = [pair for pair in zip(place.shape, place.strides, strict=True) if pair[0] != 1]
    wanted = [axis for axis, extent in enumerate(shape) if extent != 1]
    strides = [place.dtype.itemsize] * len(shape)
    while known:
        (count, stride), *known = known
        axes = [wanted.pop(0)]
        made = shape[axes[0]]
        while made != count:
            if made < count:
                axes.append(wanted.pop(0))
                made *= shape[axes[-1]]
            else:
                (extent, inner), *known = known
                if stride != extent * inner:
                    return None
                count, stride = count * extent, inner
        for axis in reversed(axes):
            strides[axis] = stride
            stride *= shape[axis]
    return tuple(strides)


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """The order of axes that takes another one back."""
    return tuple(order.index(axis) for axis in range(len(order)))


def in_blocks(place: Place, shape: tuple[int, ...]) -> Place | None:
    """Images that lie channels-last, seen as the blocks of channels of this shape.

    None where they lie otherwise, or where a block is not whole.
    """
    n, blocks, height, width, channels = shape
    last = place.transposed((0, 2, 3, 1))
    if blocks * channels != place.shape[1] or place.is_dense or not last.is_dense:
        return None
    split = place.reshaped((n, blocks, channels, height, width))
    return None if split is None else split.transposed((0, 1, 3, 4, 2))


def order_of(place: Place) -> tuple[int, ...] | None:
    """The order of axes in which a place is dense, None where there is none."""
    order = sorted(range(len(place.shape)), key=lambda axis: -place.strides[axis])
    return tuple(order) if place.transposed(tuple(order)).is_dense else None


def collapsed(shape: tuple[int, ...], places: list[Place]) -> tuple[tuple[int, ...], list[Place]]:
    """Arrays of one shape with as few axes as describe them: neighbours in all are joined."""
    kept = [axis for axis, extent in enumerate(shape) if extent != 1]
    groups: list[list[int]] = []
    for axis in kept:
        joins = groups and all(
            it.strides[groups[-1][-1]] == it.strides[axis] * shape[axis] for it in places
        )
        if joins:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    extents = tuple(prod(shape[axis] for axis in group) for group in groups)
    joined = [
        Place(it.root, it.offset, extents, tuple(it.strides[g[-1]] for g in groups), it.dtype)
        for it in places
    ]
    return extents, joined
