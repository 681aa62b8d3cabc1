"""What kernels do with a result before they store it: factors, bias, residual, activation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlprim.graph.expressions import Expression, operand
from dlprim.graph.graph import Array, Graph, Node, Value
from dlprim.graph.lowering.sharing import made_of, passing
from dlprim.graph.passes.affine import Affine, affine
from dlprim.graph.passes.draft import Draft
from dlprim.graph.passes.maps import ACTIVATIONS

_PRODUCTS = ("convolution", "matmul")
_WHAT = "an epilogue"
# By which weights are multiplied ahead; times a larger one they might leave float32.
_MOST_FACTOR = 2.0**64


def _is_weighted(draft: Draft, product: Node) -> bool:
    """Whether a product is by constant weights, to which more can be folded."""
    bias = (*product.inputs, None)[2]
    is_matrix = product.operator == "convolution" or len(product.operands[1].shape) == 2
    return (
        is_matrix
        and product.operands[1] in draft.constants
        and (bias is None or bias in draft.constants)
        and product.output.dtype.kind in "fV"
        and product.output.dtype.name in ("float32", "bfloat16")
    )


def _by_channel(found: Any, product: Node) -> Array | None:
    """An array that is broadcast to the product as one number for each channel, else None."""
    shape = product.output.shape
    axis = 1 if product.operator == "convolution" else len(shape) - 1
    array = np.asarray(found, np.float64)
    aligned = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
    if any(extent != 1 for place, extent in enumerate(aligned.shape) if place != axis):
        return None
    return np.broadcast_to(aligned.reshape(-1), (shape[axis],))


def _folded(draft: Draft, product: Node, factor: Array, shift: Array) -> list[Value | None]:
    """Inputs of the product with channels multiplied by a factor and shifted."""
    x, w = product.operands[:2]
    bias = (*product.inputs, None)[2]
    before = 0.0 if bias is None else draft.constants[bias].astype(np.float64)
    inputs: list[Value | None] = [x, w, bias]
    if (factor != 1).any():
        weights = draft.constants[w]
        by_filter = (
            factor
            if product.operator == "matmul"
            else factor.reshape(-1, *[1] * (len(w.shape) - 1))
        )

        def scaled() -> Array:
            made = passing(w.shape, w.dtype)
            # In float64, by and by, without a copy of all of them.
            np.multiply(weights, by_filter, out=made, dtype=np.float64, casting="unsafe")
            return made

        how = ("scaled", by_filter.shape, by_filter.tobytes())
        inputs[1] = draft.constant(made_of(scaled(), weights, how, scaled), w.name)
    if (factor != 1).any() or (shift != 0).any():
        sums = (before * factor + shift).astype(np.float32)
        inputs[2] = draft.constant(sums, f"{product.name}.bias")
    return inputs


def _split(draft: Draft, node: Node) -> tuple[Node, int, Affine] | None:
    """The product that a map continues, which operand it is, and what the map adds up."""
    expression = node.attributes["expression"]
    inner = expression[1] if expression[0] in ACTIVATIONS else expression
    found = affine(inner, [draft.constants.get(value) for value in node.operands])
    if found is None or not 1 <= len(found.factors) <= 2:
        return None
    for place in found.factors:
        product = draft.only_maker(node.operands[place], *_PRODUCTS)
        if product is None or not _is_weighted(draft, product):
            continue
        # Behind a residual comes the activation, and nothing between them.
        is_plain = expression == (expression[0], operand(0)) and expression[0] in ACTIVATIONS
        is_open = product.attributes.get("activation") is None
        is_open = is_open and (is_plain or len(product.inputs) < 4)
        is_alike = (product.output.shape, product.output.dtype) == (
            node.output.shape,
            node.output.dtype,
        )
        if is_open and is_alike:
            return product, place, found
    return None


def _residual(node: Node, product: Node, place: int, found: Affine) -> Value | None:
    """The other operand that is added to a convolution, as it is."""
    for other, factor in found.factors.items():
        if other == place or product.operator != "convolution" or np.any(factor != 1.0):
            continue
        value = node.operands[other]
        if value.shape == product.output.shape and value.dtype == product.output.dtype:
            return value
    return None


def _row_for(draft: Draft, value: Value, product: Node) -> Value | None:
    """A value that is broadcast to a product as a bias of it, else None."""
    shape = product.output.shape
    is_row = value.shape[-1:] == shape[-1:] == (value.size,) and len(value.shape) <= len(shape)
    if not is_row or value.dtype != np.float32:
        return None
    if len(value.shape) == 1:
        return value
    return draft.emit("reshape", [value], product.name, shape=(value.size,))[0]


def _end_of(expression: Expression) -> tuple[str | None, list[int]] | None:
    """The activation of a sum of two operands, or of one, and which these are."""
    name, *parts = expression
    activation = name if name in ACTIVATIONS else None
    inner = parts[0] if activation else expression
    terms = inner[1:] if inner[0] == "add" else (inner,)
    if any(it[0] != "input" for it in terms):
        return None
    return activation, [it[1] for it in terms]


def _ended_as_computed(draft: Draft, node: Node) -> Sequence[Value] | None:
    """A product by weights that a run computes, with a bias and the activation behind it."""
    end = _end_of(node.attributes["expression"])
    if end is None or sorted(end[1]) != list(range(len(node.operands))):
        return None
    activation, places = end
    for place in places:
        product = draft.only_maker(node.operands[place], "matmul")
        if product is None or not _is_open(draft, product, node.output):
            continue
        others = [node.operands[it] for it in places if it != place]
        rows = [_row_for(draft, it, product) for it in others]
        if None in rows or (rows and len(product.inputs) > 2):
            continue
        attributes = dict(product.attributes)
        if activation is not None:
            attributes["activation"] = activation
        return draft.emit("matmul", [*product.inputs, *rows], product.name, **attributes)
    return None


def _is_open(draft: Draft, product: Node, like: Value) -> bool:
    """Whether a product of computed weights ends with no activation and makes such arrays."""
    x, w = product.operands[:2]
    is_linear = len(w.shape) == 2 and len(x.shape) > 1 and w not in draft.constants
    made = product.output
    is_alike = (made.shape, made.dtype) == (like.shape, like.dtype)
    is_float = made.dtype.name in ("float32", "bfloat16") and x.dtype == w.dtype
    return is_linear and is_alike and is_float and product.attributes.get("activation") is None


def _ended(draft: Draft, node: Node) -> Sequence[Value] | None:
    """The product that a map continues, with what the map does."""
    if node.operator != "map" or node.output.dtype.name not in ("float32", "bfloat16"):
        return None
    ended = _ended_as_computed(draft, node)
    if ended is not None:
        return ended
    split = _split(draft, node)
    if split is None:
        _refuse(draft, node)
        return None
    product, place, found = split
    residual = _residual(node, product, place, found)
    if len(found.factors) == 2 and residual is None:
        draft.refuse(_WHAT, node, "what it adds to the product is no array of its shape and type")
        return None
    factor = _by_channel(found.factors[place], product)
    shift = _by_channel(found.shift, product)
    if factor is None or shift is None or not (np.abs(factor) <= _MOST_FACTOR).all():
        draft.refuse(_WHAT, node, "what it multiplies or adds is not one number for each channel")
        return None
    inputs = _folded(draft, product, factor, shift)
    inputs += product.inputs[3:]
    attributes = dict(product.attributes)
    name = node.attributes["expression"][0]
    if name in ACTIVATIONS:
        attributes["activation"] = name
    if residual is not None:
        inputs = [*inputs, residual]
    return draft.emit(product.operator, inputs, product.name, **attributes)


def _refuse(draft: Draft, node: Node) -> None:
    """Notes why a map of a product's result is not what the product's kernel ends with."""
    for value in node.operands:
        product = draft.maker(value, *_PRODUCTS)
        if product is None or not _is_weighted(draft, product):
            continue
        if draft.only_maker(value) is None:
            reason = f"the product '{product.name}' is used twice"
        elif product.attributes.get("activation") is not None or len(product.inputs) > 3:
            reason = f"the product '{product.name}' ends with something else"
        else:
            reason = "kernels do not compute what it does"
        draft.refuse(_WHAT, node, reason)
        return


def fold_epilogues(graph: Graph) -> Graph:
    """Lets products with constant weights do what maps behind them do."""
    return Draft(graph).apply(_ended)


def fold_norms(graph: Graph) -> Graph:
    """Folds into weights and biases what stands behind products by channel, and nothing else.

    What is left is what a model quantised by someone else consists of.
    """

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        if node.operator != "map":
            return None
        constants = [draft.constants.get(value) for value in node.operands]
        found = affine(node.attributes["expression"], constants)
        return None if found is None or len(found.factors) != 1 else _ended(draft, node)

    return Draft(graph).apply(rule)
