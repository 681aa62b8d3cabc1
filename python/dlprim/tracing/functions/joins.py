"""Functions that join arrays, cut them, repeat or pad them, and take parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlprim.graph.extents import derived
from dlprim.tracing.array import FUNCTIONS, TracedArray, implements
from dlprim.tracing.functions.moves import (
    broadcast_to,
    lifted,
    moveaxis,
    of_rank,
    reshape,
    swapaxes,
)
from dlprim.tracing.functions.reductions import axes_within, shape_of
from dlprim.tracing.functions.ufuncs import copied
from dlprim.tracing.refusals import refuse, user_line
from dlprim.tracing.tracer import made, named_type, result_type, tracer_of

# ---------------------------------------------------------------- joins


@implements(np.concatenate, "concat")
def _concatenate(
    arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Any:
    arrays = list(arrays)
    if axis is None:
        arrays, axis = [np.ravel(it) for it in arrays], 0
    tracer = tracer_of(arrays)
    due = result_type(arrays)[0] if dtype is None else named_type(dtype)
    values = [tracer.value(it, due) for it in arrays]
    if any(len(it.shape) != len(values[0].shape) or not it.shape for it in values):
        listed = " and ".join(str(list(it.shape)) for it in values)
        raise ValueError(f"{user_line()}: arrays of {listed} cannot be joined along an axis")
    (place,) = axes_within(axis, len(values[0].shape))
    y = made(tracer, lambda: tracer.build.concat(values, place))
    return copied(y)


@implements(np.stack)
def _stack(
    arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Any:
    tracer = tracer_of(arrays := list(arrays))
    parts = [lifted(it, tracer) for it in arrays]
    if any(it.shape != parts[0].shape for it in parts):
        raise ValueError(f"{user_line()}: all input arrays must have the same shape")
    due = result_type(arrays)[0] if dtype is None else dtype
    return _concatenate([np.expand_dims(it, axis) for it in parts], axis, dtype=due)


def _joined(rank: int, axis: int) -> Any:
    def apply(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
        tracer = tracer_of(tup := list(tup))
        parts = [of_rank(lifted(it, tracer), rank) for it in tup]
        place = 0 if rank == 1 and parts[0].ndim == 1 else axis
        due = result_type(tup)[0] if dtype is None else dtype
        return _concatenate(parts, place, dtype=due)

    return apply


FUNCTIONS[np.vstack], FUNCTIONS[np.hstack] = _joined(2, 0), _joined(1, 1)
FUNCTIONS[np.dstack] = _joined(3, 2)


@implements(np.column_stack)
def _column_stack(tup: Any) -> Any:
    tracer = tracer_of(tup := list(tup))
    parts = [lifted(it, tracer) for it in tup]
    return _concatenate([it if it.ndim > 1 else reshape(it, (-1, 1)) for it in parts], 1)


@implements(np.append)
def _append(arr: Any, values: Any, axis: Any = None) -> Any:
    return _concatenate((arr, values), axis)


@implements(np.array_split)
def _array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    (place,) = axes_within(axis, ary.ndim)
    extent = ary.shape[place]
    if isinstance(indices_or_sections, int):
        least, more = divmod(extent, indices_or_sections)
        counts = [least + (it < more) for it in range(indices_or_sections)]
        ends = [sum(counts[: it + 1]) for it in range(indices_or_sections - 1)]
    else:
        ends = list(indices_or_sections)
    begins, lead = [0, *ends], (slice(None),) * place
    return [
        ary[(*lead, slice(begin, end))] for begin, end in zip(begins, [*ends, extent], strict=True)
    ]


@implements(np.split)
def _split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    (place,) = axes_within(axis, ary.ndim)
    if isinstance(indices_or_sections, int) and ary.shape[place] % indices_or_sections:
        raise ValueError(f"{user_line()}: array split does not result in an equal division")
    return _array_split(ary, indices_or_sections, place)


FUNCTIONS[np.vsplit] = lambda ary, parts: _split(ary, parts, 0)
FUNCTIONS[np.hsplit] = lambda ary, parts: _split(ary, parts, 1 if ary.ndim > 1 else 0)


@implements(np.tile)
def _tile(A: Any, reps: Any) -> Any:
    repeats = shape_of(reps)
    rank = max(len(repeats), A.ndim)
    repeats = (1,) * (rank - len(repeats)) + repeats
    shape = (1,) * (rank - A.ndim) + A.shape
    spread = [it for pair in zip(repeats, shape, strict=True) for it in pair]
    alone = [it for extent in shape for it in (1, extent)]
    whole = broadcast_to(reshape(A, tuple(alone)), tuple(spread))
    return copied(reshape(whole, tuple(n * r for n, r in zip(shape, repeats, strict=True))))


@implements(np.repeat)
def _repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    if isinstance(repeats, TracedArray):
        refuse("np.repeat takes a traced array for repeats", "integers")
    x, place = (np.ravel(a), 0) if axis is None else (a, axes_within(axis, a.ndim)[0])
    places = np.repeat(np.arange(x.shape[place]), repeats)
    return _take(x, places, place)


@implements(np.flip)
def _flip(m: Any, axis: Any = None) -> Any:
    axes = axes_within(axis, m.ndim)
    return m[tuple(slice(None, None, -1 if it in axes else 1) for it in range(m.ndim))]


FUNCTIONS[np.flipud], FUNCTIONS[np.fliplr] = lambda m: _flip(m, 0), lambda m: _flip(m, 1)


@implements(np.rot90)
def _rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    for _ in range(k % 4):
        m = swapaxes(_flip(m, axes[1]), *axes)
    return m


@implements(np.roll)
def _roll(a: Any, shift: Any, axis: Any = None) -> Any:
    if axis is None:
        return reshape(_roll(np.ravel(a), shift, 0), a.shape)
    for one, place in zip(
        shape_of(shift) * (1 if isinstance(shift, tuple) else len(shape_of(axis))),
        shape_of(axis),
        strict=True,
    ):
        (it,) = axes_within(place, a.ndim)
        if a.shape[it]:
            lead = (slice(None),) * it
            cut = -one % a.shape[it]
            a = _concatenate([a[(*lead, slice(cut, None))], a[(*lead, slice(0, cut))]], it)
    return a


# ---------------------------------------------------------------- parts


@implements(np.take)
def _take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    if mode != "raise":
        refuse(f"np.take is called with mode={mode!r}", "'raise'")
    tracer = tracer_of((a, indices))
    x = lifted(a, tracer)
    x, place = (np.ravel(x), 0) if axis is None else (x, axes_within(axis, x.ndim)[0])
    return x[(*(slice(None),) * place, indices)]


@implements(np.take_along_axis)
def _take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    tracer = tracer_of((arr, indices))
    x, places = lifted(arr, tracer), lifted(indices, tracer)
    if axis is None:
        x, places, axis = np.ravel(x), np.ravel(places), 0
    (place,) = axes_within(axis, x.ndim)
    shape = np.broadcast_shapes(
        *((*it.shape[:place], 1, *it.shape[place + 1 :]) for it in (x, places))
    )
    x = broadcast_to(x, (*shape[:place], x.shape[place], *shape[place + 1 :]))
    places = broadcast_to(places, (*shape[:place], places.shape[place], *shape[place + 1 :]))
    values = [x.value, tracer.cast(places.value, np.dtype(np.int64))]
    results = [(places.shape, x.dtype)]
    return made(
        tracer, lambda: tracer.build.call("gather_elements", values, results, axis=place)[0]
    )


@implements(np.diagonal)
def _diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    x = moveaxis(a, (axis1, axis2), (-2, -1))
    rows, columns = x.shape[-2:]
    first = -offset * columns if offset < 0 else offset
    count = max(0, min(rows - max(0, -offset), columns - max(0, offset)))
    flat = reshape(x, (*x.shape[:-2], rows * columns))
    last = first + (count - 1) * (columns + 1) + 1
    return flat[..., first : max(first, last) : columns + 1]


@implements(np.trace)
def _trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    return np.sum(_diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)


@implements(np.diag)
def _diag(v: Any, k: int = 0) -> Any:
    if v.ndim == 2:
        return _diagonal(v, k)
    return np.where(np.eye(len(v), dtype=bool), v[:, None], 0) if k == 0 else _refuse_diag()


def _refuse_diag() -> Any:
    refuse("np.diag makes a matrix of a traced vector beside the diagonal", "k = 0")


def _triangle_of(function: Any, rows: int, columns: int, k: int) -> Any:
    return function(np.ones((rows, columns), bool), k)


def _triangle(function: Any) -> Any:
    def apply(m: Any, k: int = 0) -> Any:
        kept = derived(_triangle_of, function, *m.shape[-2:], k)
        return np.where(kept, m, 0)

    return apply


FUNCTIONS[np.tril], FUNCTIONS[np.triu] = _triangle(np.tril), _triangle(np.triu)


@implements(np.pad)
def _pad(array: Any, pad_width: Any, mode: str = "constant", **named: Any) -> Any:
    known = {"constant", "edge", "reflect", "wrap"}
    value = named.pop("constant_values", 0)
    if mode not in known or named or isinstance(value, tuple | list):
        refuse(f"np.pad is called with mode={mode!r} or other arguments", ", ".join(sorted(known)))
    widths = np.broadcast_to(np.asarray(pad_width), (array.ndim, 2))
    if isinstance(pad_width, Sequence) and len(pad_width) == 1 and np.ndim(pad_width) == 2:
        widths = np.broadcast_to(np.asarray(pad_width[0]), (array.ndim, 2))
    listed = tuple((int(a), int(b)) for a, b in widths)
    tracer = array.tracer
    values = [array.value]
    if mode == "constant":
        values.append(tracer.value(value, array.dtype))
    return made(tracer, lambda: tracer.build.emit("pad", values, widths=listed, mode=mode)[0])
