"""Pooling: a number for each window of pixels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dlprim.graph.graph import Array
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
from dlprim.graph.operators.products import padded, windows


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


WINDOWS = {"pool": Operator("rows", _infer_pool, _compute_pool, "later")}
