"""``x[key]``: NumPy's rules for integers, slices, new axes, places in arrays and masks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from dlprim.graph.extents import Extent, derived
from dlprim.tracing.array import TracedArray
from dlprim.tracing.refusals import refuse, user_line
from dlprim.tracing.tracer import made

_INT = np.dtype(np.int64)


def indexed(x: Any, key: Any) -> Any:
    """The elements that a key says."""
    items = _spread(x, key if isinstance(key, tuple) else (key,))
    if any(_is_places(it) for it in items):
        return _taken(x, items)
    y = _sliced(x, items)
    x.is_shared = y.is_shared = True
    return y


def _is_places(item: Any) -> bool:
    return isinstance(item, np.ndarray | TracedArray)


def _spread(x: Any, key: tuple[Any, ...]) -> list[Any]:
    """An item for each axis, and None for new ones; masks as places."""
    items: list[Any] = []
    lengths: dict[int, int] = {}  # of the axes of masks, by identity of their places
    for it in key:
        if it is None or it is Ellipsis or isinstance(it, slice):
            items.append(it)
        elif isinstance(it, TracedArray):
            items.append(_traced_places(it))
        else:
            places = _known_places(it)
            if _is_mask(it):
                lengths.update(zip(map(id, places), np.shape(it), strict=True))
            items.extend(places)
    if sum(it is Ellipsis for it in items) > 1:
        raise IndexError(f"{user_line()}: an index can only have a single ellipsis ('...')")
    missing = x.ndim - sum(it is not None and it is not Ellipsis for it in items)
    if missing < 0:
        raise IndexError(f"{user_line()}: too many indices for an array of {list(x.shape)}")
    place = next((at for at, it in enumerate(items) if it is Ellipsis), None)
    rest = [slice(None)] * missing
    if place is None:
        items.extend(rest)
    else:
        items[place : place + 1] = rest
    for axis, it in enumerate(it for it in items if it is not None):
        if lengths.get(id(it), x.shape[axis]) != x.shape[axis]:
            raise IndexError(
                f"{user_line()}: a mask has {lengths[id(it)]} elements along axis {axis}, expected "
                f"{x.shape[axis]}"
            )
    return items


def _is_mask(item: Any) -> bool:
    return isinstance(item, list | np.ndarray) and np.asarray(item).dtype == bool


def _traced_places(it: Any) -> Any:
    if it.dtype.kind == "b":
        refuse("a traced mask picks elements, so that the shape depends on them", "np.where")
    if it.dtype.kind not in "iu":
        raise IndexError(f"{user_line()}: an index has dtype {it.dtype}, expected integers")
    return it


def _known_places(it: Any) -> list[Any]:
    """An integer, or arrays of places; a mask has one for each of its axes."""
    if not isinstance(it, bool | np.bool_ | list | np.ndarray):
        try:
            # Extents that are recorded are compared with their axes, and stay what they are.
            return [it if isinstance(it, Extent) and isinstance(it.value, int) else index(it)]
        except TypeError:
            raise IndexError(
                f"{user_line()}: an index is of type {type(it).__name__}, expected integers, "
                "slices, None, ... and arrays of integers"
            ) from None
    array = np.asarray(it)
    if array.dtype == bool:
        if array.ndim == 0:
            refuse("an index is True or False", "integers, slices and arrays")
        return list(np.nonzero(array))
    if array.dtype.kind not in "iu" and array.size:
        raise IndexError(f"{user_line()}: an index has dtype {array.dtype}, expected integers")
    return [array.astype(np.int64)]


def _sliced(x: Any, items: Sequence[Any]) -> Any:
    """Integers, slices and new axes alone."""
    starts, counts, steps, shape = [], [], [], []
    axis = 0
    for it in items:
        if it is None:
            shape.append(1)
            continue
        start, count, step = _part(it, x.shape[axis], axis)
        starts.append(start)
        counts.append(count)
        steps.append(step)
        if isinstance(it, slice):
            shape.append(count)
        axis += 1
    build = x.tracer.build
    how = tuple(starts), tuple(counts), tuple(steps)
    return made(
        x.tracer, lambda: build.reshape(build.slice(x.value, *how), tuple(shape)), x.is_weak
    )


def _part(it: Any, extent: Any, axis: int) -> tuple[int, int, int]:
    """Where a slice or an integer starts, how many elements it has, and how far apart."""
    if not isinstance(it, slice):
        if not -extent <= it < extent:
            raise IndexError(
                f"{user_line()}: index {it} is out of bounds for axis {axis} with size {extent}"
            )
        return (it + extent if it < 0 else it), 1, 1
    if it.start is it.stop is it.step is None:
        return 0, extent, 1
    if any(isinstance(end, TracedArray) for end in (it.start, it.stop, it.step)):
        refuse("a slice ends at a traced array, so that the shape depends on it", "integers")
    if it.step not in (None, 1):
        start, stop, step = it.indices(extent)
        count = len(range(start, stop, step))
        return (start if count else 0), count, step
    start = 0 if it.start is None else _end(it.start, extent)
    stop = extent if it.stop is None else _end(it.stop, extent)
    return (start, stop - start, 1) if stop > start else (0, 0, 1)


def _end(it: Any, extent: Any) -> Any:
    """Within an axis; extents that are recorded are compared, and stay what they are."""
    it = it if isinstance(it, Extent) else index(it)
    if it < 0:
        it = it + extent
        return it if it > 0 else 0
    return it if it < extent else extent


# ---------------------------------------------------------------- places


def _taken(x: Any, items: Sequence[Any]) -> Any:
    """Slices and new axes first; integers count as places beside arrays of them."""
    basic = [it if it is None or isinstance(it, slice) else slice(None) for it in items]
    x = _sliced(x, basic)
    axes = [at for at, it in enumerate(items) if it is not None and not isinstance(it, slice)]
    places = [items[at] for at in axes]
    known = [it if _is_places(it) else derived(np.asarray, it, np.int64) for it in places]
    shape = known[0].shape
    if len(known) > 1:
        shape = np.broadcast_shapes(*(it.shape for it in known))
    is_together = axes == list(range(axes[0], axes[0] + len(axes)))
    front = axes[0] if is_together else 0
    rest = [it for it in range(x.ndim) if it not in axes]
    if not any(isinstance(it, TracedArray) for it in known):
        return _of_known(x, axes, front, known)
    if len(axes) == 1:
        tracer = x.tracer
        value = tracer.value(known[0])
        return made(tracer, lambda: tracer.build.gather(x.value, value, axes[0]))
    y = _gathered(x, (*axes, *rest), known, shape)
    order = list(range(len(shape), y.ndim))
    order[front:front] = range(len(shape))
    return made(y.tracer, lambda: y.tracer.build.transpose(y.value, order))


def _of_known(x: Any, axes: Sequence[int], front: int, places: Sequence[Any]) -> Any:
    """Of places that are known: one gather along the axes joined."""
    counted = [_from_front(it, x.shape[axis], axis) for it, axis in zip(places, axes, strict=True)]
    extents = tuple(x.shape[axis] for axis in axes)
    joined = counted[0]
    for it, extent in zip(counted[1:], extents[1:], strict=True):
        joined = joined * extent + it
    rest = [it for it in range(x.ndim) if it not in axes]
    order = (*rest[:front], *axes, *rest[front:])
    build = x.tracer.build
    size = math.prod(extents)
    shape = (*(x.shape[it] for it in rest[:front]), size, *(x.shape[it] for it in rest[front:]))
    value = x.tracer.value(derived(np.asarray, joined, np.int64))

    def gathered() -> Any:
        return build.gather(build.reshape(build.transpose(x.value, order), shape), value, front)

    return made(x.tracer, gathered)


def _from_front(places: Any, extent: int, axis: int) -> Any:
    if places.size and not -extent <= places.min() <= places.max() < extent:
        raise IndexError(
            f"{user_line()}: places {places.min()} to {places.max()} are out of bounds for axis "
            f"{axis} with size {extent}"
        )
    return derived(np.where, places < 0, places + extent, places)


def _gathered(x: Any, order: Sequence[int], places: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """The axes of places first, which are checked in a run."""
    tracer, build = x.tracer, x.tracer.build
    columns = []
    for it in places:
        value = build.cast(tracer.value(it), _INT)
        columns.append(build.reshape(build.expand(value, shape), (*shape, 1)))
    together = build.concat(columns, len(shape))
    turned = build.transpose(x.value, order)
    results = [((*shape, *turned.shape[len(places) :]), x.dtype)]
    inputs = [turned, together]
    return made(tracer, lambda: build.call("gather_nd", inputs, results, batch_dims=0)[0])
