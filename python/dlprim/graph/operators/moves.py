"""Index maps: elements that only change their place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.graph.extents import derived
from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.operators.operator import (
    Arrays,
    Attributes,
    Operator,
    Result,
    Values,
    axis_within,
    there,
    widened,
)

if TYPE_CHECKING:
    from dlprim.graph.builder import Builder


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
    """Places below zero count from the end, unless they have a name; those outside are an
    IndexError."""
    x, places, axis = arrays[0], np.asarray(arrays[1]), attributes["axis"]
    require_inside(places, x.shape[axis], attributes)
    return [np.take(x, places.astype(np.int64, copy=False), axis=axis)]


def require_inside(places: Array, extent: int, attributes: Attributes) -> None:
    """Refuses places outside an axis; those below zero count from its end, or have a name."""
    name = attributes.get("argument")
    if name and places.size and not 0 <= places.min() <= places.max() < extent:
        wrong = places.min() if places.min() < 0 else places.max()
        raise IndexError(f"{name} holds {wrong}, expected values in [0, {extent})")
    if places.size and (places.min() < -extent or places.max() >= extent):
        raise IndexError(f"indices are {places.min()} to {places.max()}, expected inside {extent}")


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


# ---------------------------------------------------------------- gradients


def _reshape_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    return [b.reshape(there(diffs[0]), node.operands[0].shape)]


def _transpose_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    axes = node.attributes["axes"]
    return [b.transpose(there(diffs[0]), [axes.index(axis) for axis in range(len(axes))])]


def _expand_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    return [b.sum_to(there(diffs[0]), node.operands[0].shape)]


def _slice_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    """Zeros where nothing was taken: around the slice, and between its elements."""
    (x,), diff = node.operands, there(diffs[0])
    names = ("starts", "counts", "steps")
    rows = list(zip(*(node.attributes[name] for name in names), strict=True))
    if any(step < 0 for _, _, step in rows):
        turned = [-1 if step < 0 else 1 for _, _, step in rows]
        starts = [n - 1 if turn < 0 < n else 0 for n, turn in zip(diff.shape, turned, strict=True)]
        diff = b.slice(diff, starts, diff.shape, turned)
        rows = [(s + (n - 1) * d, n, -d) if d < 0 else (s, n, d) for s, n, d in rows]
    for axis, (_, count, step) in enumerate(rows):
        if step != 1:
            diff = _spaced(b, diff, axis, step)
            rows[axis] = (rows[axis][0], count * step, 1)
    widths = [
        (start, extent - start - count) if count else (0, extent)
        for extent, (start, count, _) in zip(x.shape, rows, strict=True)
    ]
    return [_zeros_around(b, diff, widths)]


def _spaced(b: Builder, x: Value, axis: int, step: int) -> Value:
    """Each element and zeros behind it."""
    shape = (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :])
    widths = [(0, step - 1) if it == axis + 1 else (0, 0) for it in range(len(shape))]
    wide = _zeros_around(b, b.reshape(x, shape), widths)
    return b.reshape(wide, (*x.shape[:axis], x.shape[axis] * step, *x.shape[axis + 1 :]))


def _zeros_around(b: Builder, x: Value, widths: Sequence[tuple[int, int]]) -> Value:
    """x in an array of zeros; widths below zero take away."""
    if not any(map(any, widths)):
        return x
    return b.emit("pad", [x], mode="constant", widths=tuple(widths))[0]


def _pad_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    """What lies outside counts where it was copied from, or for the value around."""
    x, diff, widths = there(node.inputs[0]), there(diffs[0]), node.attributes["widths"]
    if node.attributes["mode"] != "constant":
        return [_copies_summed(b, x, diff, node.attributes)]
    inner = _zeros_around(b, diff, [(-front, -back) for front, back in widths])
    if len(node.inputs) < 2 or node.inputs[1] is None:
        return [inner, None][: len(node.inputs)]
    every = tuple(range(len(x.shape)))
    around = b.apply("subtract", b.reduce("sum", diff, every), b.reduce("sum", inner, every))
    return [inner, b.reshape(around, node.inputs[1].shape)]


def _copies_summed(b: Builder, x: Value, diff: Value, attributes: Attributes) -> Value:
    for axis, (front, back) in enumerate(attributes["widths"]):
        if front or back:
            found = derived(_places_around, x.shape[axis], (front, back), attributes["mode"])
            places = b.constant(found, "places")
            (diff,) = b.emit("scatter_add", [places, diff], axis=axis, extent=x.shape[axis])
    return diff


def _places_around(extent: int, widths: tuple[int, int], mode: Any) -> Array:
    """Where the elements of an axis that was padded were copied from."""
    front, back = widths
    kept = np.arange(extent)[max(0, -front) : extent - max(0, -back)]
    return np.pad(kept, (max(0, front), max(0, back)), mode=mode)


def _concat_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    diff = there(diffs[0])
    axis, place, parts = node.attributes["axis"] % len(diff.shape), 0, []
    for value in node.operands:
        starts = [place if it == axis else 0 for it in range(len(diff.shape))]
        parts.append(b.slice(diff, starts, value.shape, [1] * len(starts)))
        place += value.shape[axis]
    return list(parts)


def _gather_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    """Refuses what the gather does, which may be dropped where nobody wants its elements."""
    x, places = node.operands
    how = {**node.attributes, "axis": node.attributes["axis"] % len(x.shape)}
    return [b.emit("scatter_add", [places, diffs[0]], extent=x.shape[how["axis"]], **how)[0], None]


def _resample_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    """Each element that was taken gets its weight of the gradient."""
    x, places, weights = node.operands
    axis = node.attributes["axis"] % len(x.shape)
    diff = there(diffs[0])
    wide = b.reshape(diff, (*diff.shape[: axis + 1], 1, *diff.shape[axis + 1 :]))
    along = (*places.shape, *[1] * (len(x.shape) - axis - 1))
    shares = b.apply("multiply", wide, b.cast(b.reshape(weights, along), x.dtype))
    (by_x,) = b.emit("scatter_add", [places, shares], axis=axis, extent=x.shape[axis])
    products = b.apply("multiply", wide, b.gather(x, places, axis))
    by_weights = b.reshape(b.sum_to(products, (1,) * axis + along), weights.shape)
    return [by_x, None, b.cast(by_weights, weights.dtype)]


# ---------------------------------------------------------------- the gradient of gather


def _infer_scatter_add(values: Values, attributes: Attributes) -> list[Result]:
    """Elements summed where ``gather`` would have taken them from, in an axis of this extent."""
    places, x = there(values[0]), there(values[1])
    axis, depth = attributes["axis"], len(places.shape)
    if x.shape[axis : axis + depth] != places.shape:
        raise ValueError(f"x of {list(x.shape)} does not fit places of {list(places.shape)}")
    return [((*x.shape[:axis], attributes["extent"], *x.shape[axis + depth :]), x.dtype)]


def _compute_scatter_add(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """In the order of places, so that sums are the same bits in every run."""
    places, x = arrays
    axis, extent, depth = attributes["axis"], attributes["extent"], np.ndim(places)
    places = np.asarray(places)
    require_inside(places, extent, attributes)
    rows = np.moveaxis(widened(x), range(axis, axis + depth), range(depth))
    rows = rows.reshape(-1, *rows.shape[depth:])
    y = np.zeros((extent, *rows.shape[1:]), rows.dtype)
    np.add.at(y, places.reshape(-1).astype(np.int64, copy=False), rows)
    return [np.ascontiguousarray(np.moveaxis(y, 0, axis).astype(x.dtype))]


def _scatter_add_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    how = node.attributes
    name = how.get("argument", "")
    return [None, b.gather(there(diffs[0]), node.operands[0], how["axis"], name)]


MOVES = {
    "reshape": Operator(
        "move", _infer_reshape, lambda a, b: [a[0].reshape(b["shape"])], _reshape_gradient
    ),
    "transpose": Operator(
        "move", _infer_transpose, lambda a, b: [a[0].transpose(b["axes"])], _transpose_gradient
    ),
    "expand": Operator(
        "move",
        _infer_expand,
        lambda a, b: [np.broadcast_to(a[0], b["shape"]).copy()],
        _expand_gradient,
    ),
    "slice": Operator("move", _infer_slice, _compute_slice, _slice_gradient),
    "pad": Operator("move", _infer_pad, _compute_pad, _pad_gradient),
    "concat": Operator(
        "move", _infer_concat, lambda a, b: [np.concatenate(a, axis=b["axis"])], _concat_gradient
    ),
    "gather": Operator("move", _infer_gather, _compute_gather, _gather_gradient),
    "resample": Operator("move", _infer_resample, _compute_resample, _resample_gradient),
    "scatter_add": Operator(
        "move", _infer_scatter_add, _compute_scatter_add, _scatter_add_gradient
    ),
}
