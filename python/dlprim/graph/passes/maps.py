"""Chains of maps as one map, and the activations that exporters took to pieces."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlprim.graph.expressions import (
    FUNCTIONS,
    Expression,
    evaluate,
    functions_of,
    inputs_of,
    is_condition,
    is_written,
    makes_floats,
    number,
    operand,
    substituted,
)
from dlprim.graph.extents import derived
from dlprim.graph.graph import Graph, Node, Value
from dlprim.graph.operators.elements import broadcast_shape
from dlprim.graph.passes.draft import Draft

# What kernels apply to results before they store them.
ACTIVATIONS = (
    "relu",
    "relu6",
    "sigmoid",
    "hardsigmoid",
    "tanh",
    "gelu",
    "gelu_tanh",
    "swish",
    "hardswish",
)
# Each calls one of these, however it is written.
_TELLING = {*ACTIVATIONS, "erf", "exp", "maximum", "minimum", "where"}
# Functions in an expression; what is longer is cut, because values would not fit registers.
_LONGEST = 48


def length(expression: Expression) -> int:
    """How many functions an expression calls."""
    if expression[0] in ("input", "number"):
        return 0
    return 1 + sum(length(it) for it in expression[1:])


def _fits(node: Node, before: Node) -> bool:
    """Whether nothing is rounded between two maps: one type, or a condition that is only turned
    into floats.

    What makes floats of types of few bits is a table, and stays one.

    What only turns integers into floats is kept, because NumPy would go on in integers.
    """
    expression, types = before.attributes["expression"], [it.dtype for it in before.operands]
    is_table = any(it.itemsize == 1 and it.kind == "V" for it in types)
    if is_table or node.output.dtype.kind not in "fV":
        return False
    if before.output.dtype.kind == "b":
        is_cast = node.attributes["expression"] == operand(0)
        return is_condition(expression) and (is_cast or set(types) == {node.output.dtype})
    is_float = is_condition(expression) or makes_floats(expression, types)
    return is_float and before.output.dtype == node.output.dtype


def _written_as(before: Node) -> Expression:
    """What stands for a map inside of another: the numbers 0 and 1 for a condition made floats."""
    expression: Expression = before.attributes["expression"]
    if is_condition(expression) and before.output.dtype.kind != "b":
        return ("where", expression, number(1.0), number(0.0))
    return expression


def _is_computed(node: Node) -> bool:
    """Whether the engine computes a map: what is written, of no integers, conditions or bytes."""
    others = any(it.dtype.kind in "iub" or it.dtype.itemsize == 1 for it in node.operands)
    return is_written(node.attributes["expression"]) and not others


def _both_computed(node: Node, before: Node) -> bool:
    """Whether the engine computes both maps or none of them."""
    return _is_computed(node) == _is_computed(before)


def _joined(draft: Draft, node: Node, is_single: bool) -> Sequence[Value] | None:
    """The node with what makes its operands written into its expression."""
    inputs: list[Value] = []
    operands: list[Expression] = []
    is_changed = False
    reads = inputs_of(node.attributes["expression"])

    def placed(value: Value) -> Expression:
        if value not in inputs:
            inputs.append(value)
        return operand(inputs.index(value))

    for place, value in enumerate(node.operands):
        before = draft.only_maker(value, "map")
        is_joined = before is not None and reads.count(place) == 1 and _fits(node, before)
        if before is None or not is_joined or (not is_single and not _both_computed(node, before)):
            operands.append(placed(value))
            continue
        parts = [placed(it) for it in before.operands]
        operands.append(substituted(_written_as(before), parts))
        is_changed = True
    expression = substituted(node.attributes["expression"], operands)
    varying = [value for value in inputs if value not in draft.constants]
    if not is_changed or length(expression) > _LONGEST:
        return None
    if is_single and len(varying) > 1:
        return None
    if broadcast_shape(*(value.shape for value in inputs)) != node.output.shape:
        return None
    return draft.emit(
        "map", inputs, node.name, expression=expression, dtype=node.attributes["dtype"]
    )


def join_maps_of_one(graph: Graph) -> Graph:
    """Joins maps in a row that depend on one array: activations become whole again."""

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        return _joined(draft, node, True) if node.operator == "map" else None

    return Draft(graph).apply(rule)


def join_maps(graph: Graph) -> Graph:
    """Joins maps in a row: one pass over memory for all of them."""

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        return _joined(draft, node, False) if node.operator == "map" else None

    return Draft(graph).apply(rule)


def activation_of(expression: Expression) -> str | None:
    """The activation that an expression of one operand is, found by its values."""
    if set(inputs_of(expression)) != {0} or not functions_of(expression) & _TELLING:
        return None
    place = int(derived(_place_of_activation, expression))
    return ACTIVATIONS[place] if place < len(ACTIVATIONS) else None


def _place_of_activation(expression: Expression) -> int:
    """Among activations, behind them where it is none."""
    magnitudes = np.array([1e-6, 1e-4, 1e-3, 0.01, 20, 1e3, 1e6, 1e30])
    x = np.concatenate([np.linspace(-6, 6, 41), magnitudes, -magnitudes, [np.nan]])
    with np.errstate(all="ignore"):
        found = np.broadcast_to(np.asarray(evaluate(expression, [x])), x.shape)
        for place, name in enumerate(ACTIVATIONS):
            # Exporters write their constants with seven digits.
            if np.allclose(found, FUNCTIONS[name].compute(x), 2e-6, 2e-7, True):
                return place
    return len(ACTIVATIONS)


def recognise_activations(graph: Graph) -> Graph:
    """Writes what is an activation as one."""

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        if node.operator != "map" or len(node.operands) != 1:
            return None
        if node.operands[0].dtype.kind not in "fV" or node.output.dtype.kind not in "fV":
            return None
        expression = node.attributes["expression"]
        name = activation_of(expression)
        if name is None or expression == (name, operand(0)):
            return None
        dtype = node.attributes["dtype"]
        return draft.emit("map", node.inputs, node.name, expression=(name, operand(0)), dtype=dtype)

    return Draft(graph).apply(rule)
