"""Steps for elements: maps and reductions, by formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dlprim.graph.expressions import (
    Expression,
    computes_floats,
    functions_of,
    is_condition,
    number,
)
from dlprim.graph.graph import Node, Value
from dlprim.graph.lowering.folds import lower_fold
from dlprim.graph.lowering.formulas import (
    is_bytes,
    is_computed,
    is_mapped,
    map_formula,
    text_of_sum,
)
from dlprim.graph.lowering.integers import lower_integer_map
from dlprim.graph.lowering.layouts import activations
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.lowering.pixels import lower_image_sums, lower_relu_gradient
from dlprim.graph.lowering.place import Place, inverse, order_of
from dlprim.graph.lowering.sums import lower_with_sum
from dlprim.graph.operators import OPERATORS
from dlprim.graph.passes.precision.elements import stored

_FEW_INSTRUCTIONS = {
    "abs", "add", "divide", "fmax", "maximum", "minimum", "multiply", "negate", "relu", "round",
    "sqrt", "subtract",
}  # fmt: skip


def blocked_operand(to: Lowering, value: Value, groups: int) -> Place:
    """An operand of a map on blocks: (N, Cb, H, W, bc) or what is broadcast to it."""
    if value.size == 1:
        place = to.dense(value)
        return Place(place.root, place.offset, (1,) * 5, (4,) * 5, place.dtype)
    shape = (1,) * (4 - len(value.shape)) + value.shape
    alike = Value(value.name, shape, value.dtype)
    if value in to.graph.constants:
        array = to.graph.constants[value].reshape(shape)
        form = activations(shape, groups, value.dtype.name)
        packed = form.pack("packed", value.name, np.require(array, None, ["C", "A"]), None)
        return Place.dense(to.constant(packed), to.block_shape(alike, groups), value.dtype)
    if shape != value.shape:
        whole = to.dense(value).reshaped(shape)
        assert whole is not None
        to.put(alike, whole)
        value = alike
    return Place.dense(to.blocks(value, groups), to.block_shape(value, groups), value.dtype)


def _computed(node: Node) -> Expression | None:
    """The expression of a map as the row engine computes it: in floats, also of bytes."""
    expression: Expression = node.attributes["expression"]
    dtypes = [it.dtype for it in node.operands]
    if not all(map(is_mapped, (*dtypes, node.output.dtype))):
        return None
    if not computes_floats(expression, dtypes):
        return None
    if is_bytes(node.output.dtype):
        return stored(expression, node.attributes["dtype"])
    if not any(is_mapped(it) and it.kind in "fV" for it in (*dtypes, node.output.dtype)):
        return None
    expression = of_flags(expression, dtypes)
    if node.output.dtype.kind == "b" and not is_condition(expression):
        return ("not_equal", expression, number(0.0))
    return expression


def of_flags(expression: Expression, dtypes: Sequence[np.dtype[Any]]) -> Expression:
    """The expression with conditions among its operands read as the bytes 0 and 1."""
    name, *parts = expression
    if name in ("input", "number"):
        return expression
    decides = {"and": 2, "or": 2, "xor": 2, "not": 1, "where": 1}.get(name, 0)
    made = []
    for place, part in enumerate(parts):
        is_flag = part[0] == "input" and dtypes[part[1]].kind == "b"
        if place < decides and not is_condition(part):
            whole = part if is_flag else of_flags(part, dtypes)
            made.append(("not_equal", whole, number(0.0)))
        else:
            made.append(of_flags(part, dtypes))
    return (name, *made)


def _lower_bytes(to: Lowering, node: Node) -> bool:
    """What bytes become, where that takes more than a few instructions, is a table of 256."""
    expression: Expression = node.attributes["expression"]
    read = [it for it in node.operands if it not in to.graph.constants]
    if len(read) != 1 or read[0].shape != node.output.shape or node.output in to.blocked:
        return False
    (x,) = read
    others = [to.graph.constants[it] for it in node.operands if it is not x]
    is_whole = is_bytes(x.dtype) and is_mapped(node.output.dtype)
    is_small = is_whole and functions_of(expression) <= _FEW_INSTRUCTIONS
    if is_small or any(it.size != 1 for it in others) or not x.size:
        return False
    if x.dtype.itemsize != 1 or node.output.dtype.itemsize > 8 or x.dtype.name == "bool":
        return False
    every = np.arange(256, dtype=np.uint8).view(x.dtype)
    arrays = [every if it is x else to.graph.constants[it].reshape(()) for it in node.operands]
    (table,) = OPERATORS["map"].compute(arrays, node.attributes)
    place = to.place(x)
    order = order_of(place)
    place, order = (place, order) if order else (to.dense(x), tuple(range(len(x.shape))))
    source = place.transposed(order)
    result = to.new(source.shape, node.output.dtype)
    places = [to.number(it) for it in (replace(source, dtype=np.dtype(np.uint8)), result)]
    to.network.gather(to.constant(table), *places, f"map {node.name}")
    to.put(node.output, result.transposed(inverse(order)))
    return True


def _place_of_map(
    to: Lowering, node: Node, order: tuple[int, ...], operands: Sequence[Place]
) -> Place:
    """Where a map that is no blocks is made, in this order of axes: on a state that it changes."""
    if order == tuple(range(len(order))):
        for value, place in zip(node.operands, operands, strict=True):
            landing = to.landing(node.output, value) if place.is_dense else None
            if landing is not None:
                return landing
    return to.new(operands[0].shape, node.output.dtype)


def _as_bytes(place: Place) -> Place:
    """Conditions as the bytes that they are."""
    return replace(place, dtype=np.dtype(np.uint8)) if place.dtype.name == "bool" else place


def lower_map(to: Lowering, node: Node) -> bool:
    """One statement of the row engine, on blocks where the result is blocked."""
    if _lower_bytes(to, node):
        return True
    expression = _computed(node)
    if expression is None:
        return lower_integer_map(to, node)
    if 0 in node.output.shape:
        to.result(node.output)
        return True
    groups = to.blocked.get(node.output)
    if groups is not None and lower_relu_gradient(to, node):
        return True
    order: tuple[int, ...] = tuple(range(len(node.output.shape)))
    if groups is None:
        operands = [_as_bytes(to.place(value)) for value in node.operands]
        whole = next((it for it in operands if it.shape == node.output.shape), None)
        order = (None if whole is None else order_of(whole)) or order
        spread = [it.expanded(node.output.shape) for it in operands]
        if lower_with_sum(to, node, expression, spread):
            return True
        operands = [it.transposed(order) for it in spread]
        result = _place_of_map(to, node, order, operands)
    else:
        operands = [blocked_operand(to, value, groups) for value in node.operands]
        shape = to.block_shape(node.output, groups)
        result = to.new(shape, node.output.dtype)
    made = map_formula(expression, operands, _as_bytes(result))
    if made is None or not to.formula(*made, f"map {node.name}", elementwise=True):
        to.blocked.pop(node.output, None)
        return lower_integer_map(to, node)
    if groups is None:
        to.put(node.output, result.transposed(inverse(order)))
    else:
        to.put_blocks(node.output, groups, to.number(result))
    return True


_REDUCTIONS = {"sum": "+=!", "mean": "+=!", "max": "max=!", "min": "min=!"}


def _one_row(to: Lowering, x: Value) -> Place:
    """All elements of a value in the order in which they lie, in one row."""
    place = to.place(x)
    order = order_of(place)
    place = to.dense(x) if order is None else place.transposed(order)
    row = place.reshaped((1, x.size))
    assert row is not None
    return row


def lower_reduce(to: Lowering, node: Node) -> bool:
    """One statement that sums, or takes an extreme."""
    (x,) = node.operands
    name = node.attributes["function"]
    if to.is_made(node.output):
        return True
    dtype = node.output.dtype
    if not is_computed(x.dtype, dtype) or name not in _REDUCTIONS or 0 in x.shape:
        return lower_fold(to, node)
    if x in to.blocked and lower_image_sums(to, node):
        return True
    axes = {axis % len(x.shape) for axis in node.attributes["axes"]}
    if not axes and dtype == x.dtype:
        to.put(node.output, to.place(x))
        return True
    place = to.place(x)
    if len(axes) == len(x.shape):
        place, axes = _one_row(to, x), {1}
    kept = [axis for axis in range(len(place.shape)) if axis not in axes]
    letters = [f"i{axis}" for axis in range(len(place.shape))]
    left = ",".join(letters[axis] for axis in kept)
    count = math.prod(place.shape[axis] for axis in axes) if name == "mean" else 1
    parts = (f"y({left}) {_REDUCTIONS[name]}", f"x({','.join(letters)})")
    result = to.new(tuple(place.shape[axis] for axis in kept), dtype)
    text = text_of_sum(place.shape, parts, count)
    if not to.formula(text, [place], result, f"{name} {node.name}"):
        return lower_fold(to, node)
    shaped = result.reshaped(node.output.shape)
    assert shaped is not None
    to.put(node.output, shaped)
    return True
