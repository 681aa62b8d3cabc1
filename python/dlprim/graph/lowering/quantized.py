"""Steps between floats and 8 bits: row programs, with one scale or one for each channel."""

from __future__ import annotations

import math

import numpy as np

from dlprim.graph.graph import Array, Node
from dlprim.graph.lowering.elements import row_program
from dlprim.graph.lowering.formulas import is_computed
from dlprim.graph.lowering.lowering import Lowering

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
