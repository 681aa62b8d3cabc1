"""Products: matrices, sums of Einstein's kind, attention."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.graph.derivatives import differentiated
from dlprim.graph.expressions import FUNCTIONS, operand
from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.operators.elements import broadcast_shape, converted, of_elements
from dlprim.graph.operators.operator import (
    Arrays,
    Attributes,
    Operator,
    Result,
    Values,
    summands,
    there,
    widened,
)

if TYPE_CHECKING:
    from dlprim.graph.builder import Builder


def finished(sums: Array, bias: Any, residual: Any, attributes: Attributes) -> Array:
    """The activation of sums, a bias in their shape and an array like the result."""
    with np.errstate(all="ignore"):
        sums = sums if bias is None else sums + widened(bias)
        sums = sums if residual is None else sums + widened(residual)
        activation = attributes.get("activation")
        return np.asarray(sums if activation is None else FUNCTIONS[activation].compute(sums))


def _infer_matmul(values: Values, attributes: Attributes) -> list[Result]:
    """As numpy.matmul, then a bias of the last axis and an activation where they are there.

    Of integers the sums are of the attribute ``dtype``.
    """
    a, b = there(values[0]), there(values[1])
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    if not a.shape or not b.shape or left[-1] != right[-2]:
        raise ValueError(f"matrices of {list(a.shape)} and {list(b.shape)} cannot be multiplied")
    shape = list(broadcast_shape(left[:-2], right[:-2]))
    shape += [left[-2]] * (len(a.shape) > 1) + [right[-1]] * (len(b.shape) > 1)
    return [(tuple(shape), np.dtype(attributes.get("dtype", a.dtype)))]


def in_whole(sums: Array, factor: Array) -> Array:
    """Sums of products of integers as integers, from which they are cut to fewer bits."""
    return sums.astype(np.int64) if np.asarray(factor).dtype.kind in "iu" else sums


def _compute_matmul(arrays: Arrays, attributes: Attributes) -> list[Any]:
    a, b, bias = (*arrays, None)[:3]
    dtype = np.dtype(attributes.get("dtype", a.dtype))
    with np.errstate(all="ignore"):
        sums = in_whole(np.asarray(np.matmul(*summands(a, b))), a)
    return [converted(finished(sums, bias, None, attributes), dtype)]


def before_activation(b: Builder, node: Node, diff: Value) -> Value:
    """The gradient by what the activation of a product is applied to."""
    activation = node.attributes.get("activation")
    if activation is None:
        return diff
    expression = differentiated((activation, operand(0)), operand(1), operand(2))[0]
    sums = b.emit(node.operator, node.inputs, **{**node.attributes, "activation": None})[0]
    return of_elements(b, expression, [sums, diff, node.output], diff)


def _matmul_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    """Of vectors as of matrices of one row or column."""
    left, right = node.operands[:2]
    diff = before_activation(b, node, there(diffs[0]))
    bias = b.sum_to(diff, node.operands[2].shape) if len(node.operands) > 2 else None
    wide = list(diff.shape)
    if len(right.shape) == 1:
        wide.append(1)
    if len(left.shape) == 1:
        wide.insert(len(wide) - 1, 1)
    diff = b.cast(b.reshape(diff, wide), left.dtype)
    rows = b.reshape(left, (1, *left.shape)) if len(left.shape) == 1 else left
    columns = b.reshape(right, (*right.shape, 1)) if len(right.shape) == 1 else right
    by_left = b.sum_to(b.matmul(diff, _turned(b, columns)), rows.shape)
    if len(columns.shape) == 2:  # one product of all rows, and no sum of products
        rows, diff = (
            b.reshape(it, (it.size // max(1, it.shape[-1]), it.shape[-1])) for it in (rows, diff)
        )
    by_right = b.sum_to(b.matmul(_turned(b, rows), diff), columns.shape)
    by = [b.reshape(by_left, left.shape), b.cast(b.reshape(by_right, right.shape), right.dtype)]
    return [*by, bias][: len(node.inputs)]


def _turned(b: Builder, x: Value) -> Value:
    """Matrices with their last axes exchanged."""
    axes = list(range(len(x.shape)))
    return b.transpose(x, [*axes[:-2], axes[-1], axes[-2]])


def _infer_einsum(values: Values, attributes: Attributes) -> list[Result]:
    """As numpy.einsum, of an equation with "->" but no "..."; extents of 1 are repeated."""
    written, _, result = attributes["equation"].partition("->")
    extents: dict[str, int] = {}
    for term, value in zip(written.split(","), values, strict=True):
        for letter, extent in zip(term, there(value).shape, strict=True):
            known = extents.setdefault(letter, extent)
            if 1 not in (known, extent) and known != extent:
                raise ValueError(f"{letter} of {written} is both {known} and {extent}")
            extents[letter] = known if extent == 1 else extent
    return [(tuple(extents[letter] for letter in result), there(values[0]).dtype)]


def _compute_einsum(arrays: Arrays, attributes: Attributes) -> list[Any]:
    result = np.einsum(attributes["equation"], *(widened(it) for it in arrays), optimize=True)
    return [converted(np.asarray(result), arrays[0].dtype)]


# ---------------------------------------------------------------- attention


def _infer_attention(values: Values, attributes: Attributes) -> list[Result]:
    """q (N, H, Q, D), k (N, Hk, K, D), v (N, Hk, K, E) -> (N, H, Q, E); H is a multiple of Hk."""
    q, k, v = (there(value) for value in values[:3])
    if len(q.shape) != 4 or q.shape[1] % max(1, k.shape[1]) or k.shape[:3] != v.shape[:3]:
        raise ValueError(
            f"q of {list(q.shape)}, k of {list(k.shape)} and v of {list(v.shape)} do not fit"
        )
    return [((*q.shape[:3], v.shape[3]), q.dtype)]


def softmax_of_scores(products: Array, mask: Any, attributes: Attributes) -> Array:
    """The weights of attention. Rows without any key are zeros."""
    scores = attributes["scale"] * products
    if attributes.get("softcap"):
        scores = attributes["softcap"] * np.tanh(scores / attributes["softcap"])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if attributes["causal"]:
        rows, columns = scores.shape[-2:]
        scores = np.where(np.tri(rows, columns, dtype=bool), scores, -np.inf)
    highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    power = np.exp(scores - np.where(np.isneginf(highest), 0, highest))
    total = power.sum(axis=-1, keepdims=True)
    return np.asarray(np.where(total == 0, 0, power / total))


def _compute_attention(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Rows without any key are zeros. The mask is added, or says where keys are looked at."""
    q, k, v = (widened(array) for array in arrays[:3])
    mask = arrays[3] if len(arrays) > 3 else None
    k, v = (np.repeat(it, q.shape[1] // max(1, k.shape[1]), axis=1) for it in (k, v))
    with np.errstate(all="ignore"):
        weights = softmax_of_scores(q @ k.swapaxes(-1, -2), mask, attributes)
        return [converted(weights @ v, arrays[0].dtype)]


def attention_scale(size: int) -> float:
    """What scores are multiplied by where a model does not say it."""
    return 1 / math.sqrt(max(1, size))


PRODUCTS = {
    "matmul": Operator("contract", _infer_matmul, _compute_matmul, _matmul_gradient),
    "einsum": Operator("contract", _infer_einsum, _compute_einsum, "later"),
    "attention": Operator("contract", _infer_attention, _compute_attention, "later"),
}
