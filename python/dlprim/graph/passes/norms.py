"""Normalisations in pieces, as exporters leave them, and sums in front."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlprim.graph.expressions import Expression, evaluate, operand
from dlprim.graph.extents import derived
from dlprim.graph.graph import Graph, Node, Value
from dlprim.graph.passes.draft import Draft
from dlprim.graph.passes.layers import is_sum

_PRODUCTS = (("multiply", operand(0), operand(1)), ("multiply", operand(1), operand(0)))


def _epsilon_of(node: Node) -> float | None:
    """eps where a map of one array is ``1 / sqrt(x + eps)``."""
    if len(node.operands) != 1:
        return None
    epsilon = float(derived(_epsilon_in, node.attributes["expression"]))
    return None if epsilon < 0 else epsilon


def _epsilon_in(expression: Expression) -> float:
    """Below 0 where there is none."""
    x = np.array([0.0, 1.0])
    with np.errstate(all="ignore"):
        found = np.asarray(evaluate(expression, [x]), np.float64)
        epsilon = float(1 / found[0] ** 2) if found.shape == x.shape else -1.0
        if not 0 <= epsilon < 1:
            return -1.0
        # Near epsilon a sum is told from a maximum.
        x = np.array([0.5, 1.0, 3.0, epsilon or 2.0])
        found = np.asarray(evaluate(expression, [x]), np.float64)
        return epsilon if np.allclose(found, 1 / np.sqrt(x + epsilon)) else -1.0


def _is_square(node: Node) -> bool:
    """Whether a map of one array is its square."""
    return len(node.operands) == 1 and bool(derived(_squares, node.attributes["expression"]))


def _squares(expression: Expression) -> bool:
    x = np.array([-2.0, 0.5, 3.0])
    with np.errstate(all="ignore"):
        return bool(np.allclose(evaluate(expression, [x]), x * x))


def _is_product(node: Node) -> bool:
    """Whether a map multiplies two arrays, and does nothing else."""
    is_map = node.operator == "map" and len(node.operands) == 2
    return is_map and node.attributes["expression"] in _PRODUCTS


def recognise_rms_norm(graph: Graph) -> Graph:
    """``x * rsqrt(mean(x^2) + eps) * w`` as one operator."""

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        if not _is_product(node):
            return None
        for x, factor in (node.operands, node.operands[::-1]):
            root = draft.maker(factor, "map")
            mean = draft.maker(root.operands[0], "reduce") if root is not None else None
            square = draft.maker(mean.operands[0], "map") if mean is not None else None
            if root is None or mean is None or square is None or square.operands[0] is not x:
                continue
            epsilon = _epsilon_of(root)
            is_last = mean.attributes["function"] == "mean" and mean.attributes["keepdims"]
            axes = [axis % len(x.shape) for axis in mean.attributes["axes"]]
            is_mean = is_last and axes == [len(x.shape) - 1]
            if epsilon is None or not is_mean or not _is_square(square):
                continue
            if {x.dtype} == {it.output.dtype for it in (square, root, node)}:
                return draft.emit(
                    "normalize", [x, None, None], node.name, axes=1, epsilon=epsilon, rms=True
                )
        return None

    return Draft(graph).apply(rule)


def fold_norm_weights(graph: Graph) -> Graph:
    """Lets an RMS norm without a weight multiply by the one that follows."""

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        if not _is_product(node):
            return None
        for x, weight in (node.operands, node.operands[::-1]):
            norm = draft.only_maker(x, "normalize")
            is_row = weight in draft.constants and weight.shape[-1:] == x.shape[-1:]
            if norm is None or not is_row or weight.size != x.shape[-1]:
                continue
            is_alike = x.shape == node.output.shape and x.dtype == node.output.dtype
            is_bare = norm.inputs[1] is None and norm.inputs[2] is None
            if is_alike and is_bare and norm.attributes["axes"] == 1:
                row = draft.constants[weight].reshape(-1)
                scale = draft.constant(row.astype(np.float32), weight.name)
                inputs = [norm.inputs[0], scale, None]
                return draft.emit("normalize", inputs, node.name, **norm.attributes)
        return None

    return Draft(graph).apply(rule)


def join_residuals(graph: Graph) -> Graph:
    """Sums that are normalised, in one pass over memory with the norm."""
    readers = graph.readers()
    normalized: dict[Node, Value] = {}

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        known = normalized.get(node) or normalized.get(draft.original(node))
        if known is not None:
            return [known]
        if not is_sum(node):
            return None
        norms = [
            it
            for it in readers.get(draft.original(node).output, [])
            if it.operator == "normalize" and all(map(draft.made, it.operands[1:]))
        ]
        if len(norms) != 1:
            return None
        parameters = [it if it is None else draft.made(it) for it in norms[0].inputs[1:]]
        inputs = [*node.operands, *parameters]
        name = norms[0].name
        y, total = draft.emit("add_normalize", inputs, name, **norms[0].attributes)
        normalized[norms[0]] = y
        return [total]

    return Draft(graph).apply(rule)


def join_gradients(graph: Graph) -> Graph:
    """Sums of the gradient by what was normalised and that of a residual, in the norm's pass."""
    readers, uses = graph.readers(), graph.uses()
    summed: dict[Node, Value] = {}

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        known = summed.get(draft.original(node))
        if known is not None:
            return [known]
        if node.operator != "normalize_gradient" or node.inputs[3] is not None:
            return None
        by_x = draft.original(node).outputs[0]
        total = next(iter(readers.get(by_x, ())), None)
        if total is None or uses[by_x] != 1 or not is_sum(total):
            return None
        (other,) = (it for it in total.operands if it is not by_x)
        addend = draft.made(other)
        if addend is None:
            return None
        inputs = [*node.inputs[:3], addend]
        made = draft.emit("normalize_gradient", inputs, node.name, **node.attributes)
        summed[total] = made[0]
        return made

    return Draft(graph).apply(rule)
