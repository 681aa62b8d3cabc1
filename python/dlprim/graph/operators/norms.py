"""Rows that are normalised: softmax, layer norm, RMS norm, group norm."""

from __future__ import annotations

import math
from collections.abc import Container
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Node, Value
from dlprim.graph.operators.elements import converted
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


# ---------------------------------------------------------------- softmax


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


def _softmax_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    return list(b.emit("softmax_gradient", [diffs[0], node.output], **node.attributes))


# ---------------------------------------------------------------- normalisations


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


def _rows_of_groups(shape: tuple[int, ...], groups: int) -> tuple[int, int, int]:
    return shape[0], groups, math.prod(shape[1:]) // groups


def normalises_alone(node: Node, constants: Container[Value]) -> bool:
    """Whether each channel of a `group_norm` is a group and its parameters are constants."""
    x, *parameters = node.operands
    is_alone = node.attributes["groups"] == x.shape[1] and len(parameters) == 2
    is_computed = x.dtype.name in ("float32", "bfloat16")
    return is_alone and is_computed and x.size > 0 and all(it in constants for it in parameters)


def _compute_group_norm(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Of (N, C, ...), each group of channels of a sample by itself."""
    x, weight, bias = (None if array is None else widened(array) for array in arrays)
    assert x is not None
    rows = x.reshape(_rows_of_groups(x.shape, attributes["groups"]))
    rows = rows - rows.mean(axis=2, keepdims=True)
    rows = rows / np.sqrt((rows * rows).mean(axis=2, keepdims=True) + attributes["epsilon"])
    y = rows.reshape(x.shape)
    channels = (1, -1) + (1,) * (x.ndim - 2)
    y = y if weight is None else y * weight.reshape(channels)
    y = y if bias is None else y + bias.reshape(channels)
    return [converted(y, arrays[0].dtype)]


# ---------------------------------------------------------------- gradients


class Rows(NamedTuple):
    """x as rows of this shape, normalised over axes, and its parameters as they are spread."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    parameters: tuple[int, ...]


def _normalised(b: Builder, x: Value, axes: tuple[int, ...], form: Attributes) -> tuple[Value, ...]:
    """The rows normalised, and what they were multiplied by."""
    if not form["rms"]:
        x = b.apply("subtract", x, b.reduce("mean", x, axes, keepdims=True))
    squares = b.reduce("mean", b.apply("multiply", x, x), axes, keepdims=True)
    root: Expression = ("sqrt", ("add", operand(0), number(form["epsilon"])))
    factor = b.map(("divide", number(1.0), root), squares)
    return b.apply("multiply", x, factor), factor


def _through(
    b: Builder, diff: Value, made: tuple[Value, ...], axes: tuple[int, ...], rms: bool
) -> Value:
    """The gradient by what rows were made of."""
    y, factor = made
    along = b.reduce("mean", b.apply("multiply", diff, y), axes, keepdims=True)
    rest: Expression = ("subtract", operand(0), ("multiply", operand(1), operand(2)))
    inputs = [diff, y, along, factor]
    if not rms:
        inputs.append(b.reduce("mean", diff, axes, keepdims=True))
        rest = ("subtract", rest, operand(4))
    return b.map(("multiply", operand(3), rest), *inputs)


def written_gradients(
    b: Builder, operands: Values, diff: Value, form: Attributes, rows: Rows
) -> list[Value | None]:
    """By x, weight and bias, as reductions and maps."""
    x, weight, bias = there(operands[0]), operands[1], operands[2]
    single, wide = _wide(b, x), _wide(b, diff)
    made = _normalised(b, b.reshape(single, rows.shape), rows.axes, form)
    by_weight, by_bias, inner = None, None, wide
    if weight is not None:
        spread = b.reshape(weight, rows.parameters)
        product = b.apply("multiply", wide, b.reshape(made[0], x.shape))
        by_weight = b.cast(b.reshape(b.sum_to(product, spread.shape), weight.shape), weight.dtype)
        inner = b.apply("multiply", wide, spread)
    if bias is not None:
        by_bias = b.cast(b.reshape(b.sum_to(wide, rows.parameters), bias.shape), bias.dtype)
    by_x = _through(b, b.reshape(inner, rows.shape), made, rows.axes, form["rms"])
    return [b.cast(b.reshape(by_x, x.shape), x.dtype), by_weight, by_bias]


def _wide(b: Builder, x: Value) -> Value:
    """Halves in float32, in which statistics are taken."""
    return b.cast(x, np.float32) if x.dtype.itemsize == 2 else x


def _normalize_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    return _of_last_axes(b, node.inputs, there(diffs[0]), node.attributes)


def _of_last_axes(
    b: Builder, operands: Values, diff: Value, form: Attributes
) -> list[Value | None]:
    """By x, weight and bias."""
    x, weight, bias = there(operands[0]), operands[1], operands[2]
    by_x, by_weight, *rest = b.emit("normalize_gradient", [diff, x, weight, None], **form)
    found: list[Value | None] = [by_x, None, None]
    if weight is not None:
        found[1] = _fitted(b, by_weight, weight)
    if bias is not None:
        found[2] = _fitted(b, rest[0] if rest else b.sum_to(_wide(b, diff), bias.shape), bias)
    return found


def _fitted(b: Builder, diff: Value, like: Value) -> Value:
    """The gradient by a parameter in its shape, from which it was broadcast, and its type."""
    is_whole = diff.size == like.size
    made = b.reshape(diff, like.shape) if is_whole else b.sum_to(diff, like.shape)
    return b.cast(made, like.dtype)


def _add_normalize_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    by_y, by_total = diffs
    by_parameters: list[Value | None] = [None, None]
    if by_y is not None:
        operands = (node.outputs[1], *node.inputs[2:])
        by_x, *by_parameters = _of_last_axes(b, operands, by_y, node.attributes)
        by_total = by_x if by_total is None else b.apply("add", there(by_x), by_total)
    return [by_total, by_total, *by_parameters]


def _group_norm_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    x, groups = there(node.inputs[0]), node.attributes["groups"]
    shape = _rows_of_groups(x.shape, groups)
    rows = Rows(shape, (2,), (x.shape[1],) + (1,) * (len(x.shape) - 2))
    form = {**node.attributes, "rms": False}
    return written_gradients(b, node.inputs, there(diffs[0]), form, rows)


NORMS = {
    "softmax": Operator("rows", _infer_alike, _compute_softmax, _softmax_gradient),
    "normalize": Operator("rows", _infer_alike, _compute_normalize, _normalize_gradient),
    "add_normalize": Operator(
        "rows", _infer_add_normalize, _compute_add_normalize, _add_normalize_gradient
    ),
    "group_norm": Operator("rows", _infer_alike, _compute_group_norm, _group_norm_gradient),
}
