"""Attention of quantised arrays: both products multiply integers, the scores stay between them.

What a model rounds, it rounds here: the scores where a pair of `quantize` and `dequantize` stands
between the product and its scale, the weights behind the softmax, and the result.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlprim.graph.graph import Graph, Node, Value
from dlprim.graph.operators.quantized import MOST_SUMMANDS
from dlprim.graph.passes.attention import heads, is_causal, scores_of, softmax_of, swapped, unscaled
from dlprim.graph.passes.draft import Draft
from dlprim.graph.passes.precision.moves import bytes_of
from dlprim.graph.passes.precision.parameters import Bytes, parameters_of

# Of scales that are multiplied and divided by each other, so that float32 holds what comes of it.
_LEAST, _MOST = 2.0**-30, 2.0**30
_REASON = "q, k or v is not in 8 bits, or scores are no scaled product with masks added"


def recognise_byte_attention(graph: Graph) -> Graph:
    """Makes one operator of integer products, a softmax and what is rounded between them."""

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        if node.operator == "matmul" and len(node.operands) == 2:
            made = _attention(draft, node)
            weights = _paired(draft, node.operands[0])
            if made is None and weights is not None and softmax_of(draft, weights.value):
                draft.refuse("attention in 8 bits", node, _REASON)
            return made
        return _rounded(draft, node) if node.operator == "quantize" else None

    return Draft(graph).apply(rule)


def _attention(draft: Draft, node: Node) -> Sequence[Value] | None:
    if not 3 <= len(node.output.shape) <= 4:
        return None
    weights = _paired(draft, node.operands[0])
    softmax = None if weights is None else softmax_of(draft, weights.value)
    if weights is None or softmax is None:
        return None
    scores = scores_of(draft, softmax.operands[0], "matmul", "dequantize")
    if scores is None:
        return None
    rounded = _paired(draft, scores.product.output)
    product = draft.only_maker(
        scores.product.output if rounded is None else rounded.value, "matmul"
    )
    if product is None or len(product.operands) != 2:
        return None
    (left, by_q), (right, by_k) = (unscaled(draft, it) for it in product.operands)
    q, k, v = (bytes_of(draft, it) for it in (left, right, node.operands[1]))
    by = by_q * by_k
    if q is None or k is None or v is None or not _fits(q, k, v) or not by > 0:
        return None
    steps = [it.parameters for it in (q, k, v, weights)]
    # Scores are rounded in front of their scale.
    inner = rounded and rounded.parameters._replace(scale=rounded.parameters.scale / by)
    scales = [it.scale for it in (*steps, *((inner,) if inner else ()))]
    if not _LEAST <= min(scales) <= max(scales) <= _MOST:
        return None
    causal = is_causal(draft, scores.mask, product.output.shape)
    arrays = [q.value, swapped(draft, k.value, node.name), v.value]
    inputs = [heads(draft, it, node.name) for it in arrays]
    if scores.mask is not None and not causal:
        inputs.append(scores.mask)
    (result,) = draft.emit(
        "quantized_attention",
        inputs,
        node.name,
        scale=scores.scale * by,
        causal=causal,
        steps=tuple(map(tuple, steps)),
        scores=inner and tuple(inner),
        y=None,
    )
    if result.shape == node.output.shape:
        return [result]
    return draft.emit("reshape", [result], node.name, shape=node.output.shape)


def _fits(q: Bytes, k: Bytes, v: Bytes) -> bool:
    """Whether shapes are those of one operator, and sums of products those of 32 bits."""
    size, keys = k.value.shape[-2:]
    is_alike = q.value.shape[:-2] == k.value.shape[:-2] == v.value.shape[:-2]
    extents = (*q.value.shape, *k.value.shape, *v.value.shape)
    return is_alike and 0 not in extents and max(size, keys) <= MOST_SUMMANDS // 2


def _paired(draft: Draft, value: Value) -> Bytes | None:
    """What a pair of `quantize` and `dequantize` rounds, and how."""
    after = draft.only_maker(value, "dequantize")
    before = None if after is None else draft.only_maker(after.operands[0], "quantize")
    if after is None or before is None:
        return None
    parameters = parameters_of(draft, before)
    if parameters is None or parameters != parameters_of(draft, after):
        return None
    return Bytes(before.operands[0], parameters)


def _rounded(draft: Draft, node: Node) -> Sequence[Value] | None:
    """A result that is quantised."""
    attention = draft.only_maker(node.operands[0], "quantized_attention")
    parameters = parameters_of(draft, node)
    if attention is None or attention.attributes["y"] is not None or parameters is None:
        return None
    if not _LEAST <= parameters.scale <= _MOST:
        return None
    attributes = {**attention.attributes, "y": tuple(parameters)}
    return draft.emit("quantized_attention", attention.inputs, attention.name, **attributes)
