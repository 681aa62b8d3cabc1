"""Places: parts of arrays, elements at indices, and arrays made of indices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dlprim.graph import Builder, Value
from dlprim.graph.expressions import number, operand
from dlprim.graph.extents import derived
from dlprim.graph.room import MOST_FOLDED_BYTES
from dlprim.onnx.operators.elements import require_alike
from dlprim.onnx.operators.shapes import axes_of, axis_of, numbers, one_integer, one_number
from dlprim.onnx.proto import dtype_of
from dlprim.onnx.registry import RefusedError, operator
from dlprim.onnx.strings import STRING, coded

X, Y, Z = operand(0), operand(1), operand(2)


# ---------------------------------------------------------------- parts


def _sliced(builder: Builder, x: Value, axes: Sequence[int] | None, *rows: Sequence[int]) -> Value:
    """Starts, ends and steps are as Python's for each of the axes, the first ones if not said."""
    listed = axes_of(range(len(rows[0])) if axes is None else axes, len(x.shape))
    if any(len(row) != len(listed) for row in rows):
        raise RefusedError("starts, ends, axes and steps are expected to be of one length")
    first, counts, steps = [0] * len(x.shape), list(x.shape), [1] * len(x.shape)
    for axis, start, end, step in zip(listed, *rows, strict=True):
        if step == 0:
            raise RefusedError("a step is 0, expected another number")
        first[axis], counts[axis] = taken(x.shape[axis], start, end, step)
        # How far apart fewer are means nothing, and may be 2^63.
        steps[axis] = step if counts[axis] > 1 else 1
    return builder.slice(x, first, counts, steps)


def taken(extent: int, start: int, end: int, step: int) -> tuple[int, int]:
    """The first element and how many: places below zero count from the end, and those outside of
    the array are next to it."""
    lowest, highest = (0, extent) if step > 0 else (-1, extent - 1)
    start, end = (max(lowest, min(it + extent if it < 0 else it, highest)) for it in (start, end))
    length = end - start if step > 0 else start - end
    count = max(0, -(-length // abs(step)))
    return (start if count else 0), count


@operator("Slice", since=10)
def slice_10(
    builder: Builder,
    x: Value,
    starts: Value,
    ends: Value,
    axes: Value | None = None,
    steps: Value | None = None,
) -> Value:
    listed = None if axes is None else numbers(builder, axes)
    first, last = numbers(builder, starts), numbers(builder, ends)
    by = (1,) * len(first) if steps is None else numbers(builder, steps)
    return _sliced(builder, x, listed, first, last, by)


@operator("Slice")
def slice_1(
    builder: Builder,
    x: Value,
    *,
    starts: tuple[int, ...],
    ends: tuple[int, ...],
    axes: tuple[int, ...] | None = None,
) -> Value:
    return _sliced(builder, x, axes, starts, ends, (1,) * len(starts))


def _padded(
    builder: Builder, x: Value, pads: Sequence[int], mode: str, value: Value | None
) -> Value:
    rank = len(x.shape)
    if len(pads) != 2 * rank or mode not in ("constant", "edge", "reflect", "wrap"):
        raise RefusedError(f"pads {list(pads)} of mode '{mode}' do not fit {list(x.shape)}")
    widths = tuple(zip(pads[:rank], pads[rank:], strict=True))
    least = {"edge": 1, "wrap": 1, "reflect": 2}.get(mode, 0)
    for extent, (front, back) in zip(x.shape, widths, strict=True):
        if max(front, back) > 0 and extent < least:
            raise RefusedError(f"padding of mode '{mode}' needs {least} elements, not {extent}")
    if value is None and x.dtype == STRING:
        value = builder.constant(coded(""))
    if value is not None:
        require_alike(x, value)
        if value.size != 1:
            raise RefusedError(f"the value has {value.size} elements, expected one")
    operands = [x] if value is None or mode != "constant" else [x, value]
    return builder.emit("pad", operands, widths=widths, mode=mode)[0]


@operator("Pad", since=18)
def pad(
    builder: Builder,
    x: Value,
    pads: Value,
    value: Value | None = None,
    axes: Value | None = None,
    *,
    mode: str = "constant",
) -> Value:
    given = numbers(builder, pads)
    if axes is not None:
        listed = axes_of(numbers(builder, axes), len(x.shape))
        if len(given) != 2 * len(listed):
            raise RefusedError(f"pads are {list(given)}, expected two for each of the axes")
        widths = [0] * (2 * len(x.shape))
        for place, axis in enumerate(listed):
            widths[axis] = given[place]
            widths[axis + len(x.shape)] = given[place + len(listed)]
        given = tuple(widths)
    return _padded(builder, x, given, mode, value)


@operator("Pad", since=11)
def pad_11(
    builder: Builder, x: Value, pads: Value, value: Value | None = None, *, mode: str = "constant"
) -> Value:
    return pad(builder, x, pads, value, mode=mode)


@operator("Pad", since=2)
def pad_2(
    builder: Builder,
    x: Value,
    *,
    pads: tuple[int, ...],
    mode: str = "constant",
    value: float = 0.0,
) -> Value:
    return _padded(builder, x, pads, mode, builder.constant(np.array(value).astype(x.dtype)))


@operator("CenterCropPad", since=18)
def center_crop_pad(
    builder: Builder, x: Value, shape: Value, *, axes: tuple[int, ...] | None = None
) -> Value:
    listed = axes_of(range(len(x.shape)) if axes is None else axes, len(x.shape))
    wanted = numbers(builder, shape)
    if len(wanted) != len(listed) or min(wanted, default=0) < 0:
        raise RefusedError(f"shape is {list(wanted)}, expected an extent for each of the axes")
    widths = [(0, 0)] * len(x.shape)
    for axis, extent in zip(listed, wanted, strict=True):
        more = extent - x.shape[axis]
        front = more // 2 if more >= 0 else -(-more // 2)
        widths[axis] = (front, more - front)
    return builder.emit("pad", [x], widths=tuple(widths), mode="constant")[0]


# ---------------------------------------------------------------- elements at places


def require_places(builder: Builder, places: Value, extent: int) -> None:
    """Refuses known indices outside of an axis, and those that are no integers."""
    if places.dtype.name not in ("int32", "int64"):
        raise RefusedError(f"indices are of {places.dtype}, expected int32 or int64")
    if builder.is_constant(places) and places.size:
        known = builder.array(places)
        if known.min() < -extent or known.max() >= extent:
            raise RefusedError(
                f"indices are {known.min()} to {known.max()}, expected -{extent} to {extent - 1}"
            )


@operator("Gather")
def gather(builder: Builder, x: Value, places: Value, *, axis: int = 0) -> Value:
    axis = axis_of(axis, len(x.shape))
    require_places(builder, places, x.shape[axis])
    return builder.gather(x, places, axis)


@operator("GatherElements", since=11)
def gather_elements(builder: Builder, x: Value, places: Value, *, axis: int = 0) -> Value:
    axis = axis_of(axis, len(x.shape))
    require_places(builder, places, x.shape[axis])
    fits = len(places.shape) == len(x.shape) and all(
        a <= b or place == axis
        for place, (a, b) in enumerate(zip(places.shape, x.shape, strict=True))
    )
    if not fits:
        raise RefusedError(f"indices of {list(places.shape)} do not fit {list(x.shape)}")
    result = (places.shape, x.dtype)
    return builder.call("gather_elements", [x, places], [result], axis=axis)[0]


@operator("GatherND", since=11)
def gather_nd(builder: Builder, x: Value, places: Value, *, batch_dims: int = 0) -> Value:
    rank, b = len(x.shape), batch_dims
    depth = places.shape[-1] if places.shape else 0
    if not 0 <= b < len(places.shape) or b + depth > rank or x.shape[:b] != places.shape[:b]:
        raise RefusedError(f"indices of {list(places.shape)} do not fit {list(x.shape)}")
    shape = places.shape[:-1] + x.shape[b + depth :]
    return builder.call("gather_nd", [x, places], [(shape, x.dtype)], batch_dims=b)[0]


_SCATTERS = ("none", "add", "mul", "max", "min")


@operator("ScatterElements", since=16)
def scatter_elements(
    builder: Builder,
    x: Value,
    places: Value,
    updates: Value,
    *,
    axis: int = 0,
    reduction: str = "none",
) -> Value:
    require_alike(x, updates)
    axis = axis_of(axis, len(x.shape))
    require_places(builder, places, x.shape[axis])
    fits = places.shape == updates.shape and len(places.shape) == len(x.shape)
    if not fits or reduction not in _SCATTERS:
        raise RefusedError(
            f"indices of {list(places.shape)}, updates of {list(updates.shape)} and reduction "
            f"'{reduction}' do not fit {list(x.shape)}"
        )
    return builder.call(
        "scatter_elements", [x, places, updates], [(x.shape, x.dtype)], axis=axis, how=reduction
    )[0]


@operator("ScatterElements", since=11)
@operator("Scatter", since=9)
def scatter_elements_11(
    builder: Builder, x: Value, places: Value, updates: Value, *, axis: int = 0
) -> Value:
    return scatter_elements(builder, x, places, updates, axis=axis)


@operator("ScatterND", since=16)
def scatter_nd(
    builder: Builder, x: Value, places: Value, updates: Value, *, reduction: str = "none"
) -> Value:
    require_alike(x, updates)
    depth = places.shape[-1] if places.shape else 0
    fits = places.shape and depth <= len(x.shape)
    fits = fits and updates.shape == places.shape[:-1] + x.shape[depth:]
    if not fits or reduction not in _SCATTERS:
        raise RefusedError(
            f"indices of {list(places.shape)}, updates of {list(updates.shape)} and reduction "
            f"'{reduction}' do not fit {list(x.shape)}"
        )
    return builder.call("scatter_nd", [x, places, updates], [(x.shape, x.dtype)], how=reduction)[0]


@operator("ScatterND", since=11)
def scatter_nd_11(builder: Builder, x: Value, places: Value, updates: Value) -> Value:
    return scatter_nd(builder, x, places, updates)


@operator("ReverseSequence", since=10)
def reverse_sequence(
    builder: Builder, x: Value, lengths: Value, *, batch_axis: int = 1, time_axis: int = 0
) -> Value:
    rank = len(x.shape)
    if rank < 2 or {batch_axis, time_axis} != {0, 1} or lengths.shape != (x.shape[batch_axis],):
        raise RefusedError(f"axes {batch_axis} and {time_axis} do not fit {list(x.shape)}")
    extents = x.shape[:2]
    step = line(builder, extents[time_axis], time_axis, 2)
    ends = [1, 1]
    ends[batch_axis] = extents[batch_axis]
    length = builder.reshape(lengths, ends)
    extent = number(extents[time_axis])
    is_inside = ("and", ("greater_equal", Y, number(0)), ("less_equal", Y, extent))
    turned = ("where", ("less", X, Y), ("subtract", ("subtract", Y, number(1)), X), X)
    place = builder.map(("where", is_inside, turned, extent), step, length, dtype=np.int64)
    parts = [builder.reshape(place, (*extents, 1))]
    if batch_axis:
        sample = builder.expand(line(builder, extents[1], 1, 2), extents)
        parts.append(builder.reshape(sample, (*extents, 1)))
    places = builder.concat(parts, 2)
    batch = 1 - batch_axis
    return builder.call("gather_nd", [x, places], [(x.shape, x.dtype)], batch_dims=batch)[0]


# ---------------------------------------------------------------- arrays of indices


def line(builder: Builder, count: int, axis: int, rank: int) -> Value:
    """0, 1, ... along an axis, of extent 1 along the others."""
    shape = [1] * rank
    shape[axis] = count
    require_small(count, np.dtype(np.int64))
    return builder.constant(derived(np.arange, count).reshape(shape))


def require_small(count: int, dtype: np.dtype[np.generic]) -> None:
    """Refuses what is made while a graph is, and would take much memory."""
    if count * dtype.itemsize > MOST_FOLDED_BYTES:
        raise RefusedError(f"the result has {count} elements, expected at most 64 MiB")


@operator("EyeLike", since=9)
def eye_like(builder: Builder, x: Value, *, dtype: int | None = None, k: int = 0) -> Value:
    if len(x.shape) != 2:
        raise RefusedError(f"x has shape {list(x.shape)}, expected two axes")
    rows, columns = line(builder, x.shape[0], 0, 2), line(builder, x.shape[1], 1, 2)
    wanted = x.dtype if dtype is None else dtype_of(dtype)
    return builder.map(("equal", ("subtract", Y, X), number(k)), rows, columns, dtype=wanted)


@operator("Trilu", since=14)
def trilu(builder: Builder, x: Value, k: Value | None = None, *, upper: int = 1) -> Value:
    if len(x.shape) < 2:
        raise RefusedError(f"x has shape {list(x.shape)}, expected matrices")
    diagonal = 0 if k is None else one_integer(builder, k)
    rows, columns = line(builder, x.shape[-2], 0, 2), line(builder, x.shape[-1], 1, 2)
    compared = "greater_equal" if upper else "less_equal"
    expression = (compared, ("subtract", Y, X), number(diagonal))
    mask = builder.map(expression, rows, columns, dtype=bool)
    return builder.map(("where", Y, X, number(0)), x, mask)


@operator("OneHot", since=9)
def one_hot(
    builder: Builder, places: Value, depth: Value, values: Value, *, axis: int = -1
) -> Value:
    """Places, cut to whole numbers, below zero count from the end; outside, all is off."""
    given = one_number(builder, depth)
    count = derived(_whole, given)
    if count < 1 or values.shape != (2,):
        raise RefusedError(f"depth is {count} and values are {values!r}, expected 1 or more and 2")
    rank = len(places.shape) + 1
    axis = axis_of(axis, rank)
    places = builder.cast(places, np.int64)
    wide = builder.reshape(places, (*places.shape[:axis], 1, *places.shape[axis:]))
    order = line(builder, count, axis, rank)
    off, on = (builder.slice(values, [place], [1], [1]) for place in (0, 1))
    below = ("equal", ("add", Y, number(count)), X)
    hit = builder.map(("or", ("equal", Y, X), below), order, wide, dtype=bool)
    return builder.map(("where", X, Y, Z), hit, on, off, dtype=values.dtype)


def _whole(number: float) -> int:
    return int(number) if math.isfinite(number) else 0
