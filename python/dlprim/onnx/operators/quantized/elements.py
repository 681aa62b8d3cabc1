"""What ONNX Runtime's quantiser writes between products, of its own domain."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import operand
from dlprim.graph.graph import Value
from dlprim.graph.operators.operator import axis_within
from dlprim.onnx.operators.activations import leaky_relu
from dlprim.onnx.operators.layers.pooling import average_pool, global_average_pool
from dlprim.onnx.operators.quantized.conversions import (
    MICROSOFT,
    channels_behind,
    channels_second,
    dequantized,
    quantized,
)
from dlprim.onnx.registry import RefusedError, operator


class _End(NamedTuple):
    """In what a result is quantised."""

    scale: Value
    zero: Value | None


def _again(build: Builder, y: Value, end: _End, q: Value) -> Value:
    """The result in 8 bits; of the type of an input where no zero point says it."""
    return quantized(build, y, *end, q.dtype if end.zero is None else end.zero.dtype)


def _of_two(function: str) -> None:
    @operator(f"QLinear{'Add' if function == 'add' else 'Mul'}", domain=MICROSOFT)
    def of_two(
        build: Builder,
        a: Value,
        a_scale: Value,
        a_zero: Value | None,
        b: Value,
        b_scale: Value,
        b_zero: Value | None,
        y_scale: Value,
        y_zero: Value | None = None,
    ) -> Value:
        floats = dequantized(build, a, a_scale, a_zero), dequantized(build, b, b_scale, b_zero)
        return _again(build, build.apply(function, *floats), _End(y_scale, y_zero), a)


for _function in ("add", "multiply"):
    _of_two(_function)


@operator("QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_leaky_relu(
    build: Builder,
    x: Value,
    x_scale: Value,
    x_zero: Value | None,
    y_scale: Value,
    y_zero: Value | None = None,
    *,
    alpha: float = 0.01,
) -> Value:
    y = leaky_relu(build, dequantized(build, x, x_scale, x_zero), alpha=alpha)
    return _again(build, y, _End(y_scale, y_zero), x)


@operator("QLinearSigmoid", domain=MICROSOFT)
def qlinear_sigmoid(
    build: Builder,
    x: Value,
    x_scale: Value,
    x_zero: Value | None,
    y_scale: Value,
    y_zero: Value | None = None,
) -> Value:
    y = build.apply("sigmoid", dequantized(build, x, x_scale, x_zero))
    return _again(build, y, _End(y_scale, y_zero), x)


@operator("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(
    build: Builder,
    x: Value,
    x_scale: Value,
    x_zero: Value | None,
    y_scale: Value,
    y_zero: Value | None = None,
    *,
    axis: int = -1,
    opset: int,
) -> Value:
    """Below opset 13 of all axes from this one on, which is the same for the last."""
    place = axis_within(axis, len(x.shape))
    if opset < 13 and place != len(x.shape) - 1:
        raise RefusedError(f"axis is {axis} of opset {opset}, expected the last one")
    floats = dequantized(build, x, x_scale, x_zero)
    y = build.emit("softmax", [floats], axis=place, log=False)[0]
    return _again(build, y, _End(y_scale, y_zero), x)


@operator("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(
    build: Builder,
    x: Value,
    x_scale: Value,
    x_zero: Value | None,
    y_scale: Value,
    y_zero: Value | None = None,
    *,
    channels_last: int = 0,
) -> Value:
    floats = channels_second(build, dequantized(build, x, x_scale, x_zero), channels_last)
    y = channels_behind(build, global_average_pool(build, floats), channels_last)
    return _again(build, y, _End(y_scale, y_zero), x)


@operator("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(
    build: Builder,
    x: Value,
    x_scale: Value,
    x_zero: Value | None,
    y_scale: Value,
    y_zero: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    y = average_pool(
        build,
        channels_second(build, dequantized(build, x, x_scale, x_zero), channels_last),
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    y = channels_behind(build, y, channels_last)
    return _again(build, y, _End(y_scale, y_zero), x)


@operator("QLinearReduceMean", domain=MICROSOFT)
def qlinear_reduce_mean(
    build: Builder,
    x: Value,
    x_scale: Value,
    x_zero: Value | None,
    y_scale: Value,
    y_zero: Value | None = None,
    *,
    axes: tuple[int, ...] | None = None,
    keepdims: int,
) -> Value:
    """Over all axes unless some are said."""
    places = range(len(x.shape)) if axes is None else axes
    within = [axis_within(it, len(x.shape)) for it in places]
    y = build.reduce("mean", dequantized(build, x, x_scale, x_zero), within, bool(keepdims))
    return _again(build, y, _End(y_scale, y_zero), x)


@operator("QLinearWhere", domain=MICROSOFT)
def qlinear_where(
    build: Builder,
    condition: Value,
    a: Value,
    a_scale: Value,
    a_zero: Value | None,
    b: Value,
    b_scale: Value,
    b_zero: Value | None,
    y_scale: Value,
    y_zero: Value | None = None,
) -> Value:
    floats = dequantized(build, a, a_scale, a_zero), dequantized(build, b, b_scale, b_zero)
    chosen = ("where", operand(0), operand(1), operand(2))
    y = build.map(chosen, condition, *floats, dtype=np.float32)
    return _again(build, y, _End(y_scale, y_zero), a)


@operator("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(
    build: Builder, y_scale: Value, y_zero: Value, *inputs: Value, axis: int
) -> Value:
    """Inputs in threes: the integers, their scale, their zero point."""
    if not inputs or len(inputs) % 3:
        raise RefusedError(f"{len(inputs)} inputs behind y's, expected three for each array")
    triples = zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True)
    parts = [dequantized(build, x, scale, zero) for x, scale, zero in triples]
    place = axis_within(axis, len(parts[0].shape))
    return _again(build, build.concat(parts, place), _End(y_scale, y_zero), inputs[0])
