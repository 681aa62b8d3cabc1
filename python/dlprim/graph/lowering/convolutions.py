"""Steps for convolutions and their gradients: on blocks of channels where arrays are in blocks."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from dlprim import schedule_store as store
from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.lowering.formulas import definition_text, map_formula
from dlprim.graph.lowering.gradients import (
    lower_plain_convolution,
    lower_plain_images_gradient,
    lower_plain_weights_gradient,
)
from dlprim.graph.lowering.layouts import (
    groups_of,
    is_blocked_convolution,
    is_pointwise,
    sums_blocks,
)
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.lowering.parameters import row_of
from dlprim.graph.lowering.pixels import keeps_mask
from dlprim.graph.lowering.products import conv2d, core_of, packed_convolution
from dlprim.graph.lowering.sharing import Weights, packed_once
from dlprim.primitives.conv import Conv2d
from dlprim.primitives.conv_algorithm import get_conv_algorithm
from dlprim.primitives.operands import scheduled

Shape = tuple[int, ...]


@lru_cache(maxsize=256)
def _trained(
    schedules: store.Travelled | None,
    algorithm: str,
    shapes: Any,
    geometry: Any,
    **how: Any,
) -> Conv2d:
    return scheduled(Conv2d(*shapes, *geometry, algorithm=algorithm, **how), schedules)


def _trained_conv2d(shapes: tuple[Shape, Shape], geometry: Any, **how: Any) -> Conv2d:
    """The primitive whose passes transform weights themselves, shared by nodes alike."""
    return _trained(store.travelled(), get_conv_algorithm(), shapes, geometry, **how)


def _shape_of(conv: Conv2d, form: str) -> Shape:
    shape: Shape = conv._core.shapes[form]
    return shape


def _packed_directly(conv: Conv2d, weights: Weights, shape: Shape) -> Array:
    """Constant weights as all passes take them."""

    def pack(array: Array) -> Array:
        return conv.pack_weights(array.reshape(shape), form="direct")

    form = (shape, conv._core.weights_shape("direct"), "direct", conv.layout)
    return packed_once(weights, (conv.dtype, *form), pack)


class _Packed:
    """A convolution whose weights are packed in each run, once for all its passes."""

    def __init__(self, to: Lowering, node: Node, shapes: tuple[Shape, Shape], **how: Any) -> None:
        names = ("strides", "padding", "dilations", "groups")
        geometry = tuple(node.attributes[it] for it in names)
        dtype = node.operands[0].dtype
        self._to, self._key, self._dtype = to, (*shapes, geometry), dtype
        self.groups = groups_of(node)
        how = {"activation": None, "bias": False, "dtype": dtype.name, **how}
        self._conv = to.call(_trained_conv2d, shapes, geometry, **how)
        self.core = to.call(core_of, self._conv)

    def weights(self, w: Value) -> int:
        """The weights as all passes take them."""
        to, array = self._to, self._to.graph.constants.get(w)
        if array is not None:
            packed = to.call(_packed_directly, self._conv, to.call(Weights, array), w.shape)
            return to.constant(packed)
        key = ("weights", w, *self._key)
        if key not in to.shared:
            packed = self.memory("weights", self._dtype)
            to.network.pack(
                self.core, "weights", to.number(to.dense(w)), packed, f"{w.name} packed"
            )
            to.shared[key] = packed
        return to.shared[key]

    def memory(self, form: str, dtype: Any) -> int:
        """For an array in a form of the primitive."""
        number: int = self._to.network.temporary(self._to.call(_shape_of, self._conv, form), dtype)
        return number


def lower_convolution(to: Lowering, node: Node) -> bool:
    """`Conv2d` with weights packed once, ever or in a run, or one on plain arrays."""
    if node.output not in to.blocked:
        return _lower_pointwise(to, node) or lower_plain_convolution(to, node)
    x, w, bias, residual = (*node.inputs, None, None)[:4]
    assert x is not None
    assert w is not None
    row = -1 if bias is None else row_of(to, bias, bias.size)
    if row is None:
        return False
    how = {"activation": node.attributes.get("activation"), "bias": bias is not None}
    groups, mask = groups_of(node), -1
    if is_blocked_convolution(to.graph, node):
        names = ("strides", "padding", "dilations", "groups")
        geometry = tuple(node.attributes[it] for it in names)
        conv = to.call(conv2d, x.shape, w.shape, geometry, dtype=x.dtype.name, **how)
        core, known = to.call(core_of, conv), to.call(Weights, to.graph.constants[w])
        weights = to.constant(to.call(packed_convolution, conv, known, w.shape))
    else:
        forward = _Packed(to, node, (x.shape, w.shape), **how)
        core, weights = forward.core, forward.weights(w)
        if how["activation"] == "relu" and keeps_mask(to, node.output):
            mask = to.shared["relu mask", node.output] = forward.memory("relu_mask", np.uint8)
    to.network.conv2d(
        core,
        f"convolution {node.name}",
        src=to.blocks(x, groups),
        weights=weights,
        bias=row,
        residual=-1 if residual is None else to.blocks(residual, groups),
        dst=to.new_blocks(node.output, groups),
        relu_mask=mask,
    )
    return True


def _lower_pointwise(to: Lowering, node: Node) -> bool:
    """The product of a matrix and all pixels, which are read and written where they lie."""
    x, w = node.operands[:2]
    bias, residual = (*node.inputs, None, None)[2:4]
    is_taken = len(x.shape) == 4 and w.dtype == x.dtype and is_pointwise(node)
    is_taken = is_taken and node.output.dtype == x.dtype
    if bias is not None:
        is_taken = is_taken and bias.shape == w.shape[:1] and bias.dtype == x.dtype
    if not is_taken or residual is not None or 0 in (*x.shape, *node.output.shape):
        return False
    n, channels, height, width = x.shape
    pixels, filters = height * width, w.shape[0]
    source = to.dense(x).reshaped((n, channels, pixels))
    matrix = to.dense(w).reshaped((filters, channels))
    result = to.result(node.output).reshaped((n, filters, pixels))
    if source is None or matrix is None or result is None:
        return False
    made = value = "y(n,k,p)"
    operands = [matrix, source]
    if bias is not None:
        operands.append(to.place(bias))
        value = f"({value} + v(k))"
    if node.attributes.get("activation") is not None:
        value = f"{node.attributes['activation']}({value})"
    statements = [f"{made} +=! w(k,c) * x(n,c,p)"]
    statements += [] if value == made else [f"{made} = {value}"]
    shapes = [(name, it.shape) for name, it in zip("wxv", operands, strict=False)]
    text = definition_text(shapes, statements)
    return to.formula(text, operands, result, f"convolution {node.name}")


def lower_transposed(to: Lowering, node: Node) -> bool:
    """The gradient of the images of a convolution, whatever it is here."""
    if node.output not in to.blocked:
        return lower_plain_images_gradient(to, node)
    diff, w = node.operands
    backward = _Packed(to, node, (node.output.shape, w.shape))
    to.network.conv2d_backward_data(
        backward.core,
        f"images of {node.name}",
        diff_dst=to.blocks(diff, backward.groups),
        weights=backward.weights(w),
        diff_src=to.new_blocks(node.output, backward.groups),
    )
    return True


def lower_weights_gradient(to: Lowering, node: Node) -> bool:
    """Sums in float32, unpacked."""
    if not sums_blocks(node, to.blocked):
        return lower_plain_weights_gradient(to, node)
    (x, diff), label = node.operands, f"weights of {node.name}"
    backward = _Packed(to, node, (x.shape, node.output.shape))
    packed = backward.memory("diff_weights", np.float32)
    to.network.conv2d_backward_weights(
        backward.core,
        label,
        src=to.blocks(x, backward.groups),
        diff_dst=to.blocks(diff, backward.groups),
        diff_weights=packed,
    )
    sums = to.new(node.output.shape, np.dtype(np.float32))
    to.network.unpack(backward.core, "diff_weights", packed, to.number(sums), label)
    if node.output.dtype == np.float32:
        to.put(node.output, sums)
        return True
    rounded = map_formula(("input", 0), [sums], to.result(node.output))
    return rounded is not None and to.formula(*rounded, label)
