"""Between floats and integers of few bits with scales."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.extents import derived
from dlprim.graph.graph import Value
from dlprim.graph.operators.operator import axis_within
from dlprim.graph.operators.quantized import in_bytes
from dlprim.onnx.operators.elements import in_type
from dlprim.onnx.proto import dtype_of
from dlprim.onnx.registry import RefusedError, operator

MICROSOFT = "com.microsoft"
_WHOLE = ("uint8", "int8", "uint16", "int16", "int32")
_FEW_BITS = ("uint4", "int4", "uint2", "int2")
_SMALL_FLOATS = (
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float4_e2m1fn",
)
_X = operand(0)


# ---------------------------------------------------------------- scales


def _checked_scale(build: Builder, scale: Value) -> None:
    if build.is_constant(scale):
        numbers = build.array(scale).astype(np.float32)
        if not np.all(np.isfinite(numbers) & (numbers > 0)):
            raise RefusedError("a scale is no finite number above 0, expected only such")


def _is_listed(x: Value, scale: Value, axis: int, block: int) -> bool:
    """Whether it is one number or one for each place in an axis, as nodes of the graph take it."""
    if scale.size == 1:
        return True
    return not block and len(scale.shape) == 1 and scale.shape[0] == x.shape[axis]


def _spread(build: Builder, array: Value, x: Value, axis: int, block: int) -> Value:
    """Scales or zero points in a shape that can be broadcast to x."""
    if array.size == 1:
        return build.reshape(array, ())
    if len(array.shape) == 1 and not block:
        return build.reshape(array, [n if it == axis else 1 for it, n in enumerate(x.shape)])
    if not block:
        fits = len(array.shape) == len(x.shape)
        if not fits or any(a not in (1, b) for a, b in zip(array.shape, x.shape, strict=True)):
            raise RefusedError(f"scales of {list(array.shape)} do not fit {list(x.shape)}")
        return array
    counts = [n if at != axis else -(-n // block) for at, n in enumerate(x.shape)]
    if list(array.shape) != counts:
        raise RefusedError(f"scales of {list(array.shape)}, expected {counts}, one for each block")
    places = build.constant(derived(np.arange, x.shape[axis]) // block)
    return build.gather(array, places, axis)


def _axis_of(x: Value, scale: Value, axis: int, block: int) -> int:
    if block < 0:
        raise RefusedError(f"block_size is {block}, expected at least 0")
    if scale.size == 1 and not block:
        return 0
    found = axis_within(axis, len(x.shape))
    if len(scale.shape) == 1 and not block and scale.shape[0] != x.shape[found]:
        raise RefusedError(f"{scale.shape[0]} scales, expected 1 or {x.shape[found]}")
    return found


def _check_zero(scale: Value, zero: Value | None) -> None:
    if zero is not None and zero.size != scale.size:
        raise RefusedError(f"zero points of {list(zero.shape)} and scales of {list(scale.shape)}")


# ---------------------------------------------------------------- both ways


def dequantized(
    build: Builder,
    q: Value,
    scale: Value,
    zero: Value | None,
    axis: int = 0,
    block: int = 0,
    dtype: np.dtype[np.generic] | None = None,
) -> Value:
    """The floats that integers stand for; float32 unless a type is said."""
    _checked_scale(build, scale)
    _check_zero(scale, zero)
    named = np.dtype(np.float32) if dtype is None else dtype
    axis = _axis_of(q, scale, axis, block)
    if q.dtype.name in _WHOLE and _is_listed(q, scale, axis, block):
        attributes = {"axis": axis, "dtype": named.name}
        return build.emit("dequantize", [q, scale, zero], **attributes)[0]
    if q.dtype.name not in (*_WHOLE, *_FEW_BITS, *_SMALL_FLOATS):
        raise RefusedError(f"x is of {q.dtype}, expected integers of up to 32 bits")
    arrays = [build.cast(q, np.float32), build.cast(scale, np.float32)]
    arrays[1] = _spread(build, arrays[1], q, axis, block)
    if zero is None:
        return build.map(("multiply", _X, operand(1)), *arrays, dtype=named)
    arrays.append(_spread(build, build.cast(zero, np.float32), q, axis, block))
    difference = ("subtract", _X, operand(2))
    return build.map(("multiply", difference, operand(1)), *arrays, dtype=named)


def quantized(
    build: Builder,
    x: Value,
    scale: Value,
    zero: Value | None,
    dtype: np.dtype[np.generic],
    axis: int = 0,
    block: int = 0,
    saturate: int = 1,
) -> Value:
    """``saturate(round_half_even(x / scale) + zero_point)``."""
    _checked_scale(build, scale)
    _check_zero(scale, zero)
    axis = _axis_of(x, scale, axis, block)
    if dtype.name in _WHOLE[:4] and _is_listed(x, scale, axis, block):
        attributes = {"axis": axis, "dtype": dtype.name}
        return build.emit("quantize", [x, scale, zero], **attributes)[0]
    if dtype.name not in (*_WHOLE[:4], *_FEW_BITS, *_SMALL_FLOATS):
        raise RefusedError(f"the result is of {dtype}, expected integers of up to 16 bits")
    arrays = [build.cast(x, np.float32), build.cast(scale, np.float32)]
    arrays[1] = _spread(build, arrays[1], x, axis, block)
    step = ("divide", _X, operand(1))
    if dtype.name in _SMALL_FLOATS:
        return in_type(build, build.map(step, *arrays), dtype, (saturate, "up"))
    rounded: Expression = ("round", step)
    if zero is not None:
        arrays.append(_spread(build, build.cast(zero, np.float32), x, axis, block))
        rounded = ("add", rounded, operand(2))
    limits = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    low, high = number(float(limits.min)), number(float(limits.max))
    inside = ("minimum", ("maximum", rounded, low), high)
    return build.map(inside, *arrays, dtype=dtype)


def _result_type(zero: Value | None, output_dtype: int) -> np.dtype[np.generic]:
    if zero is None:
        return dtype_of(output_dtype) if output_dtype else np.dtype(np.uint8)
    if output_dtype and dtype_of(output_dtype) != zero.dtype:
        raise RefusedError(
            f"output_dtype is {dtype_of(output_dtype)}, expected {zero.dtype} as the zero point"
        )
    return zero.dtype


# ---------------------------------------------------------------- channels last


def channels_second(build: Builder, x: Value, channels_last: int) -> Value:
    """x as (N, C, ...), which is (N, ..., C) where channels_last is 1."""
    axes = range(1, len(x.shape) - 1)
    return build.transpose(x, (0, len(x.shape) - 1, *axes)) if channels_last else x


def channels_behind(build: Builder, y: Value, channels_last: int) -> Value:
    """y (N, C, ...) as the model has it."""
    return build.transpose(y, (0, *range(2, len(y.shape)), 1)) if channels_last else y


# ---------------------------------------------------------------- QuantizeLinear


@operator("QuantizeLinear", since=10)
def quantize_tensor(build: Builder, x: Value, scale: Value, zero: Value | None = None) -> Value:
    return quantized(build, x, scale, zero, _result_type(zero, 0))


@operator("QuantizeLinear", since=13)
@operator("QuantizeLinear", domain=MICROSOFT)
def quantize_axis(
    build: Builder, x: Value, scale: Value, zero: Value | None = None, *, axis: int = 1
) -> Value:
    return quantized(build, x, scale, zero, _result_type(zero, 0), axis)


@operator("QuantizeLinear", since=19)
def quantize_saturated(
    build: Builder,
    x: Value,
    scale: Value,
    zero: Value | None = None,
    *,
    axis: int = 1,
    saturate: int = 1,
) -> Value:
    return quantized(build, x, scale, zero, _result_type(zero, 0), axis, 0, saturate)


@operator("QuantizeLinear", since=21)
def quantize_blocks(
    build: Builder,
    x: Value,
    scale: Value,
    zero: Value | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    saturate: int = 1,
) -> Value:
    dtype = _result_type(zero, output_dtype)
    return quantized(build, x, scale, zero, dtype, axis, block_size, saturate)


@operator("QuantizeLinear", since=23)
def quantize(
    build: Builder,
    x: Value,
    scale: Value,
    zero: Value | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Value:
    if precision not in (0, 1):
        raise RefusedError(f"precision is {precision}, expected 0 or 1: x is divided in float32")
    dtype = _result_type(zero, output_dtype)
    return quantized(build, x, scale, zero, dtype, axis, block_size, saturate)


# ---------------------------------------------------------------- DequantizeLinear


@operator("DequantizeLinear", since=10)
def dequantize_tensor(build: Builder, q: Value, scale: Value, zero: Value | None = None) -> Value:
    return dequantized(build, q, scale, zero, dtype=scale.dtype)


@operator("DequantizeLinear", since=13)
@operator("DequantizeLinear", domain=MICROSOFT)
def dequantize_axis(
    build: Builder, q: Value, scale: Value, zero: Value | None = None, *, axis: int = 1
) -> Value:
    return dequantized(build, q, scale, zero, axis, dtype=scale.dtype)


@operator("DequantizeLinear", since=21)
def dequantize_blocks(
    build: Builder,
    q: Value,
    scale: Value,
    zero: Value | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
) -> Value:
    return dequantized(build, q, scale, zero, axis, block_size, scale.dtype)


@operator("DequantizeLinear", since=23)
def dequantize(
    build: Builder,
    q: Value,
    scale: Value,
    zero: Value | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Value:
    dtype = dtype_of(output_dtype) if output_dtype else scale.dtype
    return dequantized(build, q, scale, zero, axis, block_size, dtype)


# ---------------------------------------------------------------- DynamicQuantizeLinear


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize(build: Builder, x: Value) -> tuple[Value, ...]:
    """From the least to the greatest element, and zero, in 256 steps."""
    if x.dtype != np.float32:
        raise RefusedError(f"x is of {x.dtype}, expected float32")
    return in_bytes(build.emit, x)
