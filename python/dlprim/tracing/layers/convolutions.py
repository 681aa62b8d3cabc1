"""dlprim's convolutions, pools and resampling of images in a trace."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.arguments.scalars import flag, integer, shown
from dlprim.functions.conv.windows import group_count, steps, window
from dlprim.functions.extents.image_arrays import image_layout, image_size
from dlprim.functions.extents.interpolation import rule_of
from dlprim.functions.extents.windows import Axis, weights_of
from dlprim.graph.extents import derived
from dlprim.tracing.layers.operands import alike, checked_layer, floats, shaped, values
from dlprim.tracing.layers.rows import ended
from dlprim.tracing.tracer import made

_SHAPES = {1: "(N, C, W)", 2: "(N, C, H, W)", 3: "(N, C, D, H, W)"}


def _convolved(axes: int, arrays: tuple[Any, ...], numbers: tuple[Any, ...]) -> Any:
    x, w, bias = floats(x=arrays[0], w=arrays[1], bias=arrays[2])
    _require_axes(axes, x, w)
    it = window(x.shape, w.shape, *numbers)
    shaped("bias", bias, w.shape[:1], "K from w")
    how = {
        "strides": it.stride,
        "dilations": it.dilation,
        "padding": it.padding,
        "groups": it.groups,
    }
    build, inputs = x.tracer.build, values(x, w, bias)
    return made(x.tracer, lambda: build.emit("convolution", inputs, **how)[0])


def _require_axes(axes: int, x: Any, w: Any) -> None:
    alike("w", w, "x", x)
    if x.ndim != axes + 2:
        raise ValueError(f"x has shape {x.shape}, expected {axes + 2} dimensions {_SHAPES[axes]}")
    if w.ndim != axes + 2:
        raise ValueError(f"w has shape {w.shape}, expected {axes + 2} dimensions")


@checked_layer
def conv1d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    return _convolved(1, (x, w, bias), (stride, padding, dilation, groups))


@checked_layer
def conv3d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    return _convolved(3, (x, w, bias), (stride, padding, dilation, groups))


@checked_layer
def conv2d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    activation: str | None = None,
    residual: Any = None,
    layout: str = "NCHW",
) -> Any:
    is_last = image_layout(layout) == "NHWC"
    x, w, residual = floats(x=x, w=w, residual=residual)
    source = np.moveaxis(x, -1, 1) if is_last and x.ndim == 4 else x
    y = _convolved(2, (source, w, bias), (stride, padding, dilation, groups))
    result = np.moveaxis(y, 1, -1) if is_last else y
    if residual is not None:
        alike("residual", residual, "x", x)
        shaped("residual", residual, result.shape, "the shape of y")
        result = result + residual
    return ended(result, activation)


def _transposed(axes: int, arrays: tuple[Any, ...], numbers: tuple[Any, ...]) -> Any:
    x, w, bias = floats(x=arrays[0], w=arrays[1], bias=arrays[2])
    _require_axes(axes, x, w)
    stride, padding, output_padding, groups, dilation = numbers
    strides, dilations = steps("stride", stride, axes, 1), steps("dilation", dilation, axes, 1)
    more = steps("output_padding", output_padding, axes, 0)
    if any(extra >= max(pair) for extra, *pair in zip(more, strides, dilations, strict=True)):
        raise ValueError(
            f"output_padding is {shown(output_padding)}, expected less than stride or dilation"
        )
    count = integer("groups", groups, 1)
    if x.shape[1] != w.shape[0]:
        raise ValueError(f"w has shape {w.shape}, expected {x.shape[1]} input channels as x has")
    group_count(count, w.shape)
    shaped("bias", bias, (w.shape[1] * count,), "K from w")
    how = {
        "strides": strides,
        "dilations": dilations,
        "padding": tuple((it, it) for it in steps("padding", padding, axes, 0)),
        "groups": count,
        "output_padding": more,
    }
    build, inputs = x.tracer.build, values(x, w, bias)
    return made(x.tracer, lambda: build.emit("transposed_convolution", inputs, **how)[0])


def _transposed_layer(axes: int) -> None:
    def apply(
        x: Any,
        w: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Any:
        return _transposed(axes, (x, w, bias), (stride, padding, output_padding, groups, dilation))

    apply.__name__ = f"conv_transpose{axes}d"
    checked_layer(apply)


# ---------------------------------------------------------------- windows


def _pooled(
    axes: int, function: str, x: Any, numbers: tuple[Any, ...], counts_padding: bool
) -> Any:
    (x,) = floats(x=x)
    if x.ndim != axes + 2:
        raise ValueError(f"x has shape {x.shape}, expected {axes + 2} dimensions {_SHAPES[axes]}")
    kernel, stride, padding = numbers
    taps = steps("kernel", kernel, axes, 1)
    strides = taps if stride is None else steps("stride", stride, axes, 1)
    sides = steps("padding", padding, axes, 0)
    counts = []
    for n, k, s, p in zip(x.shape[2:], taps, strides, sides, strict=True):
        if 2 * p > k:
            raise ValueError(f"padding is {padding!r}, expected at most half of kernel = {kernel}")
        if k > n + 2 * p:
            raise ValueError(
                f"kernel covers {k} elements along an axis of x, which has {n} and a padding of "
                f"{2 * p}"
            )
        counts.append((n + 2 * p - k) // s + 1)
    how = {
        "function": function,
        "kernel": taps,
        "strides": strides,
        "dilations": (1,) * axes,
        "padding": tuple((it, it) for it in sides),
        "counts": tuple(counts),
        "counts_padding": counts_padding,
    }
    build = x.tracer.build
    return made(x.tracer, lambda: build.emit("pool", [x.value], **how)[0])


def _pool_layers(axes: int) -> None:
    def largest(x: Any, kernel: Any, stride: Any = None, padding: Any = 0) -> Any:
        return _pooled(axes, "max", x, (kernel, stride, padding), False)

    def mean(
        x: Any, kernel: Any, stride: Any = None, padding: Any = 0, *, count_include_pad: bool = True
    ) -> Any:
        counts = flag("count_include_pad", count_include_pad)
        return _pooled(axes, "mean", x, (kernel, stride, padding), counts)

    largest.__name__, mean.__name__ = f"max_pool{axes}d", f"avg_pool{axes}d"
    checked_layer(largest)
    checked_layer(mean)


for _axes in (1, 2, 3):
    _transposed_layer(_axes)
    _pool_layers(_axes)


def _resampled(x: Any, layout: str, rows: Axis, columns: Axis) -> Any:
    """A product with a matrix along each axis."""
    image = np.moveaxis(x, -1, 1) if layout == "NHWC" else x
    down, across = (derived(_matrix, it).astype(x.dtype) for it in (rows, columns))
    y = np.matmul(np.matmul(down, image), across.transpose())
    return np.moveaxis(y, 1, -1) if layout == "NHWC" else y


def _matrix(axis: Axis) -> Any:
    """What each result takes of each pixel."""
    begins, counts, weights = weights_of(axis)
    made = np.zeros((axis.dst, axis.src), np.float32)
    places = np.repeat(begins, counts) + np.concatenate([np.arange(it) for it in counts])
    made[np.repeat(np.arange(axis.dst), counts), places] = weights
    return made


def _image(x: Any, layout: Any) -> tuple[Any, str, tuple[int, int]]:
    order = image_layout(layout)
    (x,) = floats(x=x)
    if x.ndim != 4:
        raise ValueError(f"x has shape {x.shape}, expected four dimensions")
    return x, order, (x.shape[1:3] if order == "NHWC" else x.shape[2:])


@checked_layer
def adaptive_avg_pool2d(x: Any, output_size: Any, *, layout: str = "NCHW") -> Any:
    x, order, size = _image(x, layout)
    due = image_size("output_size", output_size, size)
    if due == (1, 1):
        return np.mean(x, axis=(1, 2) if order == "NHWC" else (2, 3), keepdims=True)
    rows, columns = (Axis("average", n, m) for n, m in zip(size, due, strict=True))
    return _resampled(x, order, rows, columns)


@checked_layer
def interpolate(
    x: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
    *,
    layout: str = "NCHW",
) -> Any:
    rule = rule_of(size, scale_factor, mode, align_corners)
    x, order, extents = _image(x, layout)
    return _resampled(x, order, *rule(extents))
