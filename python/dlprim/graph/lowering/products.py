"""Steps for products: linear layers by `Linear`, all else by formulas; and primitives of layers."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from dlprim import schedule_store as store
from dlprim.graph.graph import Array, Node
from dlprim.graph.lowering.formulas import definition_text, is_bytes, is_computed
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.lowering.place import Place
from dlprim.graph.lowering.sharing import Weights, packed_once
from dlprim.graph.operators.panels import panel_layer
from dlprim.primitives.conv import Conv2d
from dlprim.primitives.conv_algorithm import get_conv_algorithm
from dlprim.primitives.linear import Linear
from dlprim.primitives.operands import scheduled


def conv2d(x_shape: Any, w_shape: Any, geometry: Any, **how: Any) -> Conv2d:
    """The primitive, shared by nodes alike; by the algorithm that is set now unless one is said."""
    algorithm = how.pop("algorithm", None) or get_conv_algorithm()
    return _conv2d(store.travelled(), algorithm, x_shape, w_shape, geometry, **how)


@lru_cache(maxsize=256)
def _conv2d(
    schedules: store.Travelled | None,
    algorithm: str,
    x_shape: Any,
    w_shape: Any,
    geometry: Any,
    **how: Any,
) -> Conv2d:
    conv = Conv2d(x_shape, w_shape, *geometry, algorithm=algorithm, **how)
    if algorithm == "auto" and _reads_too_much(conv):
        conv = Conv2d(x_shape, w_shape, *geometry, algorithm="direct", **how)
    return scheduled(conv, schedules)


def _reads_too_much(conv: Conv2d) -> bool:
    """Whether Winograd's larger weights cost more than the multiplications it saves.

    Between two runs of a network, weights leave the caches. Winograd saves about half of the
    multiplications; twelve or more of them take as long as a byte of memory.
    """
    if not conv._core.algorithm("forward").startswith("winograd"):
        return False
    more = math.prod(conv._core.weights_shape("forward")) - math.prod(conv.w_shape)
    return bool(12 * more * conv.dtype.itemsize > conv.flops / 2)


def linear(x_shape: tuple[int, int], channels: int, **how: Any) -> Linear:
    """The primitive on plain arrays, shared by nodes that are alike."""
    return _linear(store.travelled(), x_shape, channels, **how)


@lru_cache(maxsize=256)
def _linear(
    schedules: store.Travelled | None, x_shape: tuple[int, int], channels: int, **how: Any
) -> Linear:
    return scheduled(Linear(x_shape, channels, layout="plain", **how), schedules)


def core_of(primitive: Any) -> Any:
    """What steps are made of."""
    return primitive._core


def packed_convolution(conv: Conv2d, weights: Weights, shape: tuple[int, ...]) -> Array:
    """Weights of this shape, for the forward pass alone."""
    algorithm = conv._core.algorithm("forward")
    form = (shape, conv._core.weights_shape("forward"), algorithm, conv.layout)

    def pack(array: Array) -> Array:
        return conv.pack_weights(array.reshape(shape), form="forward")

    return packed_once(weights, (conv.dtype, *form), pack)


def packed_linear(layer: Linear, weights: Weights) -> Array:
    """Weights of (C, K)."""

    def pack(array: Array) -> Array:
        return layer.pack_weights(array.T, backward=False)

    form = (layer.dtype, layer.layout, layer.weights_shape)
    return packed_once(weights, form, pack)


def _lower_linear(to: Lowering, node: Node) -> bool:
    x, w, bias = (*node.inputs, None)[:3]
    assert x is not None
    assert w is not None
    rows = x.size // max(1, x.shape[-1])
    if not rows or (bias is not None and bias not in to.graph.constants):
        return False
    activation = node.attributes.get("activation")
    layer = to.call(
        linear,
        (rows, x.shape[-1]),
        w.shape[1],
        dtype=x.dtype.name,
        activation=activation,
        bias=bias is not None,
        dst_dtype=node.output.dtype.name,
    )
    packed = to.constant(to.call(packed_linear, layer, to.call(Weights, to.graph.constants[w])))
    shift = -1 if bias is None else to.constant(to.graph.constants[bias].astype(np.float32))
    source = to.dense(x).reshaped((rows, x.shape[-1]))
    result = to.result(node.output).reshaped((rows, w.shape[1]))
    assert source is not None
    assert result is not None
    src, dst = to.number(source), to.number(result)
    to.network.linear(
        to.call(core_of, layer), f"linear {node.name}", src=src, weights=packed, bias=shift, dst=dst
    )
    return True


def lower_panel_product(to: Lowering, node: Node) -> bool:
    """Of weights in few bits: one step, which knows its rows by x."""
    x, packed, bias = (*node.inputs, None)[:3]
    assert x is not None
    assert packed is not None
    known = to.graph.constants
    is_known = packed in known and (bias is None or bias in known)
    if not is_known or x.dtype.name not in ("float32", "bfloat16") or 0 in x.shape:
        return False
    how = node.attributes
    layer = panel_layer(tuple(how["channels"]), tuple(how["form"]))
    shift = -1 if bias is None else to.constant(known[bias].astype(np.float32))
    to.network.panel_linear(
        layer,
        how["activation"] or "none",
        f"linear {node.name}",
        src=to.number(to.dense(x)),
        weights=to.constant(known[packed]),
        bias=shift,
        dst=to.number(to.result(node.output)),
    )
    return True


def lower_matmul(to: Lowering, node: Node) -> bool:
    """`Linear` where the weights are constant, a formula on the arrays as they lie elsewhere."""
    a, b = node.operands[:2]
    if a.dtype == b.dtype == node.output.dtype and a.dtype.name in ("int32", "int64"):
        return _lower_whole(to, node)
    sums_bytes = is_bytes(a.dtype) and is_bytes(b.dtype) and node.output.dtype == np.int32
    if not (sums_bytes or is_computed(a.dtype, b.dtype, node.output.dtype)) or len(a.shape) < 2:
        return False
    bias = (*node.inputs, None)[2]
    is_known = b in to.graph.constants and (bias is None or bias in to.graph.constants)
    is_kept = node.output.dtype in (a.dtype, np.dtype(np.float32))
    if len(b.shape) == 2 and is_known and a.dtype == b.dtype and is_kept:
        return _lower_linear(to, node)
    if len(b.shape) < 2:
        return False
    lead = node.output.shape[:-2]
    left = to.place(a).expanded((*lead, *a.shape[-2:]))
    right = to.place(b).expanded((*lead, *b.shape[-2:]))
    result = to.result(node.output)
    axes = [axis for axis, extent in enumerate(lead) if extent != 1]
    batch = ["bcdefgh"[place] for place in range(len(axes))]
    made = f"y({','.join([*batch, 'i', 'j'])})"
    statements = [
        f"{made} +=! a({','.join([*batch, 'i', 'k'])}) * w({','.join([*batch, 'k', 'j'])})"
    ]
    end = _end(node, made)
    operands = [_without(it, 2) for it in (left, right)]
    operands += [] if bias is None else [to.place(bias)]
    shapes = [(name, it.shape) for name, it in zip("awv", operands, strict=False)]
    text = definition_text(shapes, [*statements, *([] if end is None else [end])])
    return to.formula(text, operands, _without(result, 2), f"matmul {node.name}")


def _end(node: Node, made: str) -> str | None:
    """What follows the sums, which the core does before it stores them where it can."""
    value = made if len(node.operands) < 3 else f"({made} + v(j))"
    activation = node.attributes.get("activation")
    if activation is not None:
        value = f"{activation}({value})"
    return None if value == made else f"{made} = {value}"


def _lower_whole(to: Lowering, node: Node) -> bool:
    """Products of integers, which the kernel does not take."""
    a, b = node.operands[:2]
    is_plain = len(node.operands) == 2 and "activation" not in node.attributes
    if not is_plain or min(len(a.shape), len(b.shape)) < 2 or not node.output.size or not a.size:
        return False
    lead = node.output.shape[:-2]
    places = [to.place(it).expanded((*lead, *it.shape[-2:])) for it in (a, b)]
    whole = [to.in_c_order(it, f"matmul {node.name}") for it in places]
    result, count = to.result(node.output), math.prod(lead)
    listed = [it.reshaped((count, *it.shape[-2:])) for it in (*whole, result)]
    numbers = [to.number(it) for it in listed if it is not None]
    to.network.function("matmul", {}, numbers[:2], numbers[2:], f"matmul {node.name}")
    return True


def _without(place: Place, rank: int) -> Place:
    """Without leading axes of one element."""
    axes = [
        axis
        for axis, extent in enumerate(place.shape)
        if extent != 1 or axis >= len(place.shape) - rank
    ]
    shape = tuple(place.shape[axis] for axis in axes)
    strides = tuple(place.strides[axis] for axis in axes)
    return Place(place.root, place.offset, shape, strides, place.dtype)
