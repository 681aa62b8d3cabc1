"""Pooling: a number for each window of pixels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.operators.convolutions import padded, windows
from dlprim.graph.operators.elements import converted
from dlprim.graph.operators.operator import (
    Arrays,
    Attributes,
    Operator,
    Result,
    Values,
    there,
    widened,
)

if TYPE_CHECKING:
    from dlprim.graph.builder import Builder


def _infer_pool(values: Values, attributes: Attributes) -> list[Result]:
    """x (N, C, ...) -> (N, C, windows...); the attribute ``counts`` says how many windows.

    ``padding`` is what lies in front of each axis; behind it, windows may leave the array as far
    as they like.
    """
    x = there(values[0])
    return [((*x.shape[:2], *attributes["counts"]), x.dtype)]


def _axes(shape: tuple[int, ...], attributes: Attributes) -> Iterator[tuple[Any, ...]]:
    """Of each axis its extent, and the kernel, stride, dilation, padding and windows along it."""
    names = ("kernel", "strides", "dilations", "padding", "counts")
    return zip(shape[2:], *(attributes[name] for name in names), strict=True)


def pool_padding(shape: tuple[int, ...], attributes: Attributes) -> tuple[tuple[int, int], ...]:
    """How far windows leave the axes in front and behind."""
    return tuple(
        (front, max(0, (count - 1) * s + d * (k - 1) + 1 - front - n))
        for n, k, s, d, (front, _), count in _axes(shape, attributes)
    )


def _compute_pool(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """The mean is over the pixels inside, or inside the padding where ``counts_padding``."""
    x = arrays[0]
    axes = tuple(range(-len(attributes["kernel"]), 0))
    around = pool_padding(x.shape, attributes)
    counted = tuple(slice(0, count) for count in attributes["counts"])
    cut = (slice(None), slice(None), *counted)
    if attributes["function"] == "max":
        least = np.iinfo(x.dtype).min if np.issubdtype(x.dtype, np.integer) else -np.inf
        taps = windows(padded(x, around, x.dtype.type(least)), attributes["kernel"], attributes)
        return [converted(taps[cut].max(axis=axes), x.dtype)]
    taps = windows(padded(widened(x), around, 0), attributes["kernel"], attributes)
    with np.errstate(all="ignore"):
        sums = taps[cut].sum(axis=axes)
        return [converted(sums / pool_counts(x.shape, attributes), x.dtype)]


def pool_counts(shape: tuple[int, ...], attributes: Attributes) -> Array:
    """Of how many elements each window takes the mean: along each axis those that are counted."""
    whole: Array = np.ones(())
    for n, k, s, d, (front, back), count in _axes(shape, attributes):
        low, high = (-front, n + back) if attributes["counts_padding"] else (0, n)
        starts: Array = np.arange(count) * s - front
        first, behind = (np.clip(-((starts - edge) // d), 0, k) for edge in (low, high))
        whole = np.multiply.outer(whole, behind - first)
    return whole


# ---------------------------------------------------------------- gradients


def _pool_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    (x,) = node.operands
    inputs = [diffs[0], x if node.attributes["function"] == "max" else None]
    names = ("kernel", "strides", "dilations", "padding", "counts", "counts_padding", "function")
    form = {name: node.attributes[name] for name in names}
    return [b.emit("pool_gradient", inputs, extents=x.shape[2:], **form)[0]]


def _infer_pool_gradient(values: Values, attributes: Attributes) -> list[Result]:
    """Of the gradient of a pool's result, and x (N, C, extents...) where the pool takes maxima."""
    diff = there(values[0])
    return [((*diff.shape[:2], *attributes["extents"]), diff.dtype)]


def _compute_pool_gradient(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """A maximum passes it to the first element that is as large, a mean to all alike."""
    diff, x = (*arrays, None)[:2]
    shape = (*diff.shape[:2], *attributes["extents"])
    kernel, counts = attributes["kernel"], attributes["counts"]
    around = pool_padding(shape, attributes)
    share = widened(diff)
    chosen: Array | None = None
    if attributes["function"] == "max":
        inside = padded(x, around, np.asarray(-np.inf).astype(x.dtype))
        cut = (slice(None), slice(None), *(slice(0, count) for count in counts))
        taps = windows(inside, kernel, attributes)[cut]
        chosen = taps.reshape(*diff.shape, math.prod(kernel)).argmax(axis=-1)
    else:
        with np.errstate(all="ignore"):
            share = share / pool_counts(shape, attributes)
    room = [n + front + back for n, (front, back) in zip(shape[2:], around, strict=True)]
    y = np.zeros((*shape[:2], *room))
    for number, tap in enumerate(np.ndindex(*kernel)):
        zipped = zip(tap, attributes["dilations"], attributes["strides"], counts, strict=True)
        places = (slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, s, n in zipped)
        y[(slice(None), slice(None), *places)] += (
            share if chosen is None else np.where(chosen == number, share, 0)
        )
    inner = (slice(front, front + n) for n, (front, _) in zip(shape[2:], around, strict=True))
    return [converted(y[(slice(None), slice(None), *inner)], diff.dtype)]


def _second_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    form = dict(node.attributes)
    del form["extents"]
    if form["function"] == "max":
        raise ValueError("the gradient of a maximum in windows is not differentiated again")
    return [b.emit("pool", [diffs[0]], **form)[0], None][: len(node.inputs)]


WINDOWS = {
    "pool": Operator("rows", _infer_pool, _compute_pool, _pool_gradient),
    "pool_gradient": Operator(
        "rows", _infer_pool_gradient, _compute_pool_gradient, _second_gradient
    ),
}
