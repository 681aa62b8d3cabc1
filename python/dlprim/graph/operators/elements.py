"""Elements: maps, reductions, conversions to 8 bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.graph.derivatives import differentiated, times
from dlprim.graph.expressions import (
    Expression,
    evaluate,
    functions_of,
    inputs_of,
    number,
    numbers_of,
    operand,
    substituted,
)
from dlprim.graph.extents import Extent, plain
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

_HALVES = ("bfloat16", "float16")
_EQUAL = ("equal", operand(0), operand(1))
_FLOATS = (*_HALVES, "float32", "float64")


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


def _note_range(expression: Expression, dtypes: Sequence[np.dtype[Any]]) -> None:
    """Has a recording note whether integers hold its numbers: others are refused, or compared."""
    ranges = [np.iinfo(it) for it in set(dtypes) if it.kind in "iu"]
    for it in numbers_of(expression) if ranges else ():
        if isinstance(it, Extent) and isinstance(it.value, int):
            all(within.min <= it <= within.max for within in ranges)


def _infer_map(values: Values, attributes: Attributes) -> list[Result]:
    expression, dtypes = attributes["expression"], tuple(there(value).dtype for value in values)
    _note_range(expression, dtypes)
    _require_types(plain(expression), dtypes)
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


def is_differentiable(value: Value | None) -> bool:
    """Whether the value holds floats: integers and conditions carry no gradient."""
    return value is not None and np.dtype(value.dtype).name in _FLOATS


def of_elements(b: Builder, expression: Expression, values: Sequence[Value], like: Value) -> Value:
    """The expression of those of the values that it reads, in the type of another, summed to it."""
    if expression[0] == "input":
        made = values[expression[1]]
    else:
        read = sorted(set(inputs_of(expression)))
        places = [operand(read.index(it) if it in read else 0) for it in range(len(values))]
        inputs = [values[it] for it in read] or [like]  # whose shape a number has
        made = b.map(substituted(expression, places), *inputs, dtype=like.dtype)
    return b.cast(b.sum_to(made, like.shape), like.dtype)


def _map_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    """Of one that says ``stops`` there is none."""
    count = len(node.inputs)
    if node.attributes.get("stops"):
        return [None] * count
    values = [*map(there, node.inputs), there(diffs[0]), node.output]
    found = differentiated(node.attributes["expression"], operand(count), operand(count + 1))
    return [
        of_elements(b, found[place], values, value)
        if place in found and is_differentiable(value)
        else None
        for place, value in enumerate(values[:count])
    ]


# ---------------------------------------------------------------- reduce


def _mean(x: Array, axis: tuple[int, ...]) -> Any:
    """Of no elements no number, without NumPy's warning; of integers whole, towards 0."""
    total, count = np.sum(x, axis=axis), math.prod(x.shape[it] for it in axis)
    if x.dtype.kind in "iu":
        return (total - np.fmod(total, count)) // count if count else total
    return total / np.float64(count)


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
    """In the type of x, or of the attribute ``dtype``."""
    x = there(values[0])
    axes = tuple(axis_within(axis, len(x.shape)) for axis in attributes["axes"])
    shape = reduced_shape(x.shape, axes, attributes["keepdims"])
    return [(shape, np.dtype(attributes.get("dtype", x.dtype)))]


def _compute_reduce(arrays: Arrays, attributes: Attributes) -> list[Any]:
    x = arrays[0]
    axes = tuple(axis % x.ndim for axis in attributes["axes"])
    name = attributes["function"]
    shape = reduced_shape(x.shape, axes, attributes["keepdims"])
    dtype = np.dtype(attributes.get("dtype", x.dtype))
    if not axes:
        return [x.astype(dtype, copy=False)]
    if name in ("max", "min"):
        limit = _limit_of(x.dtype, name == "max")
        result = _REDUCTIONS[name](x, axis=axes, initial=limit)
    else:
        with np.errstate(all="ignore"):
            result = _REDUCTIONS[name](widened(x), axis=axes)
    return [converted(np.asarray(result), dtype).reshape(shape)]


def _reduce_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    """Equal extremes share the gradient. A product's factor gets that of all the others."""
    (x,), name = node.operands, node.attributes["function"]
    axes = tuple(axis % len(x.shape) for axis in node.attributes["axes"])
    kept = reduced_shape(x.shape, axes, True)
    diff = b.cast(b.reshape(there(diffs[0]), kept), x.dtype)
    if name in ("max", "min"):
        is_extreme = b.map(_EQUAL, x, b.reshape(node.output, kept), dtype=x.dtype)
        share = b.apply("divide", diff, b.reduce("sum", is_extreme, axes, keepdims=True))
        return [b.map(("multiply", operand(0), operand(1)), is_extreme, share)]
    if name == "product":
        return [b.apply("multiply", _products_of_others(b, x, axes), diff)]
    if name == "mean":
        count = math.prod(x.shape[axis] for axis in axes)
        diff = b.map(times(number(1 / max(1, count)), operand(0)), diff)
    return [b.expand(diff, x.shape)]


def _products_of_others(b: Builder, x: Value, axes: tuple[int, ...]) -> Value:
    """For each element the product of the others that are reduced with it, zeros among them."""
    order = (*(it for it in range(len(x.shape)) if it not in axes), *axes)
    moved = b.transpose(x, order)
    rows = b.reshape(
        moved, (*moved.shape[: len(x.shape) - len(axes)], math.prod(x.shape[axis] for axis in axes))
    )
    both = [
        b.call(
            "running_product",
            [rows],
            [(rows.shape, rows.dtype)],
            axis=len(rows.shape) - 1,
            exclusive=True,
            reverse=is_reverse,
        )[0]
        for is_reverse in (False, True)
    ]
    back = tuple(order.index(axis) for axis in range(len(order)))
    return b.transpose(b.reshape(b.apply("multiply", *both), moved.shape), back)


def _limit_of(dtype: np.dtype[Any], is_least: bool) -> Any:
    if dtype.kind == "b":
        return not is_least
    if np.issubdtype(dtype, np.integer):
        return np.iinfo(dtype).min if is_least else np.iinfo(dtype).max
    return dtype.type(-np.inf if is_least else np.inf)


# ---------------------------------------------------------------- 8 bits

# Of operators that compute in 8 bits.
NO_GRADIENT = "8-bit integers, which go in steps, stand for its numbers"


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
    "map": Operator("rows", _infer_map, _compute_map, _map_gradient),
    "reduce": Operator("rows", _infer_reduce, _compute_reduce, _reduce_gradient),
    "quantize": Operator("rows", _infer_quantize, _compute_quantize, NO_GRADIENT),
    "dequantize": Operator("rows", _infer_quantize, _compute_dequantize, NO_GRADIENT),
}
