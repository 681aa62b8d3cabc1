"""What calls of 8-bit primitives take besides their operands, checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dlprim.arguments.names import dtype_name
from dlprim.arguments.scalars import integer, real, shown

LIMITS = {"uint8": (0, 255), "int8": (-128, 127)}
_MOST_SUM = 2**31 - 1
_FARTHEST = 255  # of a byte from its zero point
_RESULTS = {  # dtypes of dst by that of src, the default first
    "float32": ("float32",),
    "bfloat16": ("bfloat16",),
    "uint8": ("float32", "bfloat16", "int32", "uint8", "int8"),
    "int8": ("float32", "bfloat16", "int32", "uint8", "int8"),
}

# int_bias, scale, zero points of src and dst, scale of a residual.
Quantization: TypeAlias = tuple[Any, Any, int, int, float]


def dtypes_of(
    dtype: npt.DTypeLike, dst_dtype: npt.DTypeLike | None, widens: bool = False
) -> tuple[str, str]:
    """The names of the dtypes of src and dst; TypeError says which are possible.

    Where the primitive widens, sums of bfloat16 may stay float32.
    """
    name = dtype_name("dtype", dtype)
    if name not in _RESULTS:
        raise TypeError(f"dtype is {name}, expected float32, bfloat16, uint8 or int8")
    possible = _RESULTS[name]
    if widens and name == "bfloat16":
        possible = (*possible, "float32")
    result = possible[0] if dst_dtype is None else dtype_name("dst_dtype", dst_dtype)
    if result not in possible:
        raise TypeError(f"dst_dtype is {result}, expected {' or '.join(possible)} for {name}")
    return name, result


def require_exact(dst_dtype: str, activation: str | None, bias: bool) -> None:
    """An int32 result is the sums themselves; ValueError where something is to follow them."""
    if dst_dtype == "int32" and (bias or activation is not None):
        what = "bias is True" if bias else f"activation is {activation!r}"
        raise ValueError(f"{what} and dst_dtype is int32, the exact sums, which nothing follows")


def require_sums(dtypes: tuple[str, str], w: Any, bias: Any = None) -> None:
    """ValueError where sums of bytes by the weights, and a bias of integers, can leave int32.

    An int32 result is modulo 2^32.
    """
    if dtypes[0] not in LIMITS or dtypes[1] == "int32" or w.dtype != np.int8 or w.ndim < 2:
        return
    if not w.size:
        return
    added = 0 if bias is None else np.abs(bias.astype(np.int64))
    if _FARTHEST * 128 * w[0].size + np.max(added) <= _MOST_SUM:
        return
    weights = np.abs(w.reshape(len(w), -1).astype(np.int16)).sum(1, dtype=np.int64)
    reach = _FARTHEST * weights + added
    channel = int(reach.argmax())
    if reach[channel] > _MOST_SUM:
        what = "w" if bias is None else "w and bias"
        raise ValueError(
            f"{what}: sums of channel {channel} can reach {reach[channel]} (its {w[0].size} "
            f"weights add up to {weights[channel]}), expected at most 2**31 - 1, which "
            f"int32 holds, for a result of {dtypes[1]}"
        )


def require_int_bias(
    dtypes: tuple[str, str], int_bias: Any, w_shape: Sequence[int], unpack: Callable[[], Any]
) -> None:
    """ValueError where sums of any bytes by the weights, with what they begin with, leave int32.

    Weights are unpacked only where what they begin with is far from zero.
    """
    if dtypes[1] == "int32" or getattr(int_bias, "dtype", None) != np.int32:
        return
    begin = np.asarray(int_bias).astype(np.int64)
    farthest = int(np.abs(begin).max(initial=0))
    if farthest + _FARTHEST * 128 * math.prod(w_shape[1:]) <= _MOST_SUM:
        return
    if begin.shape != tuple(w_shape[:1]):
        return  # which the core refuses
    w = np.asarray(unpack()).reshape(len(begin), -1).astype(np.int64)
    low, high = LIMITS[dtypes[0]]
    above, below = np.maximum(w, 0).sum(1), np.minimum(w, 0).sum(1)
    most, least = begin + high * above + low * below, begin + low * above + high * below
    channel = int(np.maximum(most, -1 - least).argmax())
    if most[channel] > _MOST_SUM or least[channel] < -_MOST_SUM - 1:
        raise ValueError(
            f"int_bias and weights: sums of channel {channel} go from {least[channel]} to "
            f"{most[channel]} (int_bias is {begin[channel]}), expected what int32 holds, for a "
            f"result of {dtypes[1]}"
        )


def quantization(
    dtypes: tuple[str, str],
    channels: int,
    biases: tuple[Any, Any],
    zero_points: tuple[Any, Any],
    residual_scale: Any = 1.0,
) -> Quantization | None:
    """For the core, from int_bias and scale and from the zero points; None without 8 bits.

    TypeError where something is no number; ValueError where a zero point is no value of its type,
    or something is given that the primitive does not have.
    """
    src, dst = dtypes
    int_bias, scale = biases
    if src not in LIMITS:
        if int_bias is scale is None and zero_points == (0, 0) and residual_scale == 1:
            return None
        for name, value in (("int_bias", int_bias), ("scale", scale)):
            if value is not None:
                raise ValueError(f"{name} was given, but src is of {src}, expected 8 bits")
    zeros = (
        zero_point("src_zero_point", zero_points[0], src),
        zero_point("dst_zero_point", zero_points[1], dst),
    )
    times = real("residual_scale", residual_scale)
    if times != 1 and dst not in LIMITS:
        raise ValueError(f"residual_scale is {times}, but dst is of {dst}, expected 8 bits")
    if src not in LIMITS:
        return None
    if scale is not None and isinstance(scale, int | float | np.floating):
        scale = np.full(channels, real("scale", scale), np.float32)
    return int_bias, scale, *zeros, times


def zero_point(name: str, value: Any, dtype: str) -> int:
    """A value of an 8-bit dtype; 0 of any other."""
    low, high = LIMITS.get(dtype, (0, 0))
    if getattr(value, "shape", ()):
        raise TypeError(f"{name} is {shown(value)}, expected an integer")
    number = integer(name, value, -(2**63))
    if not low <= number <= high:
        expected = f"an integer from {low} to {high}" if dtype in LIMITS else "0"
        raise ValueError(f"{name} is {number}, expected {expected} for {dtype}")
    return number
