"""Gradients of softmaxes and of norms along the last axes, as operators of their own.

Each is one pass over memory, as training runs them all the time. What their own gradients are made
of, which few ask for, is written out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.graph.expressions import operand
from dlprim.graph.graph import Node, Value
from dlprim.graph.operators.elements import converted
from dlprim.graph.operators.norms import Rows, written_gradients
from dlprim.graph.operators.operator import (
    Arrays,
    Attributes,
    Operator,
    Result,
    Values,
    as_written,
    there,
    widened,
)

if TYPE_CHECKING:
    from dlprim.graph.builder import Builder

_PRODUCT = ("multiply", operand(0), operand(1))


def _infer_softmax_gradient(values: Values, attributes: Attributes) -> list[Result]:
    y = there(values[1])
    return [(y.shape, y.dtype)]


def _compute_softmax_gradient(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Of the gradient by a softmax and the softmax."""
    diff, y = map(widened, arrays)
    axis = attributes["axis"]
    with np.errstate(all="ignore"):
        if attributes["log"]:
            result = diff - np.exp(y) * diff.sum(axis=axis, keepdims=True)
        else:
            result = y * (diff - (diff * y).sum(axis=axis, keepdims=True))
    return [converted(result, arrays[1].dtype)]


def _written_softmax_gradient(b: Builder, node: Node) -> list[Value | None]:
    (diff, y), axes = node.operands, (node.attributes["axis"],)
    if node.attributes["log"]:
        total = b.reduce("sum", diff, axes, keepdims=True)
        share = ("multiply", ("exp", operand(1)), operand(2))
        return [b.map(("subtract", operand(0), share), diff, y, total)]
    total = b.reduce("sum", b.map(_PRODUCT, diff, y), axes, keepdims=True)
    return [b.map(("multiply", operand(1), ("subtract", operand(0), operand(2))), diff, y, total)]


def _infer_normalize_gradient(values: Values, attributes: Attributes) -> list[Result]:
    """Of the gradient by what was normalised, x, a weight, and what is added to the result.

    By x, by a weight and, unless it is of RMS, by a bias.
    """
    diff, x = there(values[0]), there(values[1])
    if diff.shape != x.shape:
        raise ValueError(f"the gradient of {list(x.shape)} is one of {list(diff.shape)}")
    shape = x.shape[len(x.shape) - attributes["axes"] :]
    dtype = np.dtype(np.float32) if x.dtype.itemsize == 2 else x.dtype
    return [(x.shape, x.dtype), *[(shape, dtype)] * (1 if attributes["rms"] else 2)]


def _compute_normalize_gradient(arrays: Arrays, attributes: Attributes) -> list[Any]:
    diff, x, weight, addend = (None if array is None else widened(array) for array in arrays)
    assert diff is not None
    assert x is not None
    axes = tuple(range(x.ndim - attributes["axes"], x.ndim))
    is_rms, lead = attributes["rms"], tuple(range(axes[0]))
    x = x if is_rms else x - x.mean(axis=axes, keepdims=True)
    factor = 1 / np.sqrt((x * x).mean(axis=axes, keepdims=True) + attributes["epsilon"])
    y = x * factor
    slope = diff if weight is None else diff * weight
    by_x = slope - y * (slope * y).mean(axis=axes, keepdims=True)
    by_x = factor * (by_x if is_rms else by_x - slope.mean(axis=axes, keepdims=True))
    sums = [(diff * y).sum(axis=lead), *([] if is_rms else [diff.sum(axis=lead)])]
    results = [by_x if addend is None else by_x + addend, *sums]
    expected = _infer_normalize_gradient(arrays, attributes)
    return [converted(it, dtype) for it, (_, dtype) in zip(results, expected, strict=True)]


def _written_normalize_gradient(b: Builder, node: Node) -> list[Value | None]:
    diff, x, weight, addend = node.inputs
    shape, by_weight = there(x).shape, node.outputs[1]
    axes = tuple(range(len(shape) - node.attributes["axes"], len(shape)))
    rows = Rows(shape, axes, by_weight.shape)
    factor = weight or b.constant(np.ones(by_weight.shape, by_weight.dtype), "ones")
    found = written_gradients(b, [x, factor, by_weight], there(diff), node.attributes, rows)
    if addend is not None:
        found[0] = b.apply("add", there(found[0]), addend)
    dtypes = [it.dtype for it in node.outputs]
    return [b.cast(there(it), dtype) for it, dtype in zip(found, dtypes, strict=False)]


NORM_GRADIENTS = {
    "softmax_gradient": Operator(
        "rows",
        _infer_softmax_gradient,
        _compute_softmax_gradient,
        as_written(_written_softmax_gradient),
    ),
    "normalize_gradient": Operator(
        "rows",
        _infer_normalize_gradient,
        _compute_normalize_gradient,
        as_written(_written_normalize_gradient),
    ),
}
