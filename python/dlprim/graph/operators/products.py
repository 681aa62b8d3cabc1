"""Products: matrices, sums of Einstein's kind, attention."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.graph.derivatives import differentiated, over, plus, times, where
from dlprim.graph.expressions import FUNCTIONS, Expression, number, operand
from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.operators.elements import (
    broadcast_shape,
    converted,
    is_differentiable,
    of_elements,
)
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
            b.reshape(it, (math.prod(it.shape[:-1]), it.shape[-1])) for it in (rows, diff)
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


def _einsum_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    """For each operand the sum of the others and of the gradient by its letters."""
    written, _, result = node.attributes["equation"].partition("->")
    terms, values = _without_diagonals(b, written.split(","), node.operands)
    found: list[Value | None] = []
    for place, value in enumerate(node.operands):
        others = [result, *terms[:place], *terms[place + 1 :]]
        inputs = [there(diffs[0]), *values[:place], *values[place + 1 :]]
        found.append(b.cast(_summed(b, others, inputs, terms[place], value.shape), value.dtype))
    return found


def _without_diagonals(
    b: Builder, terms: Sequence[str], values: Sequence[Value]
) -> tuple[list[str], list[Value]]:
    """A letter that a term repeats becomes another one, and the two are equal by a factor."""
    unused = iter(sorted(set(string.ascii_letters).difference(*terms)))
    made, factors, identities = [], [], []
    for term, value in zip(terms, values, strict=True):
        letters: list[str] = []
        for letter, extent in zip(term, value.shape, strict=True):
            if letter in letters:
                other = next(unused)
                factors.append(letter + other)
                identities.append(b.constant(np.eye(extent).astype(value.dtype), "identity"))
                letters.append(other)
            else:
                letters.append(letter)
        made.append("".join(letters))
    return [*made, *factors], [*values, *identities]


def _summed(
    b: Builder, others: Sequence[str], values: Sequence[Value], term: str, shape: tuple[int, ...]
) -> Value:
    """An einsum of others by the letters of a term, of its shape: repeated along what they lack."""
    known = "".join(letter for letter in term if any(letter in it for it in others))
    (made,) = b.emit("einsum", values, equation=f"{','.join(others)}->{known}")
    wide = [made.shape[known.index(it)] if it in known else 1 for it in term]
    least = [min(a, n) for a, n in zip(wide, shape, strict=True)]
    return b.expand(b.sum_to(b.reshape(made, wide), least), shape)


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


# Of scores of keys that are not looked at: a number, whose differences are numbers.
_LOWEST = -3e38


def _attention_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    """By the weights, which are computed again. Heads that share a key are rows of one product."""
    q, k, v = node.operands[:3]
    n, heads, rows, _ = q.shape
    groups = (n, k.shape[1], heads // max(1, k.shape[1]) * rows)
    folded, diff = (b.reshape(it, (*groups, it.shape[3])) for it in (q, there(diffs[0])))
    scores = (n, heads, rows, k.shape[2])
    products = b.reshape(b.matmul(folded, _turned(b, k)), scores)
    weights = _weights(b, products, node)
    by_weights = b.reshape(b.matmul(diff, _turned(b, v)), scores)
    total = b.reduce("sum", b.apply("multiply", by_weights, weights), (3,), keepdims=True)
    inner: Expression = ("multiply", operand(1), ("subtract", operand(0), operand(2)))
    by_scores = b.map(inner, by_weights, weights, total)
    mask = (*node.inputs, None)[3]
    by_mask = None
    if mask is not None and is_differentiable(mask):
        by_mask = b.cast(b.sum_to(by_scores, mask.shape), mask.dtype)
    score = _score(node.attributes)
    slope = differentiated(score, operand(1), score)[0]
    by_products = of_elements(b, slope, [products, by_scores], products)
    by_products, weights = (b.reshape(it, (*groups, k.shape[2])) for it in (by_products, weights))
    found = [
        b.reshape(b.matmul(by_products, k), q.shape),
        b.cast(b.matmul(_turned(b, by_products), folded), k.dtype),
        b.cast(b.matmul(_turned(b, weights), diff), v.dtype),
        by_mask,
    ]
    return found[: len(node.inputs)]


def _score(attributes: Attributes) -> Expression:
    """Of a product, in front of masks."""
    scaled = times(number(attributes["scale"]), operand(0))
    cap = attributes.get("softcap")
    return times(number(cap), ("tanh", over(scaled, number(cap)))) if cap else scaled


def _weights(b: Builder, products: Value, node: Node) -> Value:
    """As `softmax_of_scores`, in nodes."""
    mask, (rows, columns) = (*node.inputs, None)[3], products.shape[2:]
    expression, inputs = _score(node.attributes), [products]
    low = number(_LOWEST)
    if mask is not None:
        inputs.append(b.cast(mask, products.dtype))
        place, is_said = operand(1), mask.dtype == np.bool_
        looked_at: Expression = ("greater", place, number(0.0))
        expression = where(looked_at, expression, low) if is_said else plus(expression, place)
    if node.attributes["causal"]:
        behind = np.where(np.tri(rows, columns, dtype=bool), 0, _LOWEST)
        inputs.append(b.constant(behind.astype(products.dtype), "causal"))
        expression = plus(expression, operand(len(inputs) - 1))
    scores = b.map(expression, *inputs)
    weights = b.emit("softmax", [scores], axis=3, log=False)[0]
    if mask is None:
        return weights
    highest = b.reduce("max", scores, (3,), keepdims=True)
    return b.map(where(("greater", operand(1), low), operand(0), number(0.0)), weights, highest)


def attention_scale(size: int) -> float:
    """What scores are multiplied by where a model does not say it."""
    return 1 / math.sqrt(max(1, size))


PRODUCTS = {
    "matmul": Operator("contract", _infer_matmul, _compute_matmul, _matmul_gradient),
    "einsum": Operator("contract", _infer_einsum, _compute_einsum, _einsum_gradient),
    "attention": Operator("contract", _infer_attention, _compute_attention, _attention_gradient),
}
