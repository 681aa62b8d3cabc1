"""How much the products of a network multiply, which is what models are compared by."""

from __future__ import annotations

import math

from dlprim.graph.graph import Node


def multiply_adds(node: Node) -> int:
    """Of products, convolutions, attention and recurrent layers; what else there is has none."""
    operands, y = node.operands, node.outputs[0]
    if node.operator == "matmul":
        return y.size * operands[0].shape[-1]
    if node.operator == "einsum":
        return _of_einsum(node) if len(operands) > 1 else 0
    if node.operator == "convolution":
        return y.size * math.prod(operands[1].shape[1:])
    if node.operator == "convolution_weights_gradient":
        return operands[1].size * math.prod(y.shape[1:])
    if node.operator == "transposed_convolution":
        return operands[0].size * math.prod(operands[1].shape[1:])
    # Gradients of a product are two: by each of its factors.
    name, is_gradient, _ = node.operator.partition("_gradient")
    if name in ("attention", "filled_attention"):
        q, k, v = operands[1:4] if is_gradient else operands[:3]
        count = math.prod(q.shape[:3]) * k.shape[2] * (q.shape[3] + v.shape[3])
    elif name == "recurrent":
        x, w, r = operands[:3]
        count = x.shape[0] * x.shape[1] * (w.size + r.size)
    else:
        return 0
    return 2 * count if is_gradient else count


def _of_einsum(node: Node) -> int:
    extents: dict[str, int] = {}
    terms = node.attributes["equation"].partition("->")[0].split(",")
    for term, value in zip(terms, node.operands, strict=True):
        for letter, extent in zip(term, value.shape, strict=True):
            extents[letter] = max(extents.get(letter, 0), extent)
    return math.prod(extents.values())
