"""Steps for rows: softmax, norms, and their gradients, by programs of the row engine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dlprim.functions.rows.row_parameters import constant_row
from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.lowering.formulas import is_computed
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.lowering.parameters import row_of
from dlprim.graph.lowering.place import Place, inverse
from dlprim.graph.operators.norms import normalises_alone


def _last(to: Lowering, value: Value, axis: int, label: str) -> Place:
    """The value with an axis behind all others: a copy where it is not."""
    order = (*(it for it in range(len(value.shape)) if it != axis), axis)
    is_last = axis == len(value.shape) - 1
    place = to.dense(value) if is_last else to.place(value).transposed(order)
    return to.in_c_order(place, label)


def _softmax_of(to: Lowering, node: Node, name: str) -> bool:
    """A row program, on copies with the axis behind all others where it is not."""
    x = node.output
    alike = all(it.dtype == x.dtype for it in node.operands)
    if not is_computed(x.dtype) or not alike or 0 in x.shape:
        return False
    axis = node.attributes["axis"] % len(x.shape)
    order = (*(it for it in range(len(x.shape)) if it != axis), axis)
    label = f"{name} {node.name}"
    places = [_last(to, it, axis, label) for it in node.operands]
    places.append(to.new(places[0].shape, x.dtype))
    extents = (x.size // x.shape[axis], x.shape[axis])
    to.network.rows(name, x.dtype.name, extents, [to.number(it) for it in places], label)
    to.put(node.output, places[-1].transposed(inverse(order)))
    return True


def lower_softmax(to: Lowering, node: Node) -> bool:
    """Softmax, or its logarithm."""
    return _softmax_of(to, node, "log_softmax" if node.attributes["log"] else "softmax")


def lower_softmax_gradient(to: Lowering, node: Node) -> bool:
    """Of the gradient by either and the result."""
    name = "log_softmax_backward" if node.attributes["log"] else "softmax_backward"
    return _softmax_of(to, node, name)


def _rows_of(to: Lowering, value: Value, axes: int) -> tuple[int, int]:
    columns = math.prod(value.shape[len(value.shape) - axes :])
    return value.size // max(1, columns), columns


def _parameter(to: Lowering, value: Value | None, columns: int, default: int) -> int | None:
    """As `row_of`, of a default where there is no value."""
    if value is None:
        return to.constant(to.call(constant_row, columns, default))
    return row_of(to, value, columns)


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


def lower_normalize_gradient(to: Lowering, node: Node) -> bool:
    """One row program with the sums for parameters, and what is added to the gradient by x."""
    diff, x, weight, addend = node.inputs
    assert x is not None
    rows, columns = _rows_of(to, x, node.attributes["axes"])
    tensors = [it for it in (diff, addend, x) if it is not None]
    if not is_computed(x.dtype) or any(it.dtype != x.dtype for it in tensors):
        return False
    scale = _parameter(to, weight, columns, 1)
    if not rows or not columns or scale is None:
        return False
    name = "rms_norm_backward" if node.attributes["rms"] else "layer_norm_backward"
    name = name if addend is None else f"add_{name}"
    results = [to.result(it) for it in node.outputs]
    sums = [it.reshaped((columns,)) for it in results[1:]]
    operands: list[Any] = [to.number(to.dense(it)) for it in tensors]
    operands += [scale, float(node.attributes["epsilon"]), to.number(results[0])]
    operands += [to.number(it) for it in sums if it is not None]
    to.network.rows(name, x.dtype.name, (rows, columns), operands, f"{name} {node.name}")
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
