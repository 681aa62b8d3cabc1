"""Convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import operand
from dlprim.graph.graph import Value
from dlprim.graph.operators.convolutions import window_count
from dlprim.onnx.operators.layers.geometry import (
    Geometry,
    Ints,
    geometry,
    kernel_of,
    numbers,
    split_evenly,
)
from dlprim.onnx.operators.layers.products import LESS_PRODUCT, is_zero, less_zero_point
from dlprim.onnx.registry import RefusedError, operator


def checked_shape(x: Value, w: Value, bias: Value | None, shape: Geometry, group: int) -> Ints:
    """Refuses what does not fit; the shape of the results."""
    if group < 1 or w.shape[1] * group != x.shape[1] or w.shape[0] % group:
        raise RefusedError(
            f"weights of {list(w.shape)} with group {group} do not fit an input of "
            f"{list(x.shape)}, expected (K, C / group, ...)"
        )
    if bias is not None and bias.shape != w.shape[:1]:
        raise RefusedError(f"B of {list(bias.shape)}, expected {list(w.shape[:1])}")
    rows = zip(x.shape[2:], *shape, strict=True)
    counts = tuple(window_count(n, k, s, d, p) for n, k, s, d, p in rows)
    if min(counts) < 1:
        raise RefusedError(
            f"windows of {list(shape.covered)} pixels, expected at most the padded ones of "
            f"{list(x.shape)}"
        )
    return (x.shape[0], w.shape[0], *counts)


def convolved(
    build: Builder,
    x: Value,
    w: Value,
    bias: Value | None,
    shape: Geometry,
    group: int,
    **attributes: Any,
) -> Value:
    """The convolution of x (N, C, ...) with checked weights."""
    checked_shape(x, w, bias, shape, group)
    attributes = {**shape.attributes, **attributes}
    return build.emit("convolution", [x, w, bias], groups=group, **attributes)[0]


@operator("Conv")
def conv(
    build: Builder,
    x: Value,
    w: Value,
    bias: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: tuple[int, ...] | None = None,
    group: int = 1,
    kernel_shape: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    kernel = kernel_of(w.shape, kernel_shape, len(x.shape))
    shape = geometry(x.shape[2:], kernel, strides, dilations, pads, auto_pad)
    return convolved(build, x, w, bias, shape, group)


# ---------------------------------------------------------------- integers


@operator("ConvInteger", since=10)
def conv_integer(
    build: Builder,
    x: Value,
    w: Value,
    x_zero: Value | None = None,
    w_zero: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: tuple[int, ...] | None = None,
    group: int = 1,
    kernel_shape: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    """Padding has the zero point of x, so that it takes the same away from every sum."""
    kernel = kernel_of(w.shape, kernel_shape, len(x.shape))
    shape = geometry(x.shape[2:], kernel, strides, dilations, pads, auto_pad)
    if w_zero is not None and w_zero.size not in (1, w.shape[0]):
        raise RefusedError(
            f"w_zero_point of {list(w_zero.shape)}, expected one number or {w.shape[0]}"
        )
    w, w_zero = less_zero_point(build, w, w_zero, 0)
    if x_zero is not None and not is_zero(build, x_zero):
        if x_zero.size != 1:
            raise RefusedError(f"x_zero_point of {list(x_zero.shape)}, expected one number")
        if any(side for sides in shape.padding for side in sides):
            widths = ((0, 0), (0, 0), *shape.padding)
            x = build.emit("pad", [x, x_zero], widths=widths, mode="constant")[0]
            shape = shape._replace(padding=((0, 0),) * len(shape.padding))
    y = _less_windows(build, (x, w, x_zero), shape, group)
    if w_zero is None:
        return y
    # Sums over windows of a group are the same for all its results.
    ones = np.ones((1 if group == 1 else w.shape[0], *w.shape[1:]), np.int8)
    sums = _less_windows(build, (x, build.constant(ones), x_zero), shape, group)
    zeros = build.reshape(build.cast(w_zero, np.int32), (w_zero.size, *[1] * len(kernel)))
    return build.map(LESS_PRODUCT, y, sums, zeros)


def _less_windows(
    build: Builder, operands: tuple[Value, Value, Value | None], shape: Geometry, group: int
) -> Value:
    """The convolution of x less its zero point with w."""
    x, w, x_zero = operands
    y = convolved(build, x, w, None, shape, group, dtype="int32")
    if x_zero is None or is_zero(build, x_zero):
        return y
    sums = build.reduce("sum", build.cast(w, np.int32), range(1, len(w.shape)))
    sums = build.reshape(sums, (*sums.shape, *[1] * (len(w.shape) - 2)))
    zero = build.reshape(build.cast(x_zero, np.int32), ())
    return build.map(LESS_PRODUCT, y, sums, zero)


# ---------------------------------------------------------------- transposed


def _sides_of(
    extents: Ints, shape: Geometry, more: Ints, wanted: Ints, auto_pad: str
) -> tuple[Geometry, Ints]:
    """The padding and the output padding that give results of the extents that are wanted."""
    zipped = zip(extents, shape.strides, shape.covered, more, wanted, strict=True)
    totals = [(n - 1) * s + covered + rest - out for n, s, covered, rest, out in zipped]
    # What is wanted beyond the last window has no product; only the bias is there.
    more = tuple(rest + max(0, -total) for rest, total in zip(more, totals, strict=True))
    lower = "SAME_UPPER" if auto_pad == "SAME_UPPER" else "SAME_LOWER"
    sides = tuple(split_evenly(max(0, total), lower) for total in totals)
    return shape._replace(padding=sides), more


@operator("ConvTranspose")
def conv_transpose(
    build: Builder,
    x: Value,
    w: Value,
    bias: Value | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: tuple[int, ...] | None = None,
    group: int = 1,
    kernel_shape: tuple[int, ...] | None = None,
    output_padding: tuple[int, ...] | None = None,
    output_shape: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    kernel = kernel_of(w.shape, kernel_shape, len(x.shape))
    extents = x.shape[2:]
    shape = geometry(extents, kernel, strides, dilations, pads, auto_pad)
    more = numbers("output_padding", output_padding, len(kernel), 0, 0)
    if output_shape is not None:
        wanted = numbers("output_shape", output_shape[-len(kernel) :], len(kernel), 0, 0)
        shape, more = _sides_of(extents, shape, more, wanted, auto_pad)
    elif auto_pad.startswith("SAME"):
        wanted = tuple(n * s for n, s in zip(extents, shape.strides, strict=True))
        shape, more = _sides_of(extents, shape, more, wanted, auto_pad)
    if group < 1 or x.shape[1] != w.shape[0] or w.shape[0] % group:
        raise RefusedError(
            f"weights of {list(w.shape)} with group {group} do not fit an input of "
            f"{list(x.shape)}, expected (C, K / group, ...)"
        )
    if bias is not None and bias.shape != (w.shape[1] * group,):
        raise RefusedError(f"B of {list(bias.shape)}, expected [{w.shape[1] * group}]")
    attributes = {**shape.attributes, "output_padding": more, "groups": group}
    return build.emit("transposed_convolution", [x, w, bias], **attributes)[0]


@operator("CausalConvWithState", since=27)
def causal_conv(
    build: Builder,
    x: Value,
    w: Value,
    bias: Value | None = None,
    past: Value | None = None,
    *,
    activation: str = "none",
) -> tuple[Value, ...]:
    """Every channel by itself, behind the last elements of what came before."""
    if activation not in ("none", "silu", "swish"):
        raise RefusedError(f"activation is {activation!r}, expected none, silu or swish")
    if len(x.shape) != 3 or len(w.shape) != 3:
        raise RefusedError(f"input of {list(x.shape)}, weight of {list(w.shape)}, expected 3 axes")
    if w.shape[2] < 1:
        raise RefusedError(f"weight of {list(w.shape)}, expected one tap at least")
    samples, channels, length = x.shape
    before = w.shape[2] - 1
    if past is None:
        past = build.constant(np.zeros((samples, channels, before), x.dtype))
    whole = build.concat([past, x], 2)
    shape = geometry(whole.shape[2:], w.shape[2:], None, None, None, "NOTSET")
    y = convolved(build, whole, w, bias, shape, channels)
    if activation != "none":
        y = build.map(("multiply", operand(0), ("sigmoid", operand(0))), y)
    present = build.slice(whole, (0, 0, length), (samples, channels, before), (1, 1, 1))
    return y, present
