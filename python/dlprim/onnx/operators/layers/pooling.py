"""Pooling: a number for each window, or for all pixels of a channel."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Node, Value
from dlprim.graph.operators.convolutions import padded, windows
from dlprim.graph.operators.elements import converted
from dlprim.graph.operators.operator import Arrays, Attributes, Values, callee, there
from dlprim.onnx.operators.layers.geometry import Geometry, Ints, geometry
from dlprim.onnx.operators.shapes import numbers
from dlprim.onnx.registry import RefusedError, operator


def _laid(extents: Ints, shape: Geometry, is_ceiled: int) -> tuple[Geometry, Ints]:
    """The windows, and how many there are; the last one begins in front of the padding behind.

    One that is larger than all pixels, by less than a stride, is there: what it lacks is padding.
    """
    counts, padding = [], []
    zipped = zip(extents, shape.covered, shape.strides, shape.padding, strict=True)
    for n, covered, stride, (front, back) in zipped:
        room = n + front + back - covered
        if -stride < room < 0 and not is_ceiled:
            back, room = back - room, 0
        count = -(-room // stride) + 1 if is_ceiled else room // stride + 1
        if is_ceiled and (count - 1) * stride >= n + front:
            count -= 1
        if room <= -stride or count < 1:
            raise RefusedError(
                f"windows of {covered} pixels, expected at most the {n + front + back} there are"
            )
        counts.append(count)
        padding.append((front, back))
    return shape._replace(padding=tuple(padding)), tuple(counts)


def _pool_attributes(shape: Geometry, counts: Ints) -> dict[str, Any]:
    return {**shape.attributes, "kernel": shape.kernel, "counts": counts}


# ---------------------------------------------------------------- MaxPool


def _places_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    """That of the pool without places."""
    (x,) = node.operands
    names = ("kernel", "strides", "dilations", "padding", "counts")
    form = {name: node.attributes[name] for name in names}
    how = {"function": "max", "counts_padding": False, "extents": x.shape[2:]}
    return [b.emit("pool_gradient", [diffs[0], x], **form, **how)[0]]


@callee("max_pool_places", _places_gradient)
def max_pool_places(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """The highest of each window, and where in the whole array it stands."""
    x = arrays[0]
    counts, kernel = attributes["counts"], attributes["kernel"]
    zipped = zip(x.shape[2:], kernel, attributes["strides"], attributes["dilations"], strict=True)
    around = tuple(
        (front, max(0, (count - 1) * s + d * (k - 1) + 1 - front - n))
        for (n, k, s, d), (front, _), count in zip(
            zipped, attributes["padding"], counts, strict=True
        )
    )
    is_whole = np.issubdtype(x.dtype, np.integer)
    least = x.dtype.type(np.iinfo(x.dtype).min if is_whole else -np.inf)
    pixels = np.arange(x[0, 0].size).reshape(x.shape[2:], order=attributes["order"])
    cut = (slice(None), slice(None), *(slice(0, count) for count in counts))
    whole = (*x.shape[:2], *counts, -1)
    taps = windows(padded(x, around, least), kernel, attributes)[cut].reshape(whole)
    # Padding lies nowhere: it is not chosen where a pixel is as low.
    stands = windows(padded(pixels[None, None], around, -1), kernel, attributes)[cut]
    stands = np.broadcast_to(stands.reshape(1, 1, *whole[2:]), taps.shape)
    highest = taps.max(axis=-1, keepdims=True)
    chosen = np.argmax(((taps == highest) | np.isnan(taps)) & (stands >= 0), axis=-1)[..., None]
    channels = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * len(counts))
    places = np.take_along_axis(stands, chosen, -1)[..., 0] + channels * pixels.size
    return [converted(highest[..., 0], x.dtype), places.astype(np.int64)]


@operator("MaxPool")
def max_pool(
    build: Builder,
    x: Value,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: tuple[int, ...] | None = None,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None = None,
    storage_order: int = 0,
    strides: tuple[int, ...] | None = None,
    outputs: int = 1,
) -> tuple[Value, ...]:
    shape = geometry(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad)
    shape, counts = _laid(x.shape[2:], shape, ceil_mode)
    attributes = _pool_attributes(shape, counts)
    if outputs == 1:
        return build.emit("pool", [x], function="max", counts_padding=False, **attributes)
    whole = (*x.shape[:2], *counts)
    results = [(whole, x.dtype), (whole, np.dtype(np.int64))]
    order = "F" if storage_order else "C"
    return build.call("max_pool_places", [x], results, order=order, **attributes)


# ---------------------------------------------------------------- AveragePool, LpPool


@operator("AveragePool")
def average_pool(
    build: Builder,
    x: Value,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: tuple[int, ...] | None = None,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    shape = geometry(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad)
    attributes = _pool_attributes(*_laid(x.shape[2:], shape, ceil_mode))
    counts = bool(count_include_pad)
    return build.emit("pool", [x], function="mean", counts_padding=counts, **attributes)[0]


def powered(p: int, x: Expression) -> Expression:
    """|x| to the power of p."""
    if p < 1:
        raise RefusedError(f"p is {p}, expected at least 1")
    if p == 2:
        return ("multiply", x, x)
    return ("abs", x) if p == 1 else ("power", ("abs", x), number(p))


def rooted(p: int, x: Expression) -> Expression:
    """The root that undoes it."""
    if p == 2:
        return ("sqrt", x)
    return x if p == 1 else ("power", x, number(1 / p))


@operator("LpPool", since=2)
def lp_pool(
    build: Builder,
    x: Value,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: tuple[int, ...] | None = None,
    kernel_shape: tuple[int, ...],
    p: int = 2,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    """Means over whole windows, zeros where they leave the pixels, times how many there are."""
    shape = geometry(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad)
    shape, counts = _laid(x.shape[2:], shape, ceil_mode)
    zipped = zip(x.shape[2:], counts, shape.strides, shape.covered, shape.padding, strict=True)
    around = tuple(
        (front, (count - 1) * s + covered - front - n)
        for n, count, s, covered, (front, _) in zipped
    )
    widths = ((0, 0), (0, 0), *around)
    powers = build.map(powered(p, operand(0)), x)
    inside = build.emit("pad", [powers], widths=widths, mode="constant")[0]
    attributes = _pool_attributes(shape._replace(padding=((0, 0),) * len(counts)), counts)
    means = build.emit("pool", [inside], function="mean", counts_padding=False, **attributes)[0]
    taps = number(int(np.prod(shape.kernel)))
    return build.map(rooted(p, ("multiply", operand(0), taps)), means)


# ---------------------------------------------------------------- of all pixels


def _pixel_axes(x: Value) -> range:
    if len(x.shape) < 2:
        raise RefusedError(f"the input is of {list(x.shape)}, expected (N, C, ...)")
    return range(2, len(x.shape))


@operator("GlobalAveragePool")
def global_average_pool(build: Builder, x: Value) -> Value:
    return build.reduce("mean", x, _pixel_axes(x), keepdims=True)


@operator("GlobalMaxPool")
def global_max_pool(build: Builder, x: Value) -> Value:
    return build.reduce("max", x, _pixel_axes(x), keepdims=True)


@operator("GlobalLpPool", since=2)
def global_lp_pool(build: Builder, x: Value, *, p: int = 2) -> Value:
    powers = build.map(powered(p, operand(0)), x)
    sums = build.reduce("sum", powers, _pixel_axes(x), keepdims=True)
    return build.map(rooted(p, operand(0)), sums)


# ---------------------------------------------------------------- back to pixels


def _unpool_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    (_, places), shape = node.operands, node.attributes["shape"]
    starts, steps = [0] * len(shape), [1] * len(shape)
    cut = b.slice(there(diffs[0]), starts, shape, steps)
    return [b.gather(b.reshape(cut, (cut.size,)), places, 0), None]


@callee("max_unpool", _unpool_gradient)
def max_unpool_arrays(arrays: Arrays, attributes: Attributes) -> list[Any]:
    x, places = arrays
    y = np.zeros(attributes["shape"], x.dtype)
    y.reshape(-1)[places.reshape(-1)] = x.reshape(-1)
    whole = np.zeros(attributes["results"][0][0], x.dtype)
    whole[tuple(slice(0, extent) for extent in y.shape)] = y
    return [whole]


@operator("MaxUnpool", since=9)
def max_unpool(
    build: Builder,
    x: Value,
    places: Value,
    output_shape: Value | None = None,
    *,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    """The places are of the shape that was pooled, which lies in front in a larger result."""
    geo = geometry(x.shape[2:], kernel_shape, strides, None, pads, "NOTSET")
    zipped = zip(x.shape[2:], geo.kernel, geo.strides, geo.padding, strict=True)
    shape = (*x.shape[:2], *((n - 1) * s + k - sum(sides) for n, k, s, sides in zipped))
    whole = shape
    if output_shape is not None:
        whole = numbers(build, output_shape)
    if len(whole) != len(shape) or any(b < a for a, b in zip(shape, whole, strict=True)):
        raise RefusedError(f"output_shape is {list(whole)}, expected at least {list(shape)}")
    return build.call("max_unpool", [x, places], [(whole, x.dtype)], shape=shape)[0]
