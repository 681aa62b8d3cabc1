"""Products of 8-bit arrays with scales and zero points, on plain layouts.

Real numbers are ``(q - zero_point) * scale``, as `quantize` has it. Sums are exact integers; what
the zero point of x adds to them is taken off before they are scaled, and padding counts as zero.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlprim.arguments.arrays import Array, contiguous, require_shape, result_array, viewed
from dlprim.arguments.names import dtype_name
from dlprim.arguments.scalars import real, shown
from dlprim.primitives.conv import Conv2d
from dlprim.primitives.conv_arguments import Geometry
from dlprim.primitives.linear import Linear
from dlprim.primitives.quantized import LIMITS, require_sums, zero_point

_PREPARED = 128  # shapes that are kept; a network has fewer


class Steps(NamedTuple):
    """Scales, zero points and the type of the result, as callers give them."""

    x_scale: Any
    x_zero_point: Any
    w_scale: Any
    y_scale: Any
    y_zero_point: Any
    y_dtype: Any


class Requantization(NamedTuple):
    """What a primitive takes for them."""

    dtype: str  # of the result
    scale: npt.NDArray[np.float32] | None  # (K,)
    bias: npt.NDArray[np.float32] | None  # (K,), in steps of an 8-bit result
    int_bias: npt.NDArray[np.int32] | None  # (K,)
    src_zero_point: int
    dst_zero_point: int


def has_8_bits(x: Any) -> bool:
    """Whether x is an array of uint8 or int8."""
    return getattr(getattr(x, "dtype", None), "char", None) in ("b", "B")


def require_none(steps: Steps, dtype: Any) -> None:
    """ValueError where there are steps for operands that have none."""
    for name, value in steps._asdict().items():
        if value is not None and not (isinstance(value, int) and value == 0):
            raise ValueError(f"{name} is given, but x has dtype {dtype}, expected uint8 or int8")


def operands_of(x: Any, w: Any, axes: int | None) -> tuple[Array, Array]:
    """The arguments x, of 8 bits, and w, of int8, of so many axes."""
    src = contiguous(viewed("x", x, "uint8 or int8"))
    weights = contiguous(viewed("w", w, "int8"))
    if weights.dtype != np.int8:
        raise TypeError(
            f"w has dtype {weights.dtype}, expected int8 where x is of 8 bits: symmetric weights"
        )
    for name, array in (("x", src), ("w", weights)):
        if axes is not None and array.ndim != axes:
            raise ValueError(f"{name} has shape {array.shape}, expected {axes} dimensions")
    return src, weights


def requantization(src: Array, weights: Array, bias: Any, steps: Steps) -> Requantization:
    """TypeError or ValueError says what does not go together."""
    channels = weights.shape[0]
    dtype = _result_of(src, steps)
    zeros = (
        zero_point("x_zero_point", steps.x_zero_point, src.dtype.name),
        zero_point("y_zero_point", steps.y_zero_point, dtype),
    )
    scale = None
    if dtype != "int32":
        scale = _scale("x_scale", steps.x_scale, None) * _scale("w_scale", steps.w_scale, channels)
    if dtype in LIMITS:
        step = _scale("y_scale", steps.y_scale, None)
        scale = scale / step
    offset, whole = _biases(bias, channels)
    if whole is not None:
        require_sums((src.dtype.name, dtype), weights, whole)
    if offset is not None and dtype in LIMITS:
        offset = offset / step
    if zeros[0] != 0:
        taken = weights.reshape(channels, -1).sum(1, dtype=np.int32) * np.int32(-zeros[0])
        whole = taken if whole is None else whole + taken
    if dtype == "int32" and offset is not None:
        raise TypeError("bias has dtype float32, expected int32 as the result has")
    return Requantization(dtype, scale, offset, whole, *zeros)


def conv2d(operands: tuple[Array, Array], geometry: Geometry, layout: str, how: Any) -> Array:
    """Of plain arrays; ``how`` is (activation, residual, out, requantization)."""
    src, weights = operands
    activation, residual, out, to = how
    conv = _conv(geometry, src.dtype.name, to.dtype, layout, activation, to.bias is not None)
    nhwc = layout == "NHWC"
    shape = conv.dst_shape if nhwc else conv.y_shape
    added = None
    if residual is not None:
        added = contiguous(viewed("residual", residual, to.dtype))
        require_shape("residual", added, shape, "the result's from x and w")
        if to.dtype in LIMITS:
            raise ValueError("residual is given and the result is of 8 bits, expected a float one")
    named = {"x": src, "w": weights, "residual": added}
    result = result_array(out, shape, named, conv.dst_dtype)
    if added is not None and not nhwc:
        added = conv.pack_diff_dst(added)
    dst = conv.forward(
        src if nhwc else conv.pack_src(src),
        conv.pack_weights(weights),
        to.bias,
        added,
        result if nhwc else None,
        scale=to.scale,
        int_bias=to.int_bias,
        src_zero_point=to.src_zero_point,
        dst_zero_point=to.dst_zero_point,
    )
    return result if nhwc else conv.unpack_dst(dst, result)


def linear(operands: tuple[Array, Array], activation: Any, out: Any, to: Requantization) -> Array:
    """Of plain arrays."""
    src, weights = operands
    if weights.ndim != 2:
        raise ValueError(f"w has shape {weights.shape}, expected two dimensions (K, C)")
    if src.ndim == 0 or src.shape[-1] != weights.shape[1]:
        raise ValueError(
            f"x has shape {src.shape}, expected (..., {weights.shape[1]}) as w, whose shape is "
            f"{weights.shape}"
        )
    rows = int(np.prod(src.shape[:-1], dtype=np.int64))
    numbers = rows, src.shape[-1], weights.shape[0]
    layer = _layer(numbers, src.dtype.name, to.dtype, activation, to.bias is not None)
    shape = (*src.shape[:-1], weights.shape[0])
    result = result_array(out, shape, {"x": src, "w": weights}, layer.dst_dtype)
    layer.forward(
        src.reshape(layer.x_shape),
        layer.pack_weights(weights),
        to.bias,
        out=result.reshape(layer.y_shape),
        scale=to.scale,
        int_bias=to.int_bias,
        dst_zero_point=to.dst_zero_point,
    )
    return result


@lru_cache(maxsize=_PREPARED)
def _conv(
    it: Geometry, dtype: str, dst: str, layout: str, activation: str | None, bias: bool
) -> Conv2d:
    return Conv2d(
        *it,
        dtype=dtype,
        dst_dtype=dst,
        layout="NHWC" if layout == "NHWC" else "blocked",
        activation=activation,
        bias=bias,
    )


@lru_cache(maxsize=_PREPARED)
def _layer(
    numbers: tuple[int, int, int], dtype: str, dst: str, activation: str | None, bias: bool
) -> Linear:
    n, c, k = numbers
    return Linear((n, c), k, dtype=dtype, dst_dtype=dst, activation=activation, bias=bias)


def _result_of(src: Array, steps: Steps) -> str:
    """The name of the result's dtype."""
    default = "float32" if steps.y_scale is None else src.dtype.name
    name = default if steps.y_dtype is None else dtype_name("y_dtype", steps.y_dtype)
    possible = ("float32", "bfloat16", "int32") if steps.y_scale is None else tuple(LIMITS)
    if name not in possible:
        given = "no y_scale" if steps.y_scale is None else "a y_scale"
        raise TypeError(f"y_dtype is {name}, expected {' or '.join(possible)} with {given}")
    if name == "int32":
        for scale in ("x_scale", "w_scale"):
            if getattr(steps, scale) is not None:
                raise ValueError(f"{scale} is given and y_dtype is int32, the exact sums")
    return name


def _scale(name: str, value: Any, channels: int | None) -> Any:
    """A number above 0 as float32, or (channels,) of them."""
    if value is None:
        raise ValueError(f"{name} is missing: x is of 8 bits")
    if channels is None or not getattr(value, "shape", ()):
        if getattr(value, "shape", ()):
            raise TypeError(f"{name} is {shown(value)}, expected a number")
        number = np.float32(real(name, value))
        if not 0 < number < np.inf:
            raise ValueError(f"{name} is {value}, expected a finite float32 above 0")
        return number if channels is None else np.full(channels, number, np.float32)
    array = contiguous(viewed(name, value, "float32"))
    if array.dtype != np.float32:
        raise TypeError(f"{name} has dtype {array.dtype}, expected float32")
    require_shape(name, array, (channels,), "K from w")
    if not ((array > 0) & (array < np.inf)).all():
        raise ValueError(f"{name} holds a number that is not finite or not above 0")
    return array


def _biases(bias: Any, channels: int) -> tuple[Any, Any]:
    """The argument bias, as float32 or as int32; None for the other."""
    if bias is None:
        return None, None
    array = contiguous(viewed("bias", bias, "float32 or int32"))
    if array.dtype != np.float32 and array.dtype != np.int32:
        raise TypeError(f"bias has dtype {array.dtype}, expected float32 or int32")
    require_shape("bias", array, (channels,), "K from w")
    return (array, None) if array.dtype == np.float32 else (None, array)
