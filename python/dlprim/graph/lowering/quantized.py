"""Steps on 8 bits: into them and back by row programs, products by `Linear`, the rest in floats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from dlprim.graph.expressions import operand
from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.lowering.elements import lower_map, row_program
from dlprim.graph.lowering.formulas import is_computed
from dlprim.graph.lowering.layouts import is_pool_of_blocks
from dlprim.graph.lowering.lowering import Lower, Lowering
from dlprim.graph.lowering.windows import lower_pool
from dlprim.graph.operators.quantized import limits
from dlprim.graph.passes.precision.elements import unrounded
from dlprim.primitives.linear import Linear

_NARROW = 64  # elements of a row below which columns take less time


def lower_quantize(to: Lowering, node: Node) -> bool:
    """A row program, where scale and zero point are known."""
    return _lower(to, node, node.output.dtype.name, node.operands[0].dtype)


def lower_dequantize(to: Lowering, node: Node) -> bool:
    """The same in the other direction."""
    return _lower(to, node, node.operands[0].dtype.name, node.output.dtype)


def _lower(to: Lowering, node: Node, kind: str, dtype: np.dtype[np.generic]) -> bool:
    x, scale, zero_point = (*node.inputs, None)[:3]
    assert x is not None
    assert scale is not None
    factor = to.graph.constants.get(scale)
    zero = np.zeros(1) if zero_point is None else to.graph.constants.get(zero_point)
    if kind not in ("uint8", "int8") or not is_computed(dtype) or not x.size:
        return False
    if factor is None or zero is None or not ((factor > 0) & (factor < np.inf)).all():
        return False
    name = f"{node.operator}_{kind}"
    operands: list[float]
    if factor.size == zero.size == 1:
        extents = (1, x.size)
        operands = [float(factor.reshape(())), float(zero.reshape(()))]
    else:
        extents, arrays = _by_channel(node, factor, zero)
        name += "_by_column" if extents[1] == arrays[0].size else "_by_row"
        operands = [to.constant(it) for it in arrays]
    src, dst = to.number(to.dense(x)), to.number(to.result(node.output))
    label = f"{node.operator} {node.name}"
    to.network.rows(row_program(name), dtype.name, extents, [src, *operands, dst], label)
    return True


def _by_channel(node: Node, scale: Array, zero: Array) -> tuple[tuple[int, int], list[Array]]:
    """Rows and columns, and scales and zero points along one of the two."""
    shape, axis = node.operands[0].shape, node.attributes["axis"]
    place = axis % len(shape)
    outer, count, inner = math.prod(shape[:place]), shape[place], math.prod(shape[place + 1 :])
    both = [np.broadcast_to(it.reshape(-1), count).astype(np.float32) for it in (scale, zero)]
    if inner < _NARROW:
        return (outer, count * inner), [np.repeat(it, inner) for it in both]
    return (outer * count, inner), [np.tile(it, outer) for it in both]


def lower_byte_map(to: Lowering, node: Node) -> bool:
    """A map of floats, with bytes converted in front of it and rounded behind it."""
    if not any(_is_byte(it) for it in (*node.operands, node.output)):
        return lower_map(to, node)
    expression = node.attributes["expression"]
    if not _is_byte(node.output):  # arithmetic of integers is another one
        return expression == operand(0) and _through_floats(to, node, lower_map)
    found = unrounded(expression)
    if found is None:
        return False
    expression, *parameters = found
    attributes = {"expression": expression, "dtype": "float32"}
    inside = Node("map", node.inputs, node.outputs, attributes, node.name)
    return _through_floats(to, inside, lower_map, parameters)


def lower_byte_pool(to: Lowering, node: Node) -> bool:
    """Maxima of bytes are those of the floats."""
    if not _is_byte(node.output):
        return lower_pool(to, node)
    return is_pool_of_blocks(_with_floats(node)) and _through_floats(to, node, lower_pool)


def _through_floats(
    to: Lowering, node: Node, lower: Lower, parameters: Sequence[float] = (1.0, 0.0)
) -> bool:
    """Steps of a node whose arrays of bytes become floats in front of it, and bytes behind it."""
    values = [*node.operands, node.output]
    if not all(_is_byte(it) or is_computed(it.dtype) for it in values) or not node.output.size:
        return False
    twin = _with_floats(node)
    for value, floats in zip(node.operands, twin.operands, strict=True):
        if _is_byte(value):
            _convert(to, (value, floats), "dequantize", (1.0, 0.0))
    if not lower(to, twin):
        return False
    if _is_byte(node.output):
        _convert(to, (twin.output, node.output), "quantize", parameters)
    return True


def _is_byte(value: Value) -> bool:
    return value.dtype.name in ("uint8", "int8")


def _with_floats(node: Node) -> Node:
    """The same node of floats, for which bytes are converted."""
    float32 = np.dtype(np.float32)
    values = dict.fromkeys(it for it in (*node.operands, node.output) if _is_byte(it))
    twins = {it: Value(it.name, it.shape, float32) for it in values}
    inputs = tuple(None if it is None else twins.get(it, it) for it in node.inputs)
    output = twins.get(node.output, node.output)
    return Node(node.operator, inputs, (output,), node.attributes, node.name)


def _convert(
    to: Lowering, values: tuple[Value, Value], way: str, parameters: Sequence[float]
) -> None:
    """Bytes to floats or back, by scale and zero point."""
    source, result = values
    kind = (source if way == "dequantize" else result).dtype.name
    src, dst = to.number(to.dense(source)), to.number(to.result(result))
    extents, label = (1, source.size), f"{way} {source.name}"
    operands = [src, *parameters, dst]
    to.network.rows(row_program(f"{way}_{kind}"), "float32", extents, operands, label)


# ---------------------------------------------------------------- products


@lru_cache(maxsize=256)
def _linear(shape: tuple[int, int], channels: int, dtypes: tuple[str, str], relu: bool) -> Linear:
    return Linear(
        shape,
        channels,
        dtype=dtypes[0],
        dst_dtype=dtypes[1],
        activation="relu" if relu else None,
        bias=True,
    )


def lower_quantized_matmul(to: Lowering, node: Node) -> bool:
    """`Linear`, whose bias takes both zero points."""
    x, w, scale, bias, residual = node.inputs
    assert x is not None
    assert w is not None
    assert scale is not None
    end = _end_of(node)
    arrays = [to.graph.constants.get(it) for it in (w, scale)]
    weights, factor = arrays
    if weights is None or factor is None or end is None or residual is not None or not x.size:
        return False
    rows, channels = x.size // x.shape[-1], w.shape[1]
    sums = weights.sum(axis=0, dtype=np.int64) * node.attributes["x_zero_point"]
    shift = node.attributes["y_zero_point"] - sums * factor.astype(np.float64)
    if bias is not None:
        shift = shift + to.graph.constants[bias]
    dtypes = x.dtype.name, node.output.dtype.name
    linear = _linear((rows, x.shape[-1]), channels, dtypes, end == "relu")
    packed = linear.pack_weights(np.ascontiguousarray(weights.T), backward=False)
    source = to.dense(x).reshaped((rows, x.shape[-1]))
    result = to.result(node.output).reshaped((rows, channels))
    assert source is not None
    assert result is not None
    to.network.linear(
        linear._core,
        f"linear {node.name}",
        src=to.number(source),
        weights=to.constant(packed),
        bias=to.constant(shift.astype(np.float32)),
        scale=to.constant(factor),
        dst=to.number(result),
    )
    return True


def _end_of(node: Node) -> str | None:
    """Relu or "none" where the bounds are those, and None where the kernel has no such end."""
    attributes = node.attributes
    zero_point = attributes["y_zero_point"]
    lowest, highest = limits(attributes["dtype"], zero_point)
    if attributes["highest"] != highest:
        return None
    if attributes["lowest"] == lowest:
        return "none"
    return "relu" if attributes["lowest"] == zero_point == 0 else None
