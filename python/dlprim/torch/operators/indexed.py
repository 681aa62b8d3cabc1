"""Elements at places that arrays say: rows of tables, and one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dlprim.graph.graph import Value
from dlprim.graph.operators.indexed import alike
from dlprim.torch.operators.elements import where
from dlprim.torch.operators.table import FLOAT32, Call, axis_of, require, rule


@rule("aten.arange.start_step")
def arange(c: Call, start: float, end: float, step: float = 1, **_: Any) -> Value:
    return c.b.constant(np.arange(start, end, step).astype(c.dtype), "arange")


@rule("aten.embedding.default")
def embedding(c: Call, table: Value, places: Value, *_: Any) -> Value:
    return c.b.gather(table, places, 0)


@rule("aten.index_select.default")
def index_select(c: Call, x: Value, axis: int, places: Value) -> Value:
    require(len(places.shape) == 1, "places have not one axis")
    return c.b.gather(x, places, axis_of(axis, len(x.shape)))


@rule("aten.embedding_dense_backward.default")
def embedding_backward(
    c: Call, diff: Value, places: Value, count: int, padding: int, by_frequency: bool
) -> Value:
    require(not by_frequency, "gradients are scaled by frequency")
    if padding >= 0:
        own = c.b.cast(c.b.reshape(places, (*places.shape, 1)), np.float32)
        kept = ("where", ("equal", ("input", 1), ("number", float(padding))), ("number", 0.0))
        diff = c.b.map((*kept, ("input", 0)), diff, own)
    table = Value("table", (count, *diff.shape[len(places.shape) :]), diff.dtype)
    return c.through("aten.embedding.default", diff, table, places)


# ---------------------------------------------------------------- places along several axes


class _Places(NamedTuple):
    """Which axes of x have places, in front of which of its other axes those of places stand."""

    axes: tuple[int, ...]
    given: tuple[Value, ...]
    front: int

    def order(self, rank: int) -> list[int]:
        """The axes of x, those with places first."""
        return [*self.axes, *(it for it in range(rank) if it not in self.axes)]

    def joined(self, c: Call) -> Value:
        """Places (..., axes)."""
        shape = np.broadcast_shapes(*(it.shape for it in self.given))
        wide = [
            c.b.cast(c.b.expand(_ranked(c, it, len(shape)), shape), np.int64) for it in self.given
        ]
        return c.b.concat([c.b.reshape(it, (*shape, 1)) for it in wide], len(shape))

    def moved(self, rank: int, count: int) -> list[int]:
        """The axes of a result whose places come first, where they are to stand."""
        before = range(count, count + self.front)
        return [*before, *range(count), *range(count + self.front, rank)]


def _ranked(c: Call, x: Value, rank: int) -> Value:
    return c.b.reshape(x, (*[1] * (rank - len(x.shape)), *x.shape))


def _said(places: Sequence[Value | None]) -> _Places:
    said = [(axis, it) for axis, it in enumerate(places) if it is not None]
    require(all(it.dtype.kind == "i" for _, it in said), "places are a mask")
    axes, given = zip(*said, strict=True)
    is_row = axes == tuple(range(axes[0], axes[0] + len(axes)))
    return _Places(axes, given, axes[0] if is_row else 0)


def _grid(said: _Places) -> list[tuple[int, Value]]:
    """Axes and places one by one, where those of two axes are rows and columns of pixels."""
    if len(said.axes) == 1:
        return list(zip(said.axes, said.given, strict=True))
    if len(said.axes) != 2 or said.axes[0] + 1 != said.axes[1]:
        return []
    rows, columns = said.given
    is_grid = len(rows.shape) == 2 and rows.shape[1] == 1 and rows.size != 1 != columns.size
    are_pixels = is_grid and columns.size == columns.shape[-1]
    return list(zip(said.axes, said.given, strict=True)) if are_pixels else []


@rule("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(c: Call, x: Value, places: Sequence[Value | None]) -> Value:
    said = _said(places)
    grid = _grid(said)
    for axis, of in grid:
        x = c.b.gather(x, of if len(grid) == 1 else c.b.reshape(of, (of.size,)), axis)
    if grid:
        return x
    own, by_place = said.joined(c), c.b.transpose(x, said.order(len(x.shape)))
    shape = (*own.shape[:-1], *by_place.shape[len(said.axes) :])
    (found,) = c.b.call("gather_nd", [by_place, own], [(shape, x.dtype)], batch_dims=0)
    return c.b.transpose(found, said.moved(len(shape), len(own.shape) - 1))


@rule("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    c: Call,
    x: Value,
    places: Sequence[Value | None],
    values: Value,
    accumulate: bool = False,
) -> Value:
    """Values in the place of elements, or added to them, as gradients of `index` are."""
    (first, *others) = places
    if first is not None and first.dtype == np.bool_ and not others and values.size == 1:
        require(not accumulate, "it adds by a mask")
        mask = c.b.reshape(first, (*first.shape, *[1] * (len(x.shape) - len(first.shape))))
        return where(c, mask, c.b.reshape(values, ()), x)
    if not accumulate:
        return _put(c, x, _said(places), values)
    require(x.dtype.kind not in "biu", "integers are added")
    sums = c.through("aten.index.Tensor", values, Value("x", x.shape, FLOAT32), places)
    is_zero = c.b.is_constant(x) and not c.b.array(x).any()
    return sums if is_zero else c.map(("add", ("input", 0), ("input", 1)), x, sums)


def _put(c: Call, x: Value, said: _Places, values: Value) -> Value:
    own, order = said.joined(c), said.order(len(x.shape))
    by_place = c.b.transpose(x, order)
    shape = (*own.shape[:-1], *by_place.shape[len(said.axes) :])
    moved = said.moved(len(shape), len(own.shape) - 1)
    seen = c.b.expand(c.cast(values), [shape[it] for it in moved])
    updates = c.b.transpose(seen, [moved.index(it) for it in range(len(moved))])
    found = alike(c.b, "scatter_nd", by_place, [by_place, own, updates], how="none")
    return c.b.transpose(found, [order.index(it) for it in range(len(order))])


# ---------------------------------------------------------------- places along one axis


@rule("aten.gather.default")
def gather(c: Call, x: Value, axis: int, places: Value, **_: Any) -> Value:
    require(bool(x.shape and places.shape), "it has no axes")
    how = {"axis": axis_of(axis, len(x.shape))}
    return c.b.call("gather_elements", [x, places], [(places.shape, x.dtype)], **how)[0]


def _scattered(how: str) -> Any:
    def scattered(c: Call, x: Value, axis: int, places: Value, given: Any) -> Value:
        require(bool(x.shape and places.shape), "it has no axes")
        wide = FLOAT32 if how == "add" and c.dtype.kind not in "biu" else c.dtype
        if isinstance(given, Value):
            given = c.b.slice(given, [0] * len(places.shape), places.shape, [1] * len(places.shape))
            updates = c.b.cast(given, wide)
        else:
            updates = c.b.constant(np.full(places.shape, given).astype(wide), "number")
        old = c.b.cast(x, wide)
        form = {"axis": axis_of(axis, len(x.shape)), "how": how}
        return c.cast(alike(c.b, "scatter_elements", old, [old, places, updates], **form))

    return scattered


rule("aten.scatter_add.default")(_scattered("add"))
rule("aten.scatter.src", "aten.scatter.value")(_scattered("none"))


def _place(function: str) -> Any:
    def place(c: Call, x: Value, axis: int | None = None, keepdim: bool = False) -> Value:
        require(bool(x.size), "there are no elements")
        rank = len(x.shape)
        gone = set(range(rank)) if axis is None else {axis_of(axis, rank)}
        shape = [
            1 if at in gone else n for at, n in enumerate(x.shape) if keepdim or at not in gone
        ]
        wide, along = (c.b.reshape(x, (x.size,)), 0) if axis is None else (x, gone.pop())
        return c.b.call(function, [wide], [(tuple(shape), np.int64)], axis=along, last=False)[0]

    return place


for _name in ("argmax", "argmin"):
    rule(f"aten.{_name}.default")(_place(_name))
