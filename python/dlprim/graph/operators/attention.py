"""Attention and its gradient, each as one operator, so that no step stores scores."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.graph.derivatives import differentiated, over, plus, times, where
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.operators.elements import converted, is_differentiable, of_elements
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
from dlprim.graph.operators.products import turned

if TYPE_CHECKING:
    from dlprim.graph.builder import Builder


def attention_scale(size: int) -> float:
    """What scores are multiplied by where a model does not say it."""
    return 1 / math.sqrt(max(1, size))


def infer_attention(values: Values, attributes: Attributes) -> list[Result]:
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


def for_each_head(q: Array, *arrays: Array) -> list[Array]:
    """Keys and values repeated for the heads that share them."""
    return [np.repeat(it, q.shape[1] // max(1, it.shape[1]), axis=1) for it in arrays]


def _compute_attention(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Rows without any key are zeros. The mask is added, or says where keys are looked at."""
    q, k, v = (widened(array) for array in arrays[:3])
    mask = arrays[3] if len(arrays) > 3 else None
    k, v = for_each_head(q, k, v)
    with np.errstate(all="ignore"):
        weights = softmax_of_scores(q @ k.swapaxes(-1, -2), mask, attributes)
        return [converted(weights @ v, arrays[0].dtype)]


# ---------------------------------------------------------------- gradients


def _attention_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    """One operator; that of a mask written out, which nobody computes unless it is wanted."""
    inputs = [there(diffs[0]), *node.inputs]
    found: list[Value | None] = list(b.emit("attention_gradient", inputs, **node.attributes))
    mask = (*node.inputs, None)[3]
    is_wanted = mask is not None and is_differentiable(mask)
    found.append(_written_out(b, inputs, node.attributes)[3] if is_wanted else None)
    return found[: len(node.inputs)]


def _infer_gradient(values: Values, attributes: Attributes) -> list[Result]:
    """Of the gradient of a result, and q, k, v and a mask: the gradients by q, k and v."""
    diff, *operands = values
    ((shape, _),) = infer_attention(operands, attributes)
    if there(diff).shape != shape:
        raise ValueError(f"a gradient of {list(there(diff).shape)}, expected {list(shape)}")
    return [(there(it).shape, there(it).dtype) for it in operands[:3]]


def _compute_gradient(arrays: Arrays, attributes: Attributes) -> list[Any]:
    diff, q, k, v = (widened(array) for array in arrays[:4])
    mask = arrays[4] if len(arrays) > 4 else None
    groups = (*k.shape[:2], q.shape[1] // max(1, k.shape[1]))
    k, v = for_each_head(q, k, v)
    with np.errstate(all="ignore"):
        products = q @ k.swapaxes(-1, -2)
        weights = softmax_of_scores(products, mask, attributes)
        by_weights = diff @ v.swapaxes(-1, -2)
        total = (by_weights * weights).sum(axis=-1, keepdims=True)
        by_products = attributes["scale"] * weights * (by_weights - total)
        if attributes.get("softcap"):
            capped = np.tanh(attributes["scale"] * products / attributes["softcap"])
            by_products *= 1 - capped**2
        found = [
            by_products @ k,
            (by_products.swapaxes(-1, -2) @ q).reshape(*groups, *k.shape[2:]).sum(axis=2),
            (weights.swapaxes(-1, -2) @ diff).reshape(*groups, *v.shape[2:]).sum(axis=2),
        ]
    return [converted(it, like.dtype) for it, like in zip(found, arrays[1:4], strict=True)]


# Of scores of keys that are not looked at: a number, whose differences are numbers.
_LOWEST = -3e38


def _written_out(b: Builder, inputs: Values, attributes: Attributes) -> list[Value]:
    """By the weights, which are computed again; the last one is that of a mask.

    Heads that share a key are rows of one product.
    """
    diff, q, k, v = (there(value) for value in inputs[:4])
    mask = (*inputs, None)[4]
    n, heads, rows, _ = q.shape
    groups = (n, k.shape[1], heads // max(1, k.shape[1]) * rows)
    folded, diff = (b.reshape(it, (*groups, it.shape[3])) for it in (q, diff))
    scores = (n, heads, rows, k.shape[2])
    products = b.reshape(b.matmul(folded, turned(b, k)), scores)
    weights = _weights(b, products, mask, attributes)
    by_weights = b.reshape(b.matmul(diff, turned(b, v)), scores)
    total = b.reduce("sum", b.apply("multiply", by_weights, weights), (3,), keepdims=True)
    inner: Expression = ("multiply", operand(1), ("subtract", operand(0), operand(2)))
    by_scores = b.map(inner, by_weights, weights, total)
    score = _score(attributes)
    slope = differentiated(score, operand(1), score)[0]
    by_products = of_elements(b, slope, [products, by_scores], products)
    by_products, weights = (b.reshape(it, (*groups, k.shape[2])) for it in (by_products, weights))
    found = [
        b.reshape(b.matmul(by_products, k), q.shape),
        b.cast(b.matmul(turned(b, by_products), folded), k.dtype),
        b.cast(b.matmul(turned(b, weights), diff), v.dtype),
    ]
    if mask is not None and is_differentiable(mask):
        found.append(b.cast(b.sum_to(by_scores, mask.shape), mask.dtype))
    return found


def _score(attributes: Attributes) -> Expression:
    """Of a product, in front of masks."""
    scaled = times(number(attributes["scale"]), operand(0))
    cap = attributes.get("softcap")
    return times(number(cap), ("tanh", over(scaled, number(cap)))) if cap else scaled


def _weights(b: Builder, products: Value, mask: Value | None, attributes: Attributes) -> Value:
    """As `softmax_of_scores`, in nodes."""
    rows, columns = products.shape[2:]
    expression, inputs = _score(attributes), [products]
    low = number(_LOWEST)
    if mask is not None:
        inputs.append(b.cast(mask, products.dtype))
        place, is_said = operand(1), mask.dtype == np.bool_
        looked_at: Expression = ("greater", place, number(0.0))
        expression = where(looked_at, expression, low) if is_said else plus(expression, place)
    if attributes["causal"]:
        behind = np.where(np.tri(rows, columns, dtype=bool), 0, _LOWEST)
        inputs.append(b.constant(behind.astype(products.dtype), "causal"))
        expression = plus(expression, operand(len(inputs) - 1))
    scores = b.map(expression, *inputs)
    weights = b.emit("softmax", [scores], axis=3, log=False)[0]
    if mask is None:
        return weights
    highest = b.reduce("max", scores, (3,), keepdims=True)
    return b.map(where(("greater", operand(1), low), operand(0), number(0.0)), weights, highest)


def _gradients_written_out(b: Builder, node: Node) -> list[Value]:
    return _written_out(b, node.inputs, node.attributes)[:3]


ATTENTION = {
    "attention": Operator("contract", infer_attention, _compute_attention, _attention_gradient),
    "attention_gradient": Operator(
        "contract", _infer_gradient, _compute_gradient, as_written(_gradients_written_out)
    ),
}
