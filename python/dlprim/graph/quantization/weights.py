"""Constant weights as bytes with a scale for each channel, and which arrays of a model they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from dlprim.graph.graph import Array, Graph, Node
from dlprim.graph.lowering.sharing import Origin, origin_of
from dlprim.graph.quantization.table import Table, names_of

# Bits of a float that a scale has not: its product with a byte is exact.
_ROUNDED = 8


class Weights(NamedTuple):
    """int8 from -127 to 127, and a scale for each channel of the result."""

    values: Array
    scale: Array
    axis: int

    @property
    def floats(self) -> Array:
        """Of which `in_bytes` makes the same bytes and scales."""
        shape = [1] * self.values.ndim
        shape[self.axis] = -1
        return self.values.astype(np.float32) * self.scale.reshape(shape)


def axis_of(node: Node) -> int:
    """Of the channels in the weights of a convolution or a product."""
    return 0 if node.operator == "convolution" else len(node.operands[1].shape) - 1


def in_bytes(weights: Array, axis: int) -> Weights:
    """Float weights in 8 bits, symmetric, by channel."""
    others = tuple(it for it in range(weights.ndim) if it != axis)
    highest = np.abs(weights).max(axis=others).astype(np.float64)
    bits = (highest / 127).astype(np.float32).view(np.uint32) + np.uint32(1 << (_ROUNDED - 1))
    scale = (bits >> _ROUNDED << _ROUNDED).view(np.float32)
    scale = np.where(scale > 0, scale, np.float32(1))
    shape = [1] * weights.ndim
    shape[axis] = -1
    values = np.clip(np.rint(weights / scale.reshape(shape)), -127, 127).astype(np.int8)
    return Weights(values, scale, axis)


def weights_among(
    arrays: Mapping[str, Array], graphs: Iterable[Graph], table: Table
) -> dict[str, Weights]:
    """Those of the arrays that graphs read as weights of quantised layers alone, in 8 bits."""
    readings = [it for graph in graphs for it in _readings(graph, table)]
    found = {}
    for name, array in arrays.items():
        if array.dtype != np.float32 or not array.flags.c_contiguous or not array.size:
            continue
        axis = _channel_axis(array, readings)
        if axis is not None:
            weights = in_bytes(array, axis)
            if np.isfinite(weights.scale * np.float32(127)).all():
                found[name] = weights
    return found


class _Reading(NamedTuple):
    """A constant that a node reads, and the axis of its channels where it is such weights."""

    origin: Origin
    axis: int | None


def _readings(graph: Graph, table: Table) -> list[_Reading]:
    names = names_of(graph)
    found = []
    for node in graph.nodes:
        is_quantized = names[node.outputs[0]] in table.layers
        for place, value in enumerate(node.inputs):
            constant = None if value is None else graph.constants.get(value)
            origin = None if constant is None else origin_of(constant)
            if origin is not None:
                is_weights = is_quantized and place == 1
                found.append(_Reading(origin, axis_of(node) if is_weights else None))
    return found


def _channel_axis(array: Array, readings: Iterable[_Reading]) -> int | None:
    """The axis of the array that all readings scale, of which they have all channels."""
    axes: set[int] = set()
    channels: set[int] = set()
    begin = array.ctypes.data
    for origin, axis in readings:
        offset = origin.address - begin
        if not 0 <= offset < array.nbytes:
            continue
        if axis is None or origin.dtype != array.dtype:
            return None
        count, stride = origin.shape[axis], origin.strides[axis]
        places = [
            it
            for it, extent in enumerate(array.shape)
            if extent >= count and extent > 1 and array.strides[it] == stride
        ]
        if len(places) != 1 or offset % stride:
            return None
        axes.add(places[0])
        extent = array.shape[places[0]]
        if count * array.size != extent * origin.size or offset // stride + count > extent:
            return None
        channels.update(range(offset // stride, offset // stride + count))
    if len(axes) != 1 or len(channels) != array.shape[min(axes)]:
        return None
    return axes.pop()
