"""Attention as exporters write it: products, a softmax and what stands between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dlprim.graph.expressions import Expression, evaluate, inputs_of, operand
from dlprim.graph.extents import derived
from dlprim.graph.graph import Array, Graph, Node, Value
from dlprim.graph.passes.affine import affine
from dlprim.graph.passes.draft import Draft
from dlprim.graph.recorded_arrays import as_array


class Scores(NamedTuple):
    """Scaled products of queries and keys, and what is added to them."""

    product: Node
    scale: float
    mask: Value | None


def _is_alike(one: Value, other: Value) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype


def _guarded(draft: Draft, value: Value) -> Value:
    """What a map reads that only replaces NaN by zero, else the value."""
    node = draft.only_maker(value, "map")
    if node is None or len(node.operands) != 1:
        return value
    is_guard = _is_alike(node.operands[0], value) and derived(
        _replaces_nan, node.attributes["expression"]
    )
    return node.operands[0] if is_guard else value


def _replaces_nan(expression: Expression) -> bool:
    x = np.array([0.0, 0.25, 1.0, np.nan])
    with np.errstate(all="ignore"):
        found = np.asarray(evaluate(expression, [x]))
    return found.shape == x.shape and bool((found == [0.0, 0.25, 1.0, 0.0]).all())


def scores_of(draft: Draft, value: Value, *operators: str) -> Scores | None:
    """The value as scores, if it is made by one of the operators, scaled, with a mask added."""
    node = draft.only_maker(value)
    if node is None:
        return None
    if node.operator in operators:
        return Scores(node, 1.0, None)
    if node.operator != "map":
        return None
    found = affine(node.attributes["expression"], [draft.constants.get(it) for it in node.operands])
    if found is None:
        return None
    for place, factor in found.factors.items():
        product = draft.only_maker(node.operands[place], *operators)
        others = [it for it in found.factors if it != place]
        if product is None or np.size(factor) != 1 or not _is_alike(product.output, value):
            continue
        mask = _mask_of(draft, node, others, found.factors, found.shift)
        if mask is not None:
            return Scores(product, float(np.asarray(factor).reshape(())), mask[0])
    return None


def _mask_of(
    draft: Draft, node: Node, others: list[int], factors: dict[int, object], shift: object
) -> tuple[Value | None] | None:
    """What is added to the scores, as one array; None where that is no sum of float arrays."""
    shifted = as_array(shift)
    masks = [node.operands[place] for place in others]
    if any(np.any(np.asarray(factors[place]) != 1.0) for place in others):
        return None
    if any(it.dtype.kind not in "fV" for it in masks):  # a bool would say which keys there are
        return None
    if shifted.any():
        with np.errstate(over="ignore"):
            array = shifted.astype(np.float32)
        masks.append(draft.constant(array, f"{node.name}.mask"))
    if not masks:
        return (None,)
    mask = masks[0]
    for it in masks[1:]:
        how = {"expression": ("add", operand(0), operand(1)), "dtype": mask.dtype.name}
        (mask,) = draft.emit("map", [mask, it], node.name, **how)
    return (mask,)


def softmax_of(draft: Draft, weights: Value) -> Node | None:
    """What makes weights along the last axis."""
    node = draft.only_maker(_guarded(draft, weights), "softmax")
    if node is None or node.attributes["log"]:
        return None
    last = len(weights.shape) - 1
    return node if node.attributes["axis"] % len(weights.shape) == last else None


def unscaled(draft: Draft, value: Value) -> tuple[Value, float]:
    """What a map multiplies by a number, and the number."""
    node = draft.only_maker(value, "map")
    if (
        node is None
        or len(node.operands) != 1
        or not _is_alike(node.operands[0], value)
        or len(inputs_of(node.attributes["expression"])) != 1
    ):
        return value, 1.0
    found = affine(node.attributes["expression"], [None])
    if found is None or np.size(found.factors[0]) != 1 or np.any(np.asarray(found.shift) != 0):
        return value, 1.0
    return node.operands[0], float(np.asarray(found.factors[0]).reshape(()))


def swapped(draft: Draft, value: Value, name: str) -> Value:
    """The value with its last two axes exchanged."""
    axes = tuple(range(len(value.shape)))
    axes = (*axes[:-2], axes[-1], axes[-2])
    before = draft.maker(value, "transpose")
    if before is not None and before.attributes["axes"] == axes:
        return before.operands[0]
    (turned,) = draft.emit("transpose", [value], name, axes=axes)
    return turned


def heads(draft: Draft, value: Value, name: str) -> Value:
    """(N, H, S, D) of an array with fewer leading axes."""
    shape = (1,) * (4 - len(value.shape)) + value.shape
    return value if shape == value.shape else draft.emit("reshape", [value], name, shape=shape)[0]


def is_causal(draft: Draft, mask: Value | None, shape: tuple[int, ...]) -> bool:
    """Whether a known mask hides what comes behind each query, and nothing else."""
    array = None if mask is None else draft.constants.get(mask)
    if array is None or array.shape[-2:] != shape[-2:] or shape[-1] < 2:
        return False
    return bool(derived(_hides_what_follows, array))


def _hides_what_follows(array: Array) -> bool:
    seen = np.tri(*array.shape[-2:]) > 0
    return bool(np.all(array[..., seen] == 0) and np.all(array[..., ~seen] <= -1e30))


def _reason(draft: Draft, node: Node, softmax: Node) -> str:
    """Why what looks like attention is none, if it is none."""
    weights, v = node.operands
    if not 3 <= len(weights.shape) <= 4 or len(v.shape) != len(weights.shape):
        return f"operands have {len(weights.shape)} and {len(v.shape)} axes, expected 3 or 4"
    if softmax.attributes["log"] or softmax.attributes["axis"] % len(weights.shape) != (
        len(weights.shape) - 1
    ):
        return "its weights are no softmax along the last axis"
    if draft.only_maker(weights) is None:
        return "its weights are used twice"
    if draft.only_maker(softmax.operands[0]) is None:
        return "its scores are used twice"
    if scores_of(draft, softmax.operands[0], "matmul") is None:
        return "its scores are no scaled product with masks added, or that product is used twice"
    return "leading axes of q, k and v differ"


def recognise_attention(graph: Graph) -> Graph:
    """Makes one operator of a product, a softmax and a product, so that scores stay in caches."""

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        if node.operator != "matmul" or len(node.operands) != 2:
            return None
        made = _attention(draft, node)
        softmax = draft.maker(node.operands[0], "softmax")
        if made is None and softmax is not None:
            draft.refuse("attention", node, _reason(draft, node, softmax))
        return made

    return Draft(graph).apply(rule)


def _attention(draft: Draft, node: Node) -> Sequence[Value] | None:
    weights, v = node.operands
    if not 3 <= len(weights.shape) <= 4 or len(v.shape) != len(weights.shape):
        return None
    softmax = softmax_of(draft, weights)
    scores = None if softmax is None else scores_of(draft, softmax.operands[0], "matmul")
    if scores is None or len(scores.product.operands) != 2:
        return None
    q, by_q = unscaled(draft, scores.product.operands[0])
    k, by_k = unscaled(draft, scores.product.operands[1])
    if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        return None
    arrays = [heads(draft, it, node.name) for it in (q, swapped(draft, k, node.name), v)]
    causal = is_causal(draft, scores.mask, scores.product.output.shape)
    inputs = arrays if causal or scores.mask is None else [*arrays, scores.mask]
    how = {"scale": scores.scale * by_q * by_k, "causal": causal, "softcap": 0.0}
    (result,) = draft.emit("attention", inputs, node.name, **how)
    if result.shape == node.output.shape:
        return [result]
    return draft.emit("reshape", [result], node.name, shape=node.output.shape)
