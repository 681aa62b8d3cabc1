"""Results whose shapes follow from elements: of known ones in a graph, of arrays in a run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dlprim import _core
from dlprim.graph import Builder, Value
from dlprim.graph.extents import derived
from dlprim.graph.graph import Array
from dlprim.graph.operators.elements import broadcast_shape
from dlprim.graph.room import require_room
from dlprim.onnx.operators.elements import require_alike
from dlprim.onnx.operators.places import require_places, require_small
from dlprim.onnx.operators.shapes import axes_of, axis_of, filled_shape, one_number
from dlprim.onnx.registry import Call, RefusedError, operator

# ---------------------------------------------------------------- places of elements


def _non_zero(x: Array) -> Array:
    return _core.nonzero_places(x if x.dtype.kind in "biuf" else x != 0)


@operator("NonZero", since=9)
def non_zero(builder: Builder, x: Value) -> Value:
    return builder.constant(derived(_non_zero, builder.array(x)))


@operator("NonZero", since=9, on_values=True)
def non_zero_of_array(call: Call, x: Array) -> Array:
    return _non_zero(x)


@operator("Compress", since=9)
def compress(builder: Builder, x: Value, condition: Value, *, axis: int | None = None) -> Value:
    kept = derived(np.flatnonzero, builder.array(condition))
    if axis is None:
        x, axis = builder.reshape(x, (x.size,)), 0
    places = builder.constant(kept)
    require_places(builder, places, x.shape[axis_of(axis, len(x.shape))])
    return builder.gather(x, places, axis_of(axis, len(x.shape)))


@operator("Compress", since=9, on_values=True)
def compress_of_array(call: Call, x: Array, condition: Array, *, axis: int | None = None) -> Array:
    place = None if axis is None else axis_of(axis, x.ndim)
    try:
        return x.compress(condition.reshape(-1), place)
    except IndexError:
        extent, last = x.size if place is None else x.shape[place], np.flatnonzero(condition)[-1]
        raise RefusedError(f"element {last} is asked for, expected places below {extent}") from None


def _unique(array: Array, axis: int | None, is_sorted: int) -> tuple[Array, ...]:
    place = None if axis is None else axis_of(axis, array.ndim)
    found, first, inverse, counts = np.unique(array, True, True, True, axis=place)
    if not is_sorted:
        order = np.argsort(first, kind="stable")
        found = np.take(found, order, axis=place or 0)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return found, *(it.reshape(-1).astype(np.int64) for it in (first, inverse, counts))


@operator("Unique", since=11)
def unique(
    builder: Builder, x: Value, *, axis: int | None = None, sorted: int = 1
) -> tuple[Value, ...]:
    return tuple(map(builder.constant, derived(_unique, builder.array(x), axis, sorted)))


@operator("Unique", since=11, on_values=True)
def unique_of_array(
    call: Call, x: Array, *, axis: int | None = None, sorted: int = 1
) -> tuple[Array, ...]:
    return _unique(x, axis, sorted)


# ---------------------------------------------------------------- ranges


def _count(first: Any, last: Any, step: Any, is_whole: bool) -> int:
    if step == 0 or not all(map(math.isfinite, (first, last, step))):
        raise RefusedError(f"{first} to {last} by {step}, expected finite numbers, not 0 the last")
    # Of integers that no float holds, too.
    span = -((first - last) // step) if is_whole else (last - first) / step
    count: int = math.ceil(min(span, 1 << 62))
    return max(0, count)


def _range(first: Any, step: Any, count: int, dtype: np.dtype[Any]) -> Array:
    line: Array = np.arange(count, dtype=np.int64)
    if dtype.kind in "iu":  # what wraps around on the way wraps back
        line = line.astype(dtype, copy=False)
        line *= dtype.type(step)
        line += dtype.type(first)
        return line
    with np.errstate(all="ignore"):  # as networks compute
        numbers: Array = np.float64(first) + line * np.float64(step)
        return numbers.astype(dtype)


@operator("Range", since=27)
def range_27(
    builder: Builder, start: Value, limit: Value, delta: Value, *, stash_type: int = 1
) -> Value:
    require_alike(start, limit, delta)
    first, last, step = (one_number(builder, it) for it in (start, limit, delta))
    count = derived(_count, first, last, step, start.dtype.kind in "iu")
    require_small(count, start.dtype)
    return builder.constant(derived(_range, first, step, count, start.dtype))


@operator("Range", since=11)
def range_11(builder: Builder, start: Value, limit: Value, delta: Value) -> Value:
    return range_27(builder, start, limit, delta)


@operator("Range", since=27, on_values=True)
def range_of_arrays(
    call: Call, start: Array, limit: Array, delta: Array, *, stash_type: int = 1
) -> Array:
    if not start.size == limit.size == delta.size == 1 or len({start.dtype, limit.dtype}) > 1:
        raise RefusedError("start, limit and delta are expected to be numbers of one dtype")
    first, last, step = start.item(), limit.item(), delta.item()
    count = _count(first, last, step, start.dtype.kind in "iu")
    require_room("the result", count * start.itemsize, call.max_bytes)
    return _range(first, step, count, start.dtype)


@operator("Range", since=11, on_values=True)
def range_of_arrays_11(call: Call, start: Array, limit: Array, delta: Array) -> Array:
    return range_of_arrays(call, start, limit, delta)


# ---------------------------------------------------------------- parts, and other shapes


def _integers(array: Any) -> list[int]:
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iu" or array.ndim > 1:
        raise RefusedError("shapes and places are expected to be lists of integers")
    listed: list[int] = array.reshape(-1).tolist()
    return listed


@operator("Slice", since=10, on_values=True)
def slice_of_array(
    call: Call,
    x: Array,
    starts: Array,
    ends: Array,
    axes: Array | None = None,
    steps: Array | None = None,
) -> Array:
    first, last = _integers(starts), _integers(ends)
    by = [1] * len(first) if steps is None else _integers(steps)
    listed = axes_of(range(len(first)) if axes is None else _integers(axes), x.ndim)
    if not len(listed) == len(first) == len(last) == len(by):
        raise RefusedError("starts, ends, axes and steps are expected to be of one length")
    index = [slice(None)] * x.ndim
    for axis, start, end, step in zip(listed, first, last, by, strict=True):
        if step == 0:
            raise RefusedError("a step is 0, expected another number")
        most = x.shape[axis] + 1  # above which all steps take the first element alone
        index[axis] = slice(start, end, max(-most, min(step, most)))
    return _whole(x[tuple(index)])


@operator("Reshape", since=5, on_values=True)
def reshape_of_array(call: Call, x: Array, shape: Array, *, allowzero: int = 0) -> Array:
    wanted = filled_shape(x.shape, _integers(shape), allowzero)
    if math.prod(wanted) != x.size:
        raise RefusedError(f"shape is {list(wanted)}, expected one of {x.size} elements")
    return x.reshape(wanted)


@operator("Expand", since=8, on_values=True)
def expand_of_array(call: Call, x: Array, shape: Array) -> Array:
    wanted = broadcast_shape(x.shape, _extents(shape))
    require_room("the result", math.prod(wanted) * x.itemsize, call.max_bytes)
    return _whole(np.broadcast_to(x, wanted))


@operator("ConstantOfShape", since=9, on_values=True)
def constant_of_shape_of_array(call: Call, shape: Array, *, value: Array | None = None) -> Array:
    array = np.zeros(1, np.float32) if value is None else value
    if array.size != 1:
        raise RefusedError(f"value has {array.size} elements, expected one")
    wanted = _extents(shape)
    require_room("the result", math.prod(wanted) * array.itemsize, call.max_bytes)
    return np.full(wanted, array.reshape(()), array.dtype)


def _extents(shape: Array) -> tuple[int, ...]:
    wanted = _integers(shape)
    if min(wanted, default=0) < 0:
        raise RefusedError(f"shape is {wanted}, expected extents")
    return tuple(wanted)


def _whole(view: Array) -> Array:
    return np.ascontiguousarray(view) if view.ndim else view
