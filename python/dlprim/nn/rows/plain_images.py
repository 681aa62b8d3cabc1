"""Images as plain arrays, for layers that work on those: unpacked in front, packed behind."""

from __future__ import annotations

import dlprim
from dlprim.nn.context import Images
from dlprim.nn.module import Array, Module


def unpacked(layer: Module, x: Images) -> Array:
    """A plain array, (N, C, H, W), in a buffer of the layer's context."""
    plain = layer.context.buffers.take(x.shape, x.array.dtype)
    with layer.context.timed(layer.name, "pack"):
        _activations(layer, x).unpack(x.array, plain)
    return plain


def packed(layer: Module, plain: Array, x: Images, out: Array | None = None) -> Images:
    """A plain array of such a buffer, which is given back, packed as x is."""
    buffers = layer.context.buffers
    array = buffers.take(x.array.shape, x.array.dtype) if out is None else out
    with layer.context.timed(layer.name, "pack"):
        _activations(layer, x).pack(plain, array)
    buffers.give(plain)
    return Images(array, x.shape, x.groups)


def _activations(layer: Module, x: Images) -> dlprim.Activations:
    layout, dtype = layer.context.layout, layer.context.dtype_name
    return dlprim.Activations(x.shape, layout=layout, dtype=dtype, groups=x.groups)
