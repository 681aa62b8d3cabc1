"""Calls of dlprim's own functions, where a node has no step yet but there is a function for it.

Each takes arrays and attributes as the operator's oracle does, and returns None for what it does
not compute, which then the oracle does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dlprim.functions.conv.passes import passes_of
from dlprim.functions.conv.windows import Window
from dlprim.functions.embedding import embedding_backward
from dlprim.functions.extents.pooling import (
    avg_pool1d_backward,
    avg_pool2d_backward,
    avg_pool3d_backward,
    max_pool1d_backward,
    max_pool2d_backward,
    max_pool3d_backward,
)
from dlprim.functions.rows.group_norm import group_norm
from dlprim.graph.graph import Array
from dlprim.graph.lowering.formulas import is_computed
from dlprim.graph.operators import OPERATORS
from dlprim.graph.operators.moves import require_inside
from dlprim.graph.operators.operator import Arrays, Attributes


def _window(x: tuple[int, ...], w: tuple[int, ...], attributes: Attributes) -> Window:
    names = ("strides", "padding", "dilations", "groups")
    return Window(x, w, *(attributes[name] for name in names))


def _is_taken(window: Window, *arrays: Any) -> bool:
    """Whether the passes of convolutions take a window, and arrays like these."""
    is_inside = all(min(pair) >= 0 for pair in window.padding) and min(window.y_shape) > 0
    is_alike = all(it.dtype == arrays[0].dtype and it.size for it in arrays)
    return len(window.stride) <= 3 and is_inside and is_alike


def _convolution(arrays: Arrays, attributes: Attributes) -> list[Any] | None:
    x, w, bias, residual = (*arrays, None, None)[:4]
    window = _window(x.shape, w.shape, attributes)
    is_plain = residual is None and attributes.get("activation") is None
    if not is_plain or not _is_taken(window, x, w):
        return None
    y = np.empty(window.y_shape, x.dtype)
    shift = None if bias is None else np.ascontiguousarray(bias, np.float32)
    passes_of(window, x.dtype.name).forward(x, w, shift, y)
    return [y]


def _transposed(arrays: Arrays, attributes: Attributes) -> list[Any] | None:
    """The pass of a convolution back to its images, of which fewer than a step are not reached."""
    x, w, bias = (*arrays, None)[:3]
    more = zip(attributes["output_padding"], attributes["strides"], strict=True)
    ((shape, _),) = OPERATORS["transposed_convolution"].infer([x, w], attributes)
    window = _window(shape, w.shape, attributes)
    if not all(0 <= extra < step for extra, step in more) or not _is_taken(window, x, w):
        return None
    y = np.empty(shape, x.dtype)
    passes_of(window, x.dtype.name).backward_data(x, w, y)
    if bias is None:
        return [y]
    return [(y + bias.reshape(-1, *[1] * (y.ndim - 2))).astype(y.dtype, copy=False)]


def _weights_gradient(arrays: Arrays, attributes: Attributes) -> list[Any] | None:
    x, diff = arrays
    w_shape = (diff.shape[1], x.shape[1] // attributes["groups"], *attributes["kernel"])
    window = _window(x.shape, w_shape, attributes)
    if not _is_taken(window, x, diff):
        return None
    made = passes_of(window, x.dtype.name).backward_weights(diff, x)[0]
    return [made.astype(attributes.get("dtype", x.dtype), copy=False)]


_POOLS = {
    "max": (max_pool1d_backward, max_pool2d_backward, max_pool3d_backward),
    "mean": (avg_pool1d_backward, avg_pool2d_backward, avg_pool3d_backward),
}


def _pool_gradient(arrays: Arrays, attributes: Attributes) -> list[Any] | None:
    diff, x = (*arrays, None)[:2]
    shape = (*diff.shape[:2], *attributes["extents"])
    names = ("kernel", "strides", "dilations", "padding", "counts")
    kernel, strides, dilations, padding, counts = (attributes[name] for name in names)
    rows = zip(shape[2:], kernel, strides, padding, counts, strict=True)
    is_usual = set(dilations) == {1} and math.prod(kernel) <= 256
    if not is_usual or not diff.size or len(kernel) > 3:
        return None
    for n, k, step, (front, back), count in rows:
        if front != back or 2 * front > k or count != (n + 2 * front - k) // step + 1:
            return None
    function, how = _POOLS[attributes["function"]][len(kernel) - 1], {}
    if x is None:
        x, how = np.zeros(shape, diff.dtype), {"count_include_pad": attributes["counts_padding"]}
    sides = tuple(front for front, _ in padding)
    return [function(diff, x, kernel, strides, sides, **how)]


def _scatter_add(arrays: Arrays, attributes: Attributes) -> list[Any] | None:
    """Sums of rows in the order of places, in float32."""
    places, x = arrays
    axis, extent, depth = attributes["axis"], attributes["extent"], places.ndim
    if not x.size or not extent:
        return None
    require_inside(places, extent, attributes)
    rows = np.moveaxis(x, range(axis, axis + depth), range(depth))
    tail = rows.shape[depth:]
    flat = np.ascontiguousarray(rows).reshape(places.size, -1)
    indices = np.where(places < 0, places + extent, places).reshape(-1).astype(np.int64)
    sums = embedding_backward(flat, indices, extent).reshape(extent, *tail)
    return [np.ascontiguousarray(np.moveaxis(sums, 0, axis), x.dtype)]


def _group_norm(arrays: Arrays, attributes: Attributes) -> list[Any] | None:
    x, weight, bias = arrays
    if not x.size or x.ndim < 3:
        return None
    return [group_norm(x, attributes["groups"], weight, bias, attributes["epsilon"])]


_FUNCTIONS: dict[str, Callable[[Arrays, Attributes], list[Any] | None]] = {
    "convolution": _convolution,
    "convolution_weights_gradient": _weights_gradient,
    "group_norm": _group_norm,
    "pool_gradient": _pool_gradient,
    "scatter_add": _scatter_add,
    "transposed_convolution": _transposed,
}


def computed(operator: str, arrays: Arrays, attributes: Attributes) -> list[Any]:
    """The results of an operator, by a function of dlprim or by the operator's oracle."""
    function = _FUNCTIONS.get(operator)
    known = [np.asarray(it).dtype for it in arrays if it is not None]
    floats = [dtype for dtype in known if dtype.kind not in "iu"]  # others are places and lengths
    if function is not None and floats and is_computed(*floats):
        results = function(arrays, attributes)
        if results is not None:
            return results
    return OPERATORS[operator].compute(arrays, attributes)


def called(
    node: tuple[str, dict[str, Any]], present: list[int], count: int, *arrays: Array
) -> list[Array]:
    """The results of an operator with its attributes; inputs that are left out are None."""
    operands: list[Array | None] = [None] * count
    for place, array in zip(present, arrays, strict=True):
        operands[place] = array
    return computed(node[0], operands, node[1])
