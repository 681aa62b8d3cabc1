"""Parts of arrays that lie one after the other along an axis."""

from __future__ import annotations

from collections.abc import Sequence

from dlprim.graph.builder import Builder
from dlprim.graph.graph import Value


def part_of(build: Builder, x: Value, axis: int, start: int, count: int) -> Value:
    """Elements from ``start`` along an axis."""
    starts, counts = [0] * len(x.shape), list(x.shape)
    starts[axis], counts[axis] = start, count
    return build.slice(x, starts, counts, [1] * len(x.shape))


def parts_of(build: Builder, x: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
    """What lies one after the other along an axis."""
    places = [sum(sizes[:at]) for at in range(len(sizes))]
    return [part_of(build, x, axis, at, n) for at, n in zip(places, sizes, strict=True)]
