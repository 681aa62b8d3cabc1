"""Functions for `call` nodes: elements at places that arrays say, and places of elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.operators.elements import converted
from dlprim.graph.operators.operator import (
    Arrays,
    Attributes,
    Values,
    as_written,
    callee,
    there,
    widened,
)

if TYPE_CHECKING:
    from dlprim.graph.builder import Builder


def _from_front(places: Array, extent: int) -> Array:
    """Indices that count from the front; those outside are an IndexError."""
    if places.size and (places.min() < -extent or places.max() >= extent):
        raise IndexError(f"indices are {places.min()} to {places.max()}, expected inside {extent}")
    return np.where(places < 0, places + extent, places)


def _grid(shape: tuple[int, ...]) -> list[Array]:
    return list(np.indices(shape, sparse=True))


# ---------------------------------------------------------------- gradients


def alike(b: Builder, function: str, like: Value, inputs: Values, **attributes: Any) -> Value:
    """A call whose result is like a value."""
    return b.call(function, inputs, [(like.shape, like.dtype)], **attributes)[0]


def put_along(b: Builder, diff: Value, places: Value, axis: int, like: Value) -> Value:
    """Zeros in the shape of a value, to which elements are added at places along an axis."""
    extent = like.shape[axis]
    if diff.shape == (*like.shape[:axis], 1, *like.shape[axis + 1 :]) and extent <= _MOST_EXACT:
        return _put_one(b, diff, places, axis, extent)
    inputs = [b.map(number(0.0), like), places, diff]
    return alike(b, "scatter_elements", like, inputs, axis=axis, how="add")


# Up to which float32 has all integers.
_MOST_EXACT = 1 << 24


def _put_one(b: Builder, diff: Value, places: Value, axis: int, extent: int) -> Value:
    """One for each row: a map, which whatever reads the result can be a part of."""
    from_end: Expression = ("less", operand(0), number(0.0))
    inside: Expression = ("where", from_end, ("add", operand(0), number(extent)), operand(0))
    own = b.map(inside, b.cast(places, np.float32))
    along = [extent if it == axis else 1 for it in range(len(diff.shape))]
    every = b.constant(np.arange(extent, dtype=np.float32).reshape(along), "places")
    chosen: Expression = ("where", ("equal", operand(1), operand(2)), operand(0), number(0.0))
    return b.map(chosen, diff, own, every)


def _gather_elements_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    x, places = node.operands
    return [put_along(b, there(diffs[0]), places, node.attributes["axis"], x), None]


def _gather_nd_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    """The axes of batches become places like others."""
    x, places = node.operands
    batch = places.shape[: node.attributes["batch_dims"]]
    if batch:
        shape = (*places.shape[:-1], len(batch))
        inner = (1,) * (len(places.shape) - 1 - len(batch))
        grid = [it.reshape(*it.shape, *inner) for it in _grid(batch)]
        own = np.stack([np.broadcast_to(it, shape[:-1]) for it in grid], axis=-1)
        places = b.concat([b.constant(own.astype(places.dtype)), places], len(shape) - 1)
    inputs = [b.zeros(x.shape, x.dtype), places, diffs[0]]
    return [alike(b, "scatter_nd", x, inputs, how="add"), None]


def _scatter_elements_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    return _written(b, node, there(diffs[0]), ("scatter_elements", "gather_elements"), {})


def _scatter_nd_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    taken = {"batch_dims": 0}
    return _written(b, node, there(diffs[0]), ("scatter_nd", "gather_nd"), taken)


def _written(
    b: Builder, node: Node, diff: Value, names: tuple[str, str], taken: dict[str, Any]
) -> list[Value | None]:
    """What was written over gets nothing, and of what was written in one place the last gets it."""
    x, places, updates = node.operands
    scatter, gather = names
    how = {name: it for name, it in node.attributes.items() if name == "axis"}
    by_updates = alike(b, gather, updates, [diff, places], **how, **taken)
    if node.attributes["how"] == "add":
        return [diff, None, by_updates]
    if node.attributes["how"] != "none":
        raise ValueError(f"{scatter} has no gradient where how is {node.attributes['how']!r}")
    by_x = alike(b, scatter, x, [diff, places, b.zeros(updates.shape, x.dtype)], **how, how="none")
    numbers = b.constant(np.arange(updates.size).reshape(updates.shape), "numbers")
    base = b.zeros(x.shape, np.int64)
    last = alike(b, scatter, base, [base, places, numbers], **how, how="none")
    seen = alike(b, gather, numbers, [last, places], **how, **taken)
    chosen: Expression = ("where", ("equal", operand(1), operand(2)), operand(0), number(0.0))
    return [by_x, None, b.map(chosen, by_updates, seen, numbers)]


def _top_k_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    (x,) = node.operands
    if diffs[0] is None:
        return [None]
    return [put_along(b, diffs[0], node.outputs[1], node.attributes["axis"], x)]


# ---------------------------------------------------------------- functions


@callee("gather_elements", _gather_elements_gradient)
def gather_elements(arrays: Arrays, attributes: Attributes) -> list[Any]:
    x, places = arrays
    axis = attributes["axis"]
    index = _grid(places.shape)
    index[axis] = _from_front(places, x.shape[axis])
    return [x[tuple(index)]]


@callee("gather_nd", _gather_nd_gradient)
def gather_nd(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Indices in the last axis of places; the first ``batch_dims`` axes go with those of x."""
    x, places = arrays
    b, depth = attributes["batch_dims"], places.shape[-1]
    batch = [it.reshape(it.shape + (1,) * (places.ndim - 1 - b)) for it in _grid(places.shape[:b])]
    index = [_from_front(places[..., i], x.shape[b + i]) for i in range(depth)]
    if not batch and not index:
        return [np.broadcast_to(x, places.shape[:-1] + x.shape).copy()]
    return [x[(*batch, *index)]]


_SCATTERS: dict[str, Callable[..., Any]] = {
    "add": np.add.at,
    "mul": np.multiply.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
}


def _scattered(x: Array, index: Any, updates: Array, how: str) -> list[Any]:
    y = x.copy()
    if how == "none":
        y[index] = updates
    else:
        _SCATTERS[how](y, index, updates)
    return [y]


@callee("scatter_elements", _scatter_elements_gradient)
def scatter_elements(arrays: Arrays, attributes: Attributes) -> list[Any]:
    x, places, updates = arrays
    axis = attributes["axis"]
    index = _grid(places.shape)
    index[axis] = _from_front(places, x.shape[axis])
    return _scattered(x, tuple(index), updates, attributes["how"])


@callee("scatter_nd", _scatter_nd_gradient)
def scatter_nd(arrays: Arrays, attributes: Attributes) -> list[Any]:
    x, places, updates = arrays
    index = tuple(_from_front(places[..., i], x.shape[i]) for i in range(places.shape[-1]))
    return _scattered(x, index or (...,), updates, attributes["how"])


def _weighted_rows_written(b: Builder, node: Node) -> list[Value | None]:
    """Elements read at each tap, times its weight."""
    rows, *pairs = node.operands
    total: Value | None = None
    for taps in _taps_of(pairs, node.attributes["taps"]):
        own: list[Value] = []
        index: list[Value] = []
        inside: list[Value] = []
        share: Expression = number(1.0)
        is_read: Expression = number(1.0)
        for axis, (place, weight) in enumerate(taps):
            extent = rows.shape[1 + axis]
            ends = ("greater", operand(0), number(-1.0)), ("less", operand(0), number(extent))
            is_there: Expression = ("and", *ends)
            line = b.map(("where", is_there, operand(0), number(0.0)), place)
            index.append(b.cast(line, np.int64))
            inside.append(b.map(("where", is_there, number(1.0), number(0.0)), place))
            own.append(b.map(("where", is_there, operand(1), number(0.0)), place, weight))
            share = ("multiply", share, operand(1 + axis))
            is_read = ("multiply", is_read, operand(1 + len(taps) + axis))
        at = b.concat(index, 2)
        read = b.call("gather_nd", [rows, at], [(node.output.shape, rows.dtype)], batch_dims=1)
        is_read = ("greater", is_read, number(0.0))
        # Selected in front of the product, whose gradient is a product with what is read, too.
        seen: Expression = ("where", ("greater", is_read, number(0.0)), operand(0), number(0.0))
        part = b.map(("multiply", seen, share), *read, *own, *inside)
        total = part if total is None else b.map(("add", operand(0), operand(1)), total, part)
    return [total]


def _taps_of(pairs: Sequence[Any], taps: int) -> Iterator[tuple[tuple[Any, Any], ...]]:
    """A place and a weight of each axis, for one choice of a tap of each after the other."""
    each = list(zip(pairs[::2], pairs[1::2], strict=True))
    return product(*(each[at : at + taps] for at in range(0, len(each), taps)))


@callee("weighted_rows", as_written(_weighted_rows_written))
def weighted_rows(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Sums of rows x (N, extents.., C) at places of each axis, with weights; none from outside."""
    x, *pairs = arrays
    made = np.zeros(attributes["results"][0][0], x.dtype)
    for taps in _taps_of(pairs, attributes["taps"]):
        share: Any = 1
        is_there: Any = True
        index = [np.arange(x.shape[0])[:, None]]
        for (place, weight), extent in zip(taps, x.shape[1:-1], strict=True):
            inside = (place > -1) & (place < extent)
            share, is_there = share * weight, is_there & inside
            index.append(np.where(inside, place, 0).astype(np.int64)[..., 0])
        made += np.where(is_there, x[tuple(index)] * share, 0)
    return [made]


def _place(compute: Callable[..., Any]) -> Callable[[Arrays, Attributes], list[Any]]:
    def placed(arrays: Arrays, attributes: Attributes) -> list[Any]:
        """The first place, or with ``last`` the last one, in the shape that is asked for."""
        x, axis = arrays[0], attributes["axis"]
        shape = attributes["results"][0][0]
        if attributes["last"]:
            found = x.shape[axis] - 1 - compute(np.flip(x, axis), axis=axis)
        else:
            found = compute(x, axis=axis)
        return [np.asarray(found, np.int64).reshape(shape)]

    return placed


_PLACES = "places are integers"
callee("argmax", _PLACES)(_place(np.argmax))
callee("argmin", _PLACES)(_place(np.argmin))


@callee("top_k", _top_k_gradient)
def top_k(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """The greatest or least, sorted, of equal ones the first; and where they are."""
    x, axis, k = arrays[0], attributes["axis"], attributes["k"]
    keys = widened(x)
    if attributes["largest"]:
        order = np.flip(np.argsort(np.flip(keys, axis), axis=axis, kind="stable"), axis)
        order = x.shape[axis] - 1 - order
    else:
        order = np.argsort(keys, axis=axis, kind="stable")
    places = np.take(order, np.arange(k), axis=axis).astype(np.int64)
    return [np.take_along_axis(x, places, axis=axis), places]


@callee("bit_cast", "it computes with bits, not with numbers")
def bit_cast(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """The same bits as elements of another type."""
    x = np.ascontiguousarray(arrays[0])
    return [x.view(np.dtype(attributes["dtype"])).reshape(arrays[0].shape)]


@callee("narrow", "floats of 8 bits, which go in steps, stand for its numbers")
def narrow(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """To floats of up to 8 bits; with ``saturate``, what is too large becomes the greatest."""
    dtype = np.dtype(attributes["dtype"])
    x = arrays[0].astype(np.float32)
    if dtype.name == "float8_e8m0fnu":
        return [_powers(x, attributes["saturate"], attributes["mode"]).view(dtype)]
    if attributes["saturate"]:
        import ml_dtypes  # which those that use nothing of it may have removed

        highest = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
        x = np.where(np.isnan(x), x, np.clip(x, -highest, highest))
    return [converted(x, dtype)]


def _powers(x: Array, saturate: bool, mode: str) -> Array:
    """Exponents of powers of two, plus 127; 255 is no number. Half way is up in any mode."""
    part, exponent = np.frexp(np.abs(x))
    least = {"up": 0.5, "down": 1.0, "nearest": 0.75}[mode]
    power = exponent - 1 + (part >= least if mode == "nearest" else part > least)
    power = np.where(x == 0, 0, power + 127)
    if saturate:
        power = np.minimum(power, 254)
    return np.where(np.isfinite(x), np.clip(power, 0, 255), 255).astype(np.uint8)
