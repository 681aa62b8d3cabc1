"""Sums of integers that a model converts to floats at once: a product with a float result.

So do models that quantise activations as they run: their zero points and scales are computed, and
stand behind the product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dlprim.graph.expressions import Expression
from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.passes.draft import Draft

_SAME: Expression = ("input", 0)
_LESS_PRODUCT: Expression = ("subtract", _SAME, ("multiply", ("input", 1), ("input", 2)))
_MOST_SUM = 2**31 - 1
_MOST_LEFT = 255  # of |x - zero_point|


class _Sums(NamedTuple):
    """An integer product, and the zero point times sums of weights that is taken away."""

    product: Node
    columns: Value | None
    zero: Value | None


def float_sums(draft: Draft, node: Node) -> Sequence[Value] | None:
    """What converts sums of 32 bits to float32 becomes the product's own end.

    Bytes from 0 on are centred, so that sums below 2^24 are exact in float32 for weights whose
    sizes sum up to 2^17, and what zero points add is rounded once, with them.
    """
    if node.attributes["expression"] != _SAME or node.output.dtype != np.float32:
        return None
    found = _sums_of(draft, node.operands[0])
    weights = None if found is None else draft.constants.get(found.product.operands[1])
    if found is None or weights is None or not _is_multiplied(found.product, weights):
        return None
    x, w = found.product.operands
    is_matmul = found.product.operator == "matmul"
    # Padding is zeros, which stand for no other byte.
    is_padded = any(any(sides) for sides in found.product.attributes.get("padding", ()))
    center = 128 if x.dtype == np.uint8 and not is_padded else 0
    summed = 0 if is_matmul else tuple(range(1, weights.ndim))
    shift = None
    if found.zero is None and center:
        added = center * weights.astype(np.int64).sum(axis=summed)
        shift = draft.constant(added.astype(np.float32), f"{node.name}.bias")
    ones = np.ones(weights.shape[1 if is_matmul else 0], np.float32)
    attributes = {
        **found.product.attributes,
        "x_zero_point": center,
        "y_zero_point": 0,
        "dtype": "float32",
        "residual_scale": 1.0,
        "inner": None,
        "lowest": -math.inf,
        "highest": math.inf,
    }
    operator = f"quantized_{found.product.operator}"
    inputs = [x, w, draft.constant(ones, f"{node.name}.scale"), shift, None]
    results = draft.emit(operator, inputs, found.product.name, **attributes)
    if found.zero is None or found.columns is None:
        return results
    columns = draft.constants[found.columns].astype(np.float32)
    constant = draft.constant(columns, f"{node.name}.columns")
    taken = ("multiply", ("input", 1), ("subtract", ("input", 2), ("number", float(center))))
    expression = ("subtract", _SAME, taken)
    operands = [results[0], constant, found.zero]
    return draft.emit("map", operands, node.name, expression=expression, dtype="float32")


def _sums_of(draft: Draft, value: Value) -> _Sums | None:
    if value.dtype != np.int32:
        return None
    product = draft.only_maker(value, "matmul", "convolution")
    if product is not None:
        return _Sums(product, None, None)
    taken = draft.only_maker(value, "map")
    if taken is None or taken.attributes["expression"] != _LESS_PRODUCT:
        return None
    sums, columns, zero = taken.operands
    product = draft.only_maker(sums, "matmul", "convolution")
    if product is None or columns not in draft.constants:
        return None
    known = draft.constants.get(zero)
    if known is not None:
        return _Sums(product, columns, draft.constant(known.astype(np.float32), zero.name))
    cast = draft.maker(zero, "map")
    if cast is None or cast.attributes["expression"] != _SAME:
        return None
    (byte,) = cast.operands
    if byte.dtype.name not in ("uint8", "int8"):
        return None
    attributes = {"expression": _SAME, "dtype": "float32"}
    return _Sums(product, columns, draft.emit("map", [byte], zero.name, **attributes)[0])


def _is_multiplied(product: Node, weights: Array) -> bool:
    """Whether there is a product of integers for it, whose sums stay within 32 bits."""
    x, rank = product.operands[0], 2 if product.operator == "matmul" else weights.ndim
    if x.dtype.name not in ("uint8", "int8") or weights.dtype != np.int8:
        return False
    if len(product.operands) != 2 or weights.ndim != rank or len(x.shape) < 2 or rank > 4:
        return False
    summed = 0 if product.operator == "matmul" else tuple(range(1, weights.ndim))
    sums = np.abs(weights.astype(np.int64)).sum(axis=summed)
    return bool(sums.size) and int(sums.max()) * _MOST_LEFT <= _MOST_SUM
