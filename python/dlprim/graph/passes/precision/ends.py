"""What stands behind products: biases, relu, clips, residuals and the way back into 8 bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dlprim.graph.expressions import Expression
from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.operators.quantized import limits
from dlprim.graph.passes.draft import Draft
from dlprim.graph.passes.precision.elements import map_bytes
from dlprim.graph.passes.precision.moves import bytes_of, may_move, move, moved_values
from dlprim.graph.passes.precision.parameters import (
    Bytes,
    Parameters,
    constants_of,
    known_floats,
    parameters_of,
)
from dlprim.graph.passes.precision.rounded_sums import add_rounded

_PRODUCTS = ("quantized_convolution", "quantized_matmul")
_ADD = ("add", ("input", 0), ("input", 1))
_RELU = ("relu", ("input", 0))
_NONE = (-math.inf, math.inf)


def _is_sum(node: Node) -> bool:
    return node.attributes["expression"] == _ADD and len(node.operands) == 2


def add_bias(draft: Draft, node: Node) -> Sequence[Value] | None:
    """A constant per channel that is added to a product becomes its bias."""
    if not _is_sum(node) or node.output.dtype != np.float32:
        return None
    for value, other in (node.operands, node.operands[::-1]):
        product = _open_product(draft, value)
        shift = known_floats(draft, other)
        if product is None or shift is None or value.shape != node.output.shape:
            continue
        channels = _per_channel(shift, product)
        if channels is not None:
            x, w, scale, bias, _ = product.inputs
            if bias is not None:
                channels = draft.constants[bias] + channels
            constant = draft.constant(channels, f"{node.name}.bias")
            inputs = [x, w, scale, constant, None]
            return draft.emit(product.operator, inputs, product.name, **product.attributes)
    return None


def relu(draft: Draft, node: Node) -> Sequence[Value] | None:
    """Behind a product with a float result it is a bound of that."""
    product = _open_product(draft, node.operands[0])
    is_alike = node.output.shape == node.operands[0].shape and node.output.dtype == np.float32
    if product is None or not is_alike or node.attributes["expression"] != _RELU:
        return None
    attributes = {**product.attributes, "lowest": 0.0}
    return draft.emit(product.operator, product.inputs, product.name, **attributes)


def quantize(draft: Draft, node: Node) -> Sequence[Value] | None:
    """Drops what quantises integers again, and ends what is in front of it in 8 bits."""
    parameters = parameters_of(draft, node)
    if parameters is None:
        return None
    value = _in_8_bits(draft, node.operands[0], parameters, node.name)
    return None if value is None else [value]


def _in_8_bits(draft: Draft, value: Value, parameters: Parameters, name: str) -> Value | None:
    """The value quantised without a `quantize` node, None where that cannot be."""
    known = bytes_of(draft, value)
    if known is not None and known.parameters == parameters:
        return known.value
    mover = draft.only_maker(value)
    if mover is not None and may_move(draft, mover):
        sources = [it for it in moved_values(mover) if it is not None]
        parts = [_in_8_bits(draft, it, parameters, name) for it in sources]
        if all(it is None for it in parts):
            return None
        scale, zero_point = constants_of(draft, parameters, name)
        attributes = {"axis": 0, "dtype": parameters.dtype}
        whole = [
            draft.emit("quantize", [source, scale, zero_point], name, **attributes)[0]
            if part is None
            else part
            for source, part in zip(sources, parts, strict=True)
        ]
        return move(draft, mover, whole, parameters)
    ended = _ended(draft, value, parameters, name)
    if ended is None:
        ended = add_rounded(draft, value, parameters, name)
    return ended if ended is not None else map_bytes(draft, value, parameters, name)


# ---------------------------------------------------------------- products that end in 8 bits


class _End(NamedTuple):
    """A product with what follows it up to a value."""

    product: Node
    residual: Bytes | None
    bounds: tuple[float, float]


def _ended(draft: Draft, value: Value, parameters: Parameters, name: str) -> Value | None:
    end = _end_of(draft, value, parameters)
    if end is None:
        return None
    x, w, scale, bias, _ = end.product.inputs
    assert scale is not None
    step = parameters.scale
    factor, residual, shift = 1.0, None, 0.0
    if end.residual is not None:
        residual = end.residual.value
        factor = end.residual.parameters.scale / step
        shift = -end.residual.parameters.zero_point * factor
    added = np.zeros(scale.shape) if bias is None else draft.constants[bias] / np.float64(step)
    added = (added + shift).astype(np.float32)
    scaled = (draft.constants[scale] / np.float64(step)).astype(np.float32)
    lowest, highest = _bounds(end.bounds, parameters)
    inputs = [
        x,
        w,
        draft.constant(scaled, f"{name}.scale"),
        draft.constant(added, f"{name}.bias") if added.any() else None,
        residual,
    ]
    attributes = {
        **end.product.attributes,
        "y_zero_point": parameters.zero_point,
        "dtype": parameters.dtype,
        "residual_scale": factor,
        "lowest": lowest,
        "highest": highest,
    }
    return draft.emit(end.product.operator, inputs, end.product.name, **attributes)[0]


def _bounds(bounds: tuple[float, float], parameters: Parameters) -> tuple[float, float]:
    """In steps; one that rounds to where saturation begins anyway is that."""
    room = limits(parameters.dtype, parameters.zero_point)
    kept = (float(np.clip(it / parameters.scale, *room)) for it in bounds)
    lowest, highest = (
        edge if np.rint(it) == edge else it for it, edge in zip(kept, room, strict=True)
    )
    return lowest, highest


def _end_of(draft: Draft, value: Value, parameters: Parameters) -> _End | None:
    bounds = _NONE
    while (node := draft.only_maker(value, "map")) is not None:
        clip = _clip(draft, node)
        if clip is None:
            break
        value = clip.value
        bounds = _composed(clip.bounds, bounds)
    if node is not None and _is_sum(node):
        for left, right in (node.operands, node.operands[::-1]):
            product = _open_product(draft, left)
            residual = bytes_of(draft, right)
            if product is None or residual is None or left.shape != right.shape:
                continue
            if residual.parameters.dtype == parameters.dtype:
                return _End(product, residual, bounds)
        return None
    product = draft.only_maker(value, *_PRODUCTS)
    if product is None or product.attributes["dtype"] != "float32":
        return None
    own = product.attributes["lowest"], product.attributes["highest"]
    return _End(product, None, _composed(own, bounds))


class _Clip(NamedTuple):
    value: Value
    bounds: tuple[float, float]


def _clip(draft: Draft, node: Node) -> _Clip | None:
    """A map that keeps its operand between two numbers."""

    def read(expression: Expression) -> tuple[Value, tuple[float, float]] | None:
        name, *parts = expression
        if name == "input":
            return node.operands[parts[0]], _NONE
        if name == "relu":
            parts, name = [*parts, ("number", 0.0)], "maximum"
        if name not in ("maximum", "minimum"):
            return None
        for it, limit in (parts, parts[::-1]):
            number = _number(draft, node, limit)
            inner = None if number is None else read(it)
            if number is not None and inner is not None:
                bound = (number, math.inf) if name == "maximum" else (-math.inf, number)
                return inner[0], _composed(inner[1], bound)
        return None

    found = read(node.attributes["expression"])
    if found is None or found[0].shape != node.output.shape or found[0].dtype != np.float32:
        return None
    return _Clip(*found) if node.output.dtype == np.float32 else None


def _number(draft: Draft, node: Node, expression: Expression) -> float | None:
    if expression[0] == "number":
        return float(expression[1])
    return draft.number(node.operands[expression[1]]) if expression[0] == "input" else None


def _composed(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """What is kept between two numbers, and then between two others."""
    lowest, highest = (min(max(it, second[0]), second[1]) for it in first)
    return lowest, highest


def _open_product(draft: Draft, value: Value) -> Node | None:
    """An integer product with a float result, of which nothing is bounded or added yet."""
    node = draft.only_maker(value, *_PRODUCTS)
    if node is None or node.attributes["dtype"] != "float32" or node.inputs[4] is not None:
        return None
    bounds = node.attributes["lowest"], node.attributes["highest"]
    return node if bounds == _NONE else None


def _per_channel(array: Array, product: Node) -> Array | None:
    """One number per channel of the product, if that is all the array has."""
    rank = len(product.output.shape)
    axis = 1 if product.operator == "quantized_convolution" else rank - 1
    shape = (1,) * (rank - array.ndim) + array.shape
    channels = product.output.shape[axis]
    if array.ndim > rank or any(n != 1 for it, n in enumerate(shape) if it != axis):
        return None
    return np.broadcast_to(array.reshape(-1), channels).astype(np.float32)
