"""Steps on 8 bits: into them and back by row programs, products and pooling by primitives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dlprim.graph.expressions import Expression, operand
from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.lowering.formulas import is_bytes, is_computed, map_formula
from dlprim.graph.lowering.layouts import is_pool_of_blocks
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.lowering.place import Place, inverse, order_of
from dlprim.graph.lowering.products import (
    conv2d,
    core_of,
    linear,
    packed_convolution,
    packed_linear,
)
from dlprim.graph.lowering.sharing import Weights
from dlprim.graph.lowering.windows import lower_pool, pooling

_STEPS: Expression = ("round", ("divide", operand(0), operand(1)))
_SHIFTED: Expression = ("subtract", operand(0), operand(2))
# By the number of operands behind x; what is stored as bytes is saturated.
_CONVERSIONS: dict[tuple[str, int], Expression] = {
    ("quantize", 1): _STEPS,
    ("quantize", 2): ("add", _STEPS, operand(2)),
    ("dequantize", 1): ("multiply", operand(0), operand(1)),
    ("dequantize", 2): ("multiply", _SHIFTED, operand(1)),
}
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
    if factor is None or zero is None:
        return _lower_computed(to, node)
    if not ((factor > 0) & (factor < np.inf)).all():
        return False
    name = f"{node.operator}_{kind}"
    if factor.size == zero.size == 1:
        single = float(factor.reshape(())), float(zero.reshape(()))
        _convert(to, (x, node.output), node.operator, single)
        return True
    extents, arrays = _by_channel(node, factor, zero)
    name += "_by_column" if extents[1] == arrays[0].size else "_by_row"
    operands = [to.constant(it) for it in arrays]
    src, dst = to.number(to.dense(x)), to.number(to.result(node.output))
    label = f"{node.operator} {node.name}"
    to.network.rows(name, dtype.name, extents, [src, *operands, dst], label)
    return True


def _lower_computed(to: Lowering, node: Node) -> bool:
    """A formula, where a run computes scales or zero points."""
    x, *others = node.operands
    if not all(is_computed(it.dtype) or is_bytes(it.dtype) for it in others):
        return False
    axis = node.attributes["axis"] % max(1, len(x.shape))
    listed = [it if place == axis else 1 for place, it in enumerate(x.shape)]
    places = [to.place(x)]
    for value in others:
        place = to.dense(value).reshaped((1,) * len(x.shape) if value.size == 1 else tuple(listed))
        assert place is not None
        places.append(place)
    order = order_of(places[0]) or tuple(range(len(x.shape)))
    shape = places[0].transposed(order).shape
    places = [it.expanded(x.shape).transposed(order) for it in places]
    result = to.new(shape, node.output.dtype)
    made = map_formula(_CONVERSIONS[node.operator, len(others)], places, result)
    if made is None or not to.formula(*made, f"{node.operator} {node.name}"):
        return False
    to.put(node.output, result.transposed(inverse(order)))
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


def lower_byte_pool(to: Lowering, node: Node) -> bool:
    """Maxima of bytes, whose images are channels-last."""
    (x,) = node.operands
    if not is_bytes(x.dtype):
        return lower_pool(to, node)
    float32 = np.dtype(np.float32)
    floats, pooled = (Value(it.name, it.shape, float32) for it in (x, node.output))
    twin = Node(node.operator, (floats,), (pooled,), node.attributes, node.name)
    if not is_pool_of_blocks(twin) or node.attributes["function"] != "max":
        return False
    src = _channels_last(to, x)
    n, c, p, q = node.output.shape
    result = to.new((n, p, q, c), node.output.dtype)
    made = to.number(result)
    to.network.pool(pooling(to, node, 1, "NHWC"), f"pool {node.name}", src=src, dst=made)
    to.put(node.output, result.transposed((0, 3, 1, 2)))
    return True


def _convert(
    to: Lowering, values: tuple[Value, Value], way: str, parameters: Sequence[float]
) -> None:
    """Bytes to floats or back, by scale and zero point, in the order in which they lie."""
    source, result = values
    kind = (source if way == "dequantize" else result).dtype.name
    floats = (result if way == "dequantize" else source).dtype.name
    place = to.place(source)
    order = order_of(place)
    if order is None:
        place, order = to.dense(source), tuple(range(len(source.shape)))
    whole = place.transposed(order)
    made = to.new(whole.shape, result.dtype)
    extents, label = (1, source.size), f"{way} {source.name}"
    operands = [to.number(whole), *parameters, to.number(made)]
    to.network.rows(f"{way}_{kind}", floats, extents, operands, label)
    to.put(result, made.transposed(inverse(order)))


# ---------------------------------------------------------------- products


class _Ends(NamedTuple):
    """What a step takes besides its operands, and how its primitive is made."""

    how: dict[str, Any]
    numbers: tuple[Any, ...]
    values: dict[str, int]


def _ends(to: Lowering, node: Node, weights: Array, axes: tuple[int, ...]) -> _Ends:
    x, _, scale, bias, _ = node.inputs
    assert x is not None
    assert scale is not None
    it = node.attributes
    is_float = is_computed(node.output.dtype)
    relu = "relu" if is_float and it["lowest"] == 0 else None
    how = {
        "dtype": x.dtype.name,
        "dst_dtype": node.output.dtype.name,
        "activation": relu,
        "bias": bias is not None,
    }
    bounds = (-math.inf, math.inf) if is_float else (it["lowest"], it["highest"])
    numbers = (it["x_zero_point"], it["residual_scale"], *bounds, it["y_zero_point"], it["inner"])
    # What the zero point of x adds to each sum.
    sums = -it["x_zero_point"] * weights.sum(axis=axes, dtype=np.int64)
    values = {
        "int_bias": to.constant(sums.astype(np.int32)),
        "scale": to.constant(to.graph.constants[scale]),
    }
    if bias is not None:
        values["bias"] = to.constant(to.graph.constants[bias])
    return _Ends(how, numbers, values)


def _has_end(node: Node) -> bool:
    """Whether kernels end so: a float result has relu or nothing behind it, and no residual."""
    it = node.attributes
    if not is_computed(node.output.dtype):
        return True
    is_relu_or_none = it["lowest"] in (0, -math.inf) and it["highest"] == math.inf
    return is_relu_or_none and node.inputs[4] is None


def _pixels(place: Place) -> Place:
    """Of (N, C, H, W) or (N, C, W): channels last, two axes of pixels."""
    order = (0, *range(2, len(place.shape)), 1)
    last = place.transposed(order)
    if len(place.shape) == 4:
        return last
    shape, strides = (last.shape[0], 1, *last.shape[1:]), (last.strides[0], 0, *last.strides[1:])
    return Place(last.root, last.offset, shape, strides, last.dtype)


def _channels_last(to: Lowering, value: Value) -> int:
    place = _pixels(to.place(value))
    if place.is_dense:
        return to.number(place.reshaped(place.shape) or place)
    made = to.new(place.shape, value.dtype)
    to.network.copy(to.number(place), to.number(made), f"{value.name} channels last")
    return to.number(made)


def lower_quantized_convolution(to: Lowering, node: Node) -> bool:
    """`Conv2d` on channels-last images, which moves and maps between layers see as they are."""
    x, w, _, _, residual = node.inputs
    assert x is not None
    assert w is not None
    weights = to.graph.constants.get(w)
    if weights is None or not x.size or not node.output.size or not _has_end(node):
        return False
    ends = _ends(to, node, weights, tuple(range(1, weights.ndim)))
    more = 4 - weights.ndim
    x_shape, w_shape = ((*it[:2], *[1] * more, *it[2:]) for it in (x.shape, weights.shape))
    it = node.attributes
    geometry = (
        (*[1] * more, *it["strides"]),
        (*[(0, 0)] * more, *it["padding"]),
        (*[1] * more, *it["dilations"]),
        it["groups"],
    )
    conv = to.call(
        conv2d, x_shape, w_shape, geometry, algorithm="direct", layout="NHWC", **ends.how
    )
    packed = to.call(packed_convolution, conv, Weights(weights), w_shape)
    n, k, *spatial = node.output.shape
    result = to.new((n, *spatial, k), node.output.dtype)
    order = (0, len(spatial) + 1, *range(1, len(spatial) + 1))
    dst = Place.dense(result.root, (n, *[1] * more, *spatial, k), result.dtype)
    values = {**ends.values, "src": _channels_last(to, x), "weights": to.constant(packed)}
    if residual is not None:
        values["residual"] = _channels_last(to, residual)
    to.network.conv2d(
        to.call(core_of, conv),
        f"quantized_convolution {node.name}",
        quantized=ends.numbers,
        **values,
        dst=to.number(dst),
    )
    to.put(node.output, result.transposed(order))
    return True


def lower_quantized_matmul(to: Lowering, node: Node) -> bool:
    """`Linear`, whose rows are all axes but the last."""
    x, w, _, _, residual = node.inputs
    assert x is not None
    assert w is not None
    weights = to.graph.constants.get(w)
    if weights is None or residual is not None or not x.size or not _has_end(node):
        return False
    ends = _ends(to, node, weights, (0,))
    rows, channels = x.size // x.shape[-1], w.shape[1]
    layer = to.call(linear, (rows, x.shape[-1]), channels, **ends.how)
    packed = to.call(packed_linear, layer, Weights(weights))
    source = to.dense(x).reshaped((rows, x.shape[-1]))
    result = to.result(node.output).reshaped((rows, channels))
    assert source is not None
    assert result is not None
    values = {**ends.values, "src": to.number(source), "weights": to.constant(packed)}
    to.network.linear(
        to.call(core_of, layer),
        f"quantized_matmul {node.name}",
        quantized=ends.numbers,
        **values,
        dst=to.number(result),
    )
    return True
