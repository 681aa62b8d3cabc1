"""Index maps: elements that only change their place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dlprim.graph.operators.operator import (
    Arrays,
    Attributes,
    Operator,
    Result,
    Values,
    axis_within,
    there,
)


def _infer_reshape(values: Values, attributes: Attributes) -> list[Result]:
    x, shape = there(values[0]), tuple(attributes["shape"])
    if any(extent < 0 for extent in shape) or math.prod(shape) != x.size:
        raise ValueError(f"an array of {list(x.shape)} cannot be reshaped to {list(shape)}")
    return [(shape, x.dtype)]


def _infer_transpose(values: Values, attributes: Attributes) -> list[Result]:
    x, axes = there(values[0]), attributes["axes"]
    if sorted(axes) != list(range(len(x.shape))):
        raise ValueError(f"axes are {list(axes)}, expected those of {list(x.shape)} in some order")
    return [(tuple(x.shape[axis] for axis in axes), x.dtype)]


def _infer_expand(values: Values, attributes: Attributes) -> list[Result]:
    x, shape = there(values[0]), tuple(attributes["shape"])
    inner = shape[len(shape) - len(x.shape) :]
    fits = (
        len(shape) >= len(x.shape)
        and all(extent >= 0 for extent in shape)
        and all(a in (1, b) for a, b in zip(x.shape, inner, strict=True))
    )
    if not fits:
        raise ValueError(f"an array of {list(x.shape)} cannot be expanded to {list(shape)}")
    return [(shape, x.dtype)]


def _infer_slice(values: Values, attributes: Attributes) -> list[Result]:
    """For each axis where it starts, how many elements are taken, and how far they are apart."""
    x, counts = there(values[0]), tuple(attributes["counts"])
    starts, steps = attributes["starts"], attributes["steps"]
    for extent, start, count, step in zip(x.shape, starts, counts, steps, strict=True):
        last = start + (count - 1) * step
        if count < 0 or (count and not (0 <= start < extent and 0 <= last < extent)):
            raise ValueError(
                f"a slice of {count} elements from {start} in steps of {step} leaves {extent}"
            )
    return [(counts, x.dtype)]


def _compute_slice(arrays: Arrays, attributes: Attributes) -> list[Any]:
    zipped = zip(attributes["starts"], attributes["counts"], attributes["steps"], strict=True)
    return [arrays[0][tuple(_taken(*it) for it in zipped)]]


def _taken(start: int, count: int, step: int) -> slice:
    """Elements of an axis, as a view of weights for example."""
    end = start + count * step
    return slice(start, end if end >= 0 else None, step) if count else slice(0)


def _infer_pad(values: Values, attributes: Attributes) -> list[Result]:
    """Widths may be below zero, which takes away."""
    x, widths = there(values[0]), attributes["widths"]
    shape = tuple(n + a + b for n, (a, b) in zip(x.shape, widths, strict=True))
    if any(extent < 0 for extent in shape):
        raise ValueError(f"padding of {list(widths)} takes more than {list(x.shape)} has")
    return [(shape, x.dtype)]


def _compute_pad(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Mode "constant" (the value is a second operand, or zero), "edge", "reflect" or "wrap"."""
    x, widths = arrays[0], attributes["widths"]
    cut = tuple(
        slice(max(0, -a), n - max(0, -b)) for n, (a, b) in zip(x.shape, widths, strict=True)
    )
    more = [(max(0, a), max(0, b)) for a, b in widths]
    if attributes["mode"] != "constant":
        return [np.pad(x[cut], more, mode=attributes["mode"])]
    value = arrays[1] if len(arrays) > 1 and arrays[1] is not None else np.zeros(1, x.dtype)
    return [np.pad(x[cut], more, constant_values=np.asarray(value).reshape(-1)[0])]


def _infer_concat(values: Values, attributes: Attributes) -> list[Result]:
    arrays = [there(value) for value in values]
    axis = axis_within(attributes["axis"], len(arrays[0].shape))
    for array in arrays:
        same = [n for i, n in enumerate(array.shape) if i != axis]
        if same != [n for i, n in enumerate(arrays[0].shape) if i != axis]:
            listed = " and ".join(str(list(it.shape)) for it in arrays)
            raise ValueError(f"arrays of {listed} cannot be joined along axis {axis}")
    shape = list(arrays[0].shape)
    shape[axis] = sum(array.shape[axis] for array in arrays)
    return [(tuple(shape), arrays[0].dtype)]


def _infer_gather(values: Values, attributes: Attributes) -> list[Result]:
    x, places = there(values[0]), there(values[1])
    axis = axis_within(attributes["axis"], len(x.shape))
    return [(x.shape[:axis] + places.shape + x.shape[axis + 1 :], x.dtype)]


def _compute_gather(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Places below zero count from the end; those outside are an IndexError."""
    x, places, axis = arrays[0], np.asarray(arrays[1]), attributes["axis"]
    extent = x.shape[axis]
    if places.size and (places.min() < -extent or places.max() >= extent):
        raise IndexError(f"indices are {places.min()} to {places.max()}, expected inside {extent}")
    return [np.take(x, places, axis=axis)]


def _infer_resample(values: Values, attributes: Attributes) -> list[Result]:
    """Along an axis, sums of elements at listed places with weights: (extent, taps) both."""
    x, places = there(values[0]), there(values[1])
    axis = axis_within(attributes["axis"], len(x.shape))
    return [(x.shape[:axis] + places.shape[:1] + x.shape[axis + 1 :], x.dtype)]


def _compute_resample(arrays: Arrays, attributes: Attributes) -> list[Any]:
    x, places, weights = arrays
    axis = attributes["axis"] % x.ndim
    taken = np.take(x.astype(np.float64), places, axis=axis)
    shape = [1] * taken.ndim
    shape[axis : axis + 2] = places.shape
    return [(taken * weights.reshape(shape)).sum(axis=axis + 1).astype(x.dtype)]


MOVES = {
    "reshape": Operator("move", _infer_reshape, lambda a, b: [a[0].reshape(b["shape"])]),
    "transpose": Operator("move", _infer_transpose, lambda a, b: [a[0].transpose(b["axes"])]),
    "expand": Operator(
        "move", _infer_expand, lambda a, b: [np.broadcast_to(a[0], b["shape"]).copy()]
    ),
    "slice": Operator("move", _infer_slice, _compute_slice),
    "pad": Operator("move", _infer_pad, _compute_pad),
    "concat": Operator("move", _infer_concat, lambda a, b: [np.concatenate(a, axis=b["axis"])]),
    "gather": Operator("move", _infer_gather, _compute_gather),
    "resample": Operator("move", _infer_resample, _compute_resample),
}
