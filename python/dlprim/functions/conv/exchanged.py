"""The passes of a convolution as those of the transposed one.

What is x here is the gradient of that convolution's result, and w, (C, K/groups, ...) in PyTorch's
order, is its filter as it stands. So each pass is one of the convolution, with parts exchanged.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dlprim import _core
from dlprim.arguments.arrays import Array, FloatArray, Shape, aligned, contiguous, result_array
from dlprim.arguments.calls import KNOWN
from dlprim.arguments.floats import bits_of, like_x, type_of, widened
from dlprim.functions.conv.operands import ConvGradients, offset_of, operands_of
from dlprim.functions.conv.passes import Passes, passes_of
from dlprim.functions.conv.windows import Window, group_count, steps
from dlprim.functions.rows.reductions import reduce_sum


class _Transposed(NamedTuple):
    window: Window  # of the convolution whose result has the shape of x
    y_shape: Shape  # of its input, and behind that what no x reaches

    @property
    def reached(self) -> tuple[slice, ...]:
        return tuple(slice(0, extent) for extent in self.window.x_shape)


def _transposed(x_shape: Shape, w_shape: Shape, arguments: tuple[Any, ...]) -> _Transposed:
    """Arguments are stride, padding, output_padding, groups and dilation."""
    stride, padding, output_padding, groups, dilation = arguments
    axes = len(x_shape) - 2
    strides, dilations = steps("stride", stride, axes, 1), steps("dilation", dilation, axes, 1)
    pads, more = (
        steps("padding", padding, axes, 0),
        steps("output_padding", output_padding, axes, 0),
    )
    count = group_count(groups, w_shape)
    if w_shape[0] != x_shape[1]:
        raise ValueError(
            f"w has shape {w_shape}, which takes {w_shape[0]} input channels, but x has "
            f"C = {x_shape[1]}"
        )
    given, reached, sides = [], [], []
    for axis in range(axes):
        step, pad, extra = strides[axis], pads[axis], more[axis]
        if extra >= max(step, dilations[axis]):
            raise ValueError(
                f"output_padding is {output_padding}, expected integers below the stride or the "
                "dilation"
            )
        span = (x_shape[axis + 2] - 1) * step + dilations[axis] * (w_shape[axis + 2] - 1) + 1
        extent = span - 2 * pad + extra
        if extent < 1:
            raise ValueError(
                f"padding is {padding}, which leaves {extent} of the elements of the result along "
                f"axis {axis + 2}, expected at least 1"
            )
        behind = pad - min(extra, pad)
        beyond = extra - pad + behind
        given.append(extent)
        reached.append(extent - (beyond if beyond >= step else 0))
        sides.append((pad, behind))
    images = x_shape[0], w_shape[1] * count
    window = Window((*images, *reached), w_shape, strides, tuple(sides), dilations, count)
    return _Transposed(window, (*images, *given))


def forward(
    axes: int, arrays: tuple[Any, Any, Any], arguments: tuple[Any, ...], out: Any, dtype: Any
) -> Array:
    """Of x, w and bias."""
    others = "conv_transpose", axes, arguments, dtype
    known: tuple[_Transposed, Passes] | None = KNOWN.find(arrays, others)
    if known is None:
        src, weights = operands_of(*arrays[:2], axes, dtype)
        it = _transposed(src.shape, weights.shape, arguments)
        used = src, weights, offset_of(arrays[2], weights, it.y_shape[1])
        known = it, passes_of(it.window, type_of(src))
        KNOWN.keep(arrays, others, known, used)
        arrays = used
    it, passes = known
    src, weights, offset = arrays
    if out is None:
        result = aligned(it.y_shape, src.dtype)
    else:
        operands = {"x": src, "w": weights, "bias": offset}
        result = result_array(out, it.y_shape, operands, src.dtype)
    if it.window.x_shape == it.y_shape:
        passes.backward_data(src, weights, result)
    else:
        inner = aligned(it.window.x_shape, src.dtype)
        passes.backward_data(src, weights, inner)
        bits_of(result)[...] = 0
        bits_of(result)[it.reached] = bits_of(inner)
    if offset is not None:
        _add(offset, result)
    return result


def _add(bias: FloatArray, y: Array) -> None:
    """In float32, to the channels of y."""
    sums = widened(y)
    sums += bias.reshape(-1, *(1,) * (y.ndim - 2))
    if sums is not y:
        _core.round_to_bfloat16(sums, y)


def backward(
    axes: int, arrays: tuple[Any, Any, Any], arguments: tuple[Any, ...], dtype: Any
) -> ConvGradients:
    """Of dy, x and w."""
    others = "conv_transpose_backward", axes, arguments, dtype
    known: tuple[_Transposed, Passes] | None = KNOWN.find(arrays, others)
    if known is None:
        src, weights = operands_of(*arrays[1:], axes, dtype)
        it = _transposed(src.shape, weights.shape, arguments)
        diff_dst = like_x("dy", arrays[0], src, it.y_shape, "the result's from x and w")
        known, used = (it, passes_of(it.window, type_of(src))), (diff_dst, src, weights)
        KNOWN.keep(arrays, others, known, used)
        arrays = used
    it, passes = known
    diff_dst, src, weights = arrays
    dx, inner = aligned(src.shape, src.dtype), contiguous(diff_dst[it.reached])
    passes.forward(inner, weights, None, dx)
    dw, _ = passes.backward_weights(src, inner)
    axes_but_channels = (0, *range(2, diff_dst.ndim))
    return ConvGradients(dx, dw, reduce_sum(widened(diff_dst), axes_but_channels))
