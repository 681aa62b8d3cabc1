"""Products of quantised arrays: of the floats that they stand for, quantised again.

Passes make integer products of that, as they do where models say it with three nodes themselves.
"""

from __future__ import annotations

from dlprim.graph.builder import Builder
from dlprim.graph.graph import Value
from dlprim.onnx.operators.layers.convolutions import conv
from dlprim.onnx.operators.layers.products import gemm
from dlprim.onnx.operators.quantized.conversions import (
    MICROSOFT,
    channels_behind,
    channels_second,
    dequantized,
    quantized,
)
from dlprim.onnx.registry import RefusedError, operator


def _one(name: str, value: Value | None) -> None:
    if value is not None and value.size != 1:
        raise RefusedError(f"{name} of {list(value.shape)}, expected one number")


def _sums_to_floats(
    build: Builder, sums: Value | None, scales: tuple[Value, Value], axis: int
) -> Value | None:
    """What is added to sums of products, in the units of these."""
    if sums is None:
        return None
    scale = build.apply("multiply", *(build.reshape(it, (it.size,)) for it in scales))
    return dequantized(build, sums, scale, None, axis)


@operator("QLinearConv", since=10)
def qlinear_conv(
    build: Builder,
    x: Value,
    x_scale: Value,
    x_zero: Value,
    w: Value,
    w_scale: Value,
    w_zero: Value,
    y_scale: Value,
    y_zero: Value,
    bias: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: tuple[int, ...] | None = None,
    group: int = 1,
    kernel_shape: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    _one("x_scale", x_scale)
    _one("y_scale", y_scale)
    y = conv(
        build,
        dequantized(build, x, x_scale, x_zero),
        dequantized(build, w, w_scale, w_zero, 0),
        _sums_to_floats(build, bias, (x_scale, w_scale), 0),
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return quantized(build, y, y_scale, y_zero, y_zero.dtype)


@operator("QLinearConv", domain=MICROSOFT)
def qlinear_conv_of_images(
    build: Builder,
    x: Value,
    x_scale: Value,
    x_zero: Value,
    w: Value,
    w_scale: Value,
    w_zero: Value,
    y_scale: Value,
    y_zero: Value,
    bias: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    channels_last: int = 0,
    dilations: tuple[int, ...] | None = None,
    group: int = 1,
    kernel_shape: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    """As the operator of ONNX, also of images with channels last."""
    y = qlinear_conv(
        build,
        channels_second(build, x, channels_last),
        *(x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias),
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return channels_behind(build, y, channels_last)


@operator("QLinearMatMul", since=10)
def qlinear_matmul(
    build: Builder,
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    y_scale: Value,
    y_zero: Value,
) -> Value:
    """Scales of rows of a and y, of columns of b."""
    rows = max(0, len(a.shape) - 2)
    y = build.matmul(
        dequantized(build, a, a_scale, a_zero, rows),
        dequantized(build, b, b_scale, b_zero, len(b.shape) - 1),
    )
    return quantized(build, y, y_scale, y_zero, y_zero.dtype, max(0, len(y.shape) - 2))


@operator("QGemm", domain=MICROSOFT)
def qgemm(
    build: Builder,
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    c: Value | None = None,
    y_scale: Value | None = None,
    y_zero: Value | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    """A float result where it has no scale."""
    y = gemm(
        build,
        dequantized(build, a, a_scale, a_zero),
        dequantized(build, b, b_scale, b_zero, 0 if transB else len(b.shape) - 1),
        alpha=alpha,
        transA=transA,
        transB=transB,
    )
    if c is not None:
        added = _sums_to_floats(build, c, (a_scale, b_scale), len(c.shape) - 1)
        assert added is not None
        y = build.apply("add", y, added)
    if y_scale is None:
        return y
    return quantized(build, y, y_scale, y_zero, a.dtype if y_zero is None else y_zero.dtype)
