"""Elements and rows: maps, reductions, softmax, normalisations, conversions to 8 bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from dlprim.graph.expressions import Expression, evaluate, functions_of
from dlprim.graph.graph import Array
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

_HALVES = ("bfloat16", "float16")


def broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of arrays that are broadcast to each other, by NumPy's rule."""
    made: list[int] = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for axis, extent in enumerate(shape, len(made) - len(shape)):
            if made[axis] == 1:
                made[axis] = extent
            elif extent not in (1, made[axis]):
                listed = " and ".join(str(list(shape)) for shape in shapes)
                raise ValueError(f"arrays of {listed} cannot be broadcast to each other")
    return tuple(made)


# ---------------------------------------------------------------- map


@lru_cache(maxsize=4096)
def _require_types(expression: Expression, dtypes: tuple[np.dtype[Any], ...]) -> None:
    """Refuses types that NumPy does not compute the expression of."""
    wide = (np.dtype(np.float32) if it.name in _HALVES else it for it in dtypes)
    try:
        with np.errstate(all="ignore"):
            evaluate(expression, [np.empty(0, it) for it in wide])
    except (OverflowError, TypeError) as error:
        names = " and ".join(sorted(functions_of(expression)))
        listed = " and ".join(str(it) for it in dtypes)
        raise ValueError(f"{names} cannot be computed of {listed}, expected other types") from error


def _infer_map(values: Values, attributes: Attributes) -> list[Result]:
    _require_types(attributes["expression"], tuple(there(value).dtype for value in values))
    shape = broadcast_shape(*(there(value).shape for value in values))
    return [(shape, np.dtype(attributes["dtype"]))]


def _compute_map(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Halves are computed in float32 and rounded once."""
    dtype = np.dtype(attributes["dtype"])
    operands = [
        array.astype(np.float32) if array.dtype.name in _HALVES else array for array in arrays
    ]
    with np.errstate(all="ignore"):
        result = np.asarray(evaluate(attributes["expression"], operands))
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        return [converted(np.broadcast_to(result, shape), dtype)]


def converted(array: Array, dtype: np.dtype[Any]) -> Array:
    """The array in another type, without warnings; C-contiguous. Extents stay what they are."""
    if array.dtype == object and dtype.kind in "iu":
        return array
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(array.astype(dtype)).reshape(array.shape)


# ---------------------------------------------------------------- reduce


def _mean(x: Array, axis: tuple[int, ...]) -> Any:
    """Of no elements no number, without NumPy's warning."""
    return np.sum(x, axis=axis) / np.prod([x.shape[it] for it in axis])


_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "mean": _mean,
    "max": np.max,
    "min": np.min,
    "product": np.prod,
}


def reduced_shape(shape: tuple[int, ...], axes: tuple[int, ...], keeps: bool) -> tuple[int, ...]:
    """The shape without these axes, or with 1 for them."""
    if keeps:
        return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def _infer_reduce(values: Values, attributes: Attributes) -> list[Result]:
    x = there(values[0])
    axes = tuple(axis_within(axis, len(x.shape)) for axis in attributes["axes"])
    return [(reduced_shape(x.shape, axes, attributes["keepdims"]), x.dtype)]


def _compute_reduce(arrays: Arrays, attributes: Attributes) -> list[Any]:
    x = arrays[0]
    axes = tuple(axis % x.ndim for axis in attributes["axes"])
    name = attributes["function"]
    shape = reduced_shape(x.shape, axes, attributes["keepdims"])
    if not axes:
        return [x]
    if name in ("max", "min"):
        limit = _limit_of(x.dtype, name == "max")
        result = _REDUCTIONS[name](x, axis=axes, initial=limit)
    else:
        with np.errstate(all="ignore"):
            result = _REDUCTIONS[name](widened(x), axis=axes)
    return [converted(np.asarray(result), x.dtype).reshape(shape)]


def _limit_of(dtype: np.dtype[Any], is_least: bool) -> Any:
    if dtype.kind == "b":
        return not is_least
    if np.issubdtype(dtype, np.integer):
        return np.iinfo(dtype).min if is_least else np.iinfo(dtype).max
    return dtype.type(-np.inf if is_least else np.inf)


# ---------------------------------------------------------------- softmax and normalisations


def _infer_alike(values: Values, attributes: Attributes) -> list[Result]:
    x = there(values[0])
    if "axis" in attributes:
        axis_within(attributes["axis"], len(x.shape))
    return [(x.shape, x.dtype)]


def _compute_softmax(arrays: Arrays, attributes: Attributes) -> list[Any]:
    x = widened(arrays[0])
    axis = attributes["axis"]
    with np.errstate(all="ignore"):
        shifted = x - x.max(axis=axis, keepdims=True, initial=-np.inf)
        power = np.exp(shifted)
        total = power.sum(axis=axis, keepdims=True)
        result = shifted - np.log(total) if attributes["log"] else power / total
    return [converted(result, arrays[0].dtype)]


def _compute_normalize(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Over the last axes: the mean taken away unless it is RMS, then divided, scaled, shifted."""
    x, weight, bias = (None if array is None else widened(array) for array in arrays)
    assert x is not None
    axes = tuple(range(x.ndim - attributes["axes"], x.ndim))
    if not attributes["rms"]:
        x = x - x.mean(axis=axes, keepdims=True)
    y = x / np.sqrt((x * x).mean(axis=axes, keepdims=True) + attributes["epsilon"])
    y = y if weight is None else y * weight
    y = y if bias is None else y + bias
    return [converted(y, arrays[0].dtype)]


def _infer_add_normalize(values: Values, attributes: Attributes) -> list[Result]:
    """The normalised sum of the first two operands, and the sum."""
    x = there(values[0])
    return [(x.shape, x.dtype)] * 2


def _compute_add_normalize(arrays: Arrays, attributes: Attributes) -> list[Any]:
    x, residual, *parameters = arrays
    total = converted(widened(x) + widened(residual), x.dtype)
    return [*_compute_normalize([total, *parameters], attributes), total]


def _compute_group_norm(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Of (N, C, ...), each group of channels of a sample by itself."""
    x, weight, bias = (None if array is None else widened(array) for array in arrays)
    assert x is not None
    rows = x.reshape(x.shape[0], attributes["groups"], -1)
    rows = rows - rows.mean(axis=2, keepdims=True)
    rows = rows / np.sqrt((rows * rows).mean(axis=2, keepdims=True) + attributes["epsilon"])
    y = rows.reshape(x.shape)
    channels = (1, -1) + (1,) * (x.ndim - 2)
    y = y if weight is None else y * weight.reshape(channels)
    y = y if bias is None else y + bias.reshape(channels)
    return [converted(y, arrays[0].dtype)]


# ---------------------------------------------------------------- 8 bits


def _along(array: Any, rank: int, axis: int) -> Array:
    """A number, or numbers along an axis, shaped to be broadcast."""
    array = np.asarray(array)
    if array.size == 1:
        return np.asarray(array.reshape(()))
    shape = [1] * rank
    shape[axis % rank] = -1
    return np.asarray(array.reshape(shape))


def _infer_quantize(values: Values, attributes: Attributes) -> list[Result]:
    return [(there(values[0]).shape, np.dtype(attributes["dtype"]))]


def _compute_quantize(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """``saturate(round_half_even(x / scale) + zero_point)``; what is no number is the lowest."""
    x, scale, zero_point = arrays
    dtype = np.dtype(attributes["dtype"])
    limits = np.iinfo(dtype.name)
    scale = _along(scale, x.ndim, attributes["axis"]).astype(np.float32)
    zero = 0 if zero_point is None else _along(zero_point, x.ndim, attributes["axis"])
    with np.errstate(all="ignore"):
        q = np.rint(x.astype(np.float32) / scale) + np.asarray(zero, np.float32)
    return [np.minimum(np.fmax(q, limits.min), limits.max).astype(dtype)]


def _compute_dequantize(arrays: Arrays, attributes: Attributes) -> list[Any]:
    q, scale, zero_point = arrays
    scale = _along(scale, q.ndim, attributes["axis"])
    zero = 0 if zero_point is None else _along(zero_point, q.ndim, attributes["axis"])
    difference = q.astype(np.int64) - np.asarray(zero).astype(np.int64)
    result = difference.astype(np.float32) * scale.astype(np.float32)
    return [result.astype(attributes["dtype"])]


ELEMENTS = {
    "map": Operator("rows", _infer_map, _compute_map),
    "reduce": Operator("rows", _infer_reduce, _compute_reduce),
    "softmax": Operator("rows", _infer_alike, _compute_softmax),
    "normalize": Operator("rows", _infer_alike, _compute_normalize),
    "add_normalize": Operator("rows", _infer_add_normalize, _compute_add_normalize),
    "group_norm": Operator("rows", _infer_alike, _compute_group_norm),
    "quantize": Operator("rows", _infer_quantize, _compute_quantize),
    "dequantize": Operator("rows", _infer_quantize, _compute_dequantize),
}
