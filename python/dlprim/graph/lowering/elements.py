"""Steps for elements and rows: maps and reductions by formulas, softmax and norms by programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dlprim.functions.rows.row_parameters import constant_row
from dlprim.graph.expressions import (
    Expression,
    computes_floats,
    functions_of,
    is_condition,
    number,
)
from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.lowering.folds import lower_fold
from dlprim.graph.lowering.formulas import (
    definition_text,
    is_bytes,
    is_computed,
    is_mapped,
    map_formula,
)
from dlprim.graph.lowering.integers import lower_integer_map
from dlprim.graph.lowering.layouts import is_global_mean
from dlprim.graph.lowering.lowering import Lowering, activations
from dlprim.graph.lowering.place import Place, inverse, order_of
from dlprim.graph.operators import OPERATORS
from dlprim.graph.operators.norms import normalises_alone
from dlprim.graph.passes.precision.elements import stored

_FEW_INSTRUCTIONS = {
    "abs", "add", "divide", "fmax", "maximum", "minimum", "multiply", "negate", "relu", "round",
    "sqrt", "subtract",
}  # fmt: skip


def _blocked_operand(to: Lowering, value: Value, node: Node, groups: int) -> Place:
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
    order: tuple[int, ...] = tuple(range(len(node.output.shape)))
    if groups is None:
        operands = [_as_bytes(to.place(value)) for value in node.operands]
        whole = next((it for it in operands if it.shape == node.output.shape), None)
        order = (None if whole is None else order_of(whole)) or order
        operands = [it.expanded(node.output.shape).transposed(order) for it in operands]
        result = _place_of_map(to, node, order, operands)
    else:
        operands = [_blocked_operand(to, value, node, groups) for value in node.operands]
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


def _rows_of(to: Lowering, value: Value, axes: int) -> tuple[int, int]:
    columns = math.prod(value.shape[len(value.shape) - axes :])
    return value.size // max(1, columns), columns


def lower_softmax(to: Lowering, node: Node) -> bool:
    """A row program, on a copy with the axis behind all others where it is not."""
    (x,) = node.operands
    if not is_computed(x.dtype) or 0 in x.shape:
        return False
    axis = node.attributes["axis"] % len(x.shape)
    order = (*(it for it in range(len(x.shape)) if it != axis), axis)
    name = "log_softmax" if node.attributes["log"] else "softmax"
    is_last = axis == len(x.shape) - 1
    place = to.dense(x) if is_last else to.place(x).transposed(order)
    label = f"{name} {node.name}"
    if not place.is_dense:
        source, place = place, to.new(place.shape, x.dtype)
        to.network.copy(to.number(source), to.number(place), label)
    result = to.new(place.shape, x.dtype)
    extents = (x.size // x.shape[axis], x.shape[axis])
    operands = [to.number(place), to.number(result)]
    to.network.rows(name, x.dtype.name, extents, operands, label)
    to.put(node.output, result.transposed(inverse(order)))
    return True


def _parameter(to: Lowering, value: Value | None, columns: int, default: int) -> int | None:
    """A row of float32, known or not; None for anything else."""
    if value is None:
        return to.constant(constant_row(columns, default))
    if value.size != columns:
        return None
    array = to.graph.constants.get(value)
    if array is not None:
        return to.constant(np.ascontiguousarray(array.reshape(-1), np.float32))
    row = to.dense(value).reshaped((columns,)) if value.dtype == np.float32 else None
    return None if row is None else to.number(row)


def lower_normalize(to: Lowering, node: Node) -> bool:
    """Layer norm or RMS norm as a row program, of a sum where there are two arrays."""
    summands = node.operands[: 2 if node.operator == "add_normalize" else 1]
    x = summands[0]
    weight, bias = (*node.inputs[len(summands) :], None, None)[:2]
    rows, columns = _rows_of(to, x, node.attributes["axes"])
    if not is_computed(x.dtype) or not rows or not columns:
        return False
    is_rms = node.attributes["rms"]
    if is_rms and bias is not None:
        return False
    scale = _parameter(to, weight, columns, 1)
    shift = _parameter(to, bias, columns, 0)
    if scale is None or shift is None:
        return False
    name = "rms_norm" if is_rms else "layer_norm"
    name = f"add_{name}" if len(summands) == 2 else name
    parameters = [scale] if is_rms else [scale, shift]
    sources = [to.number(to.dense(it)) for it in summands]
    # The sum stands in front of what is made of it.
    results = [to.number(to.result(it)) for it in reversed(node.outputs)]
    operands = [*sources, *parameters, float(node.attributes["epsilon"]), *results]
    label, extents = f"{name} {node.name}", (rows, columns)
    to.network.rows(name, x.dtype.name, extents, operands, label)
    return True


def _repeated(parameter: Array, count: int) -> Array:
    return np.tile(np.asarray(parameter, np.float32), count)


def lower_group_norm(to: Lowering, node: Node) -> bool:
    """A row program, of what `normalises_alone` says."""
    x, weight, bias = node.operands
    if not normalises_alone(node, to.graph.constants):
        return False
    rows = x.shape[0] * x.shape[1]
    scale, shift = (
        to.constant(to.call(_repeated, to.graph.constants[it], x.shape[0])) for it in (weight, bias)
    )
    operands = [to.number(to.dense(x)), scale, shift, float(node.attributes["epsilon"])]
    operands.append(to.number(to.result(node.output)))
    extents = (rows, x.size // rows)
    to.network.rows("instance_norm", x.dtype.name, extents, operands, f"instance_norm {node.name}")
    return True


def _text_of_sum(shape: tuple[int, ...], parts: tuple[str, str], count: int) -> str:
    """A definition of sums of x over so many, by which they are divided."""
    factor = f"{1 / count!r} * " if count != 1 else ""
    return definition_text([("x", shape)], [f"{parts[0]} {factor}{parts[1]}"])


_REDUCTIONS = {"sum": "+=!", "mean": "+=!", "max": "max=!", "min": "min=!"}


def _lower_global_mean(to: Lowering, node: Node, groups: int) -> bool:
    """The mean of images that are in blocks."""
    (x,) = node.operands
    n, c, h, w, b = to.block_shape(x, groups)
    place = Place.dense(to.blocks(x, groups), (n, c, h * w, b), x.dtype)
    whole = Value(node.output.name, (*x.shape[:2], 1, 1), x.dtype)
    result = to.new((n, c, b), x.dtype)
    text = to.call(_text_of_sum, place.shape, ("y(n,c,b) +=!", "x(n,c,p,b)"), h * w)
    if not to.formula(text, [place], result, f"mean {node.name}"):
        return False
    blocks = Place.dense(result.root, (n, c, 1, 1, b), x.dtype)
    to.put_blocks(whole, groups, to.number(blocks))
    if node.attributes["keepdims"]:
        to.put_blocks(node.output, groups, to.number(blocks))
    else:
        reshaped = to.place(whole).reshaped(node.output.shape)
        assert reshaped is not None
        to.put(node.output, reshaped)
    return True


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
    if not is_computed(x.dtype) or name not in _REDUCTIONS or 0 in x.shape:
        return lower_fold(to, node)
    if is_global_mean(node) and x in to.blocked and _lower_global_mean(to, node, to.blocked[x]):
        return True
    axes = {axis % len(x.shape) for axis in node.attributes["axes"]}
    if not axes:
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
    result = to.new(tuple(place.shape[axis] for axis in kept), x.dtype)
    text = to.call(_text_of_sum, place.shape, parts, count)
    if not to.formula(text, [place], result, f"{name} {node.name}"):
        return lower_fold(to, node)
    shaped = result.reshaped(node.output.shape)
    assert shaped is not None
    to.put(node.output, shaped)
    return True
