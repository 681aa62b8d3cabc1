"""Elements computed once that are the same along an axis, and gathers that leave all in order.

Exporters spread masks over all pairs of words before they compute with them, by gathers and by
constants of one value; what is spread last is a view.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dlprim.graph.expressions import Expression, evaluate
from dlprim.graph.extents import derived
from dlprim.graph.graph import Array, Graph, Node, Value
from dlprim.graph.operators import OPERATORS
from dlprim.graph.operators.elements import broadcast_shape
from dlprim.graph.operators.operator import Attributes
from dlprim.graph.passes.draft import Draft


def _in_order(draft: Draft, node: Node) -> Sequence[Value] | None:
    """A reshape in place of a gather whose known places name each element once, in order."""
    x, *places = node.operands
    is_gather = node.operator == "gather" or (
        node.operator == "call" and node.attributes["function"] in ("gather_nd", "gather_elements")
    )
    if not is_gather or x.shape == () or x.size != node.output.size:
        return None
    if len(places) != 1 or places[0] not in draft.constants:
        return None
    attributes = {**node.attributes, "results": ((node.output.shape, np.dtype(np.int64)),)}
    if not derived(_is_in_order, node.operator, x.shape, draft.constants[places[0]], attributes):
        return None
    return draft.emit("reshape", [x], node.name, shape=node.output.shape)


def _is_in_order(
    operator: str, shape: tuple[int, ...], places: Array, attributes: Attributes
) -> bool:
    order = np.arange(math.prod(shape)).reshape(shape)
    try:
        (found,) = OPERATORS[operator].compute([order, places], attributes)
    except IndexError:  # whoever runs the network is told
        return False
    return np.array_equal(found.reshape(-1), order.reshape(-1))


def _unspread(draft: Draft, value: Value) -> Value:
    """What the value repeats, which is broadcast to it."""
    spread = draft.maker(value, "expand")
    if spread is not None:
        return spread.operands[0]
    array = draft.constants.get(value)
    if array is None or array.size < 2 or not (array == array.reshape(-1)[0]).all():
        return value
    return draft.constant(array.reshape(-1)[:1].reshape((1,) * array.ndim), value.name)


def _left_alone(draft: Draft, inputs: list[Value], node: Node) -> Value | None:
    """The operand of a map of bools that the others, which are known, leave as it is."""
    varying = [it for it in inputs if it not in draft.constants]
    if len(varying) != 1 or node.output.dtype.kind != "b" or varying[0].dtype.kind != "b":
        return None
    if any(it.size != 1 for it in inputs if it in draft.constants):
        return None
    both = np.array([False, True])
    arrays = [draft.constants.get(it, both).reshape(-1) for it in inputs]
    is_same = derived(_gives, node.attributes["expression"], arrays, both)
    return varying[0] if is_same else None


def _gives(expression: Expression, arrays: Sequence[Array], expected: Array) -> bool:
    return bool(np.array_equal(evaluate(expression, arrays), expected))


def _narrowed(draft: Draft, node: Node) -> Sequence[Value] | None:
    """A map of what its operands repeat, spread afterwards."""
    inputs = [_unspread(draft, it) for it in node.operands]
    if inputs == list(node.operands):
        return None
    shape = broadcast_shape(*(it.shape for it in inputs))
    same = _left_alone(draft, inputs, node)
    if same is not None and same.shape == shape:
        narrow = same
    else:
        (narrow,) = draft.emit("map", inputs, node.name, **node.attributes)
    if shape == node.output.shape:
        return [narrow]
    return draft.emit("expand", [narrow], node.name, shape=node.output.shape)


def spread_last(graph: Graph) -> Graph:
    """Computes maps on what their operands repeat, and moves nothing that is in order."""

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        return _narrowed(draft, node) if node.operator == "map" else _in_order(draft, node)

    return Draft(graph).apply(rule)
