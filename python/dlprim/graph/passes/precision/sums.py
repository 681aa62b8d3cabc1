"""Sums of integers that a model converts to floats at once: products with a float result.

So do models that quantise activations as they run: their zero points and scales are computed, and
stand behind the product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dlprim.graph.expressions import Expression, functions_of
from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.passes.draft import Draft

_SAME: Expression = ("input", 0)
_LESS_PRODUCT: Expression = ("subtract", _SAME, ("multiply", ("input", 1), ("input", 2)))
_RING = {"add", "subtract", "multiply"}
_PRODUCTS = ("matmul", "convolution")
_MOST_SUM = 2**31 - 1
_MOST_LEFT = 255  # of |x - zero_point|


def float_sums(draft: Draft, node: Node) -> Sequence[Value] | None:
    """What makes sums of 32 bits that become float32 is computed in float32 from the products on.

    Bytes from 0 on are centred, so that sums below 2^24 are exact in float32 for weights whose
    sizes sum up to 2^17, and what zero points add is rounded once, with them.
    """
    if node.attributes["expression"] != _SAME or node.output.dtype != np.float32:
        return None
    value = node.operands[0]
    if value.dtype != np.int32 or not _is_of_products(draft, value):
        return None
    return [_floats(draft, value)]


def _is_of_products(draft: Draft, value: Value) -> bool:
    """Whether products of bytes make it, of which sums and products of maps are made."""
    if value in draft.constants or _byte(draft, value) is not None:
        return True
    product = draft.only_maker(value, *_PRODUCTS)
    if product is not None:
        return _is_multiplied(product, draft.constants.get(product.operands[1]))
    node = draft.only_maker(value, "map")
    if node is None or value.dtype != np.int32:
        return False
    is_ring = functions_of(node.attributes["expression"]) <= _RING
    return is_ring and all(_is_of_products(draft, it) for it in node.operands)


def _byte(draft: Draft, value: Value) -> Value | None:
    """The bytes of which it is the same numbers."""
    node = draft.maker(value, "map")
    if node is None or node.attributes["expression"] != _SAME:
        return None
    (byte,) = node.operands
    return byte if byte.dtype.name in ("uint8", "int8") else None


def _floats(draft: Draft, value: Value) -> Value:
    """The same numbers in float32."""
    constant, byte = draft.constants.get(value), _byte(draft, value)
    if constant is not None:
        return draft.constant(constant.astype(np.float32), value.name)
    if byte is not None:
        attributes = {"expression": _SAME, "dtype": "float32"}
        return draft.emit("map", [byte], value.name, **attributes)[0]
    node = draft.makers[value]
    if node.operator in _PRODUCTS:
        return _product(draft, node, 0)
    operands = list(node.operands)
    expression = node.attributes["expression"]
    center = _center(draft, node)
    if center:
        product = draft.makers[operands[0]]
        floats = [_product(draft, product, center), *(_floats(draft, it) for it in operands[1:])]
        shifted = ("subtract", ("input", 2), ("number", float(center)))
        expression = ("subtract", _SAME, ("multiply", ("input", 1), shifted))
    else:
        floats = [_floats(draft, it) for it in operands]
    return draft.emit("map", floats, node.name, expression=expression, dtype="float32")[0]


def _center(draft: Draft, node: Node) -> int:
    """What is taken from bytes in front of a product, as zero points times sums of weights are."""
    if node.attributes["expression"] != _LESS_PRODUCT:
        return 0
    product = draft.maker(node.operands[0], *_PRODUCTS)
    weights = None if product is None else draft.constants.get(product.operands[1])
    columns = draft.constants.get(node.operands[1])
    if product is None or weights is None or columns is None:
        return 0
    is_sum = np.array_equal(columns.reshape(-1), weights.sum(_summed(product), np.int32))
    return _center_of(product) if is_sum else 0


def _center_of(product: Node) -> int:
    # Padding is zeros, which stand for no other byte.
    is_padded = any(any(sides) for sides in product.attributes.get("padding", ()))
    return 128 if product.operands[0].dtype == np.uint8 and not is_padded else 0


def _product(draft: Draft, product: Node, taken: int) -> Value:
    """The product with a float result, less what was taken from bytes times sums of weights."""
    x, w = product.operands
    weights, center = draft.constants[w], _center_of(product)
    shift, ones = None, np.ones(product.output.shape[_channels(product)], np.float32)
    if center != taken:
        added = center * weights.astype(np.int64).sum(_summed(product))
        shift = draft.constant(added.astype(np.float32), f"{product.name}.bias")
    attributes = {
        **product.attributes,
        "x_zero_point": center,
        "y_zero_point": 0,
        "dtype": "float32",
        "residual_scale": 1.0,
        "inner": None,
        "lowest": -math.inf,
        "highest": math.inf,
    }
    inputs = [x, w, draft.constant(ones, f"{product.name}.scale"), shift, None]
    return draft.emit(f"quantized_{product.operator}", inputs, product.name, **attributes)[0]


def _summed(product: Node) -> tuple[int, ...]:
    """Axes of weights."""
    rank = len(product.operands[1].shape)
    return (0,) if product.operator == "matmul" else tuple(range(1, rank))


def _channels(product: Node) -> int:
    return -1 if product.operator == "matmul" else 1


def _is_multiplied(product: Node, weights: Array | None) -> bool:
    """Whether there is a product of integers for it, whose sums stay within 32 bits."""
    x, is_matmul = product.operands[0], product.operator == "matmul"
    if weights is None or x.dtype.name not in ("uint8", "int8") or weights.dtype != np.int8:
        return False
    is_open = len(product.operands) == 2 and len(x.shape) >= 2
    if not is_open or weights.ndim > 4 or (is_matmul and weights.ndim != 2):
        return False
    sums = np.abs(weights.astype(np.int64)).sum(_summed(product))
    return bool(sums.size) and int(sums.max()) * _MOST_LEFT <= _MOST_SUM
