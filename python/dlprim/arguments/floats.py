"""Arrays of float32 and bfloat16: what almost every function and primitive takes.

A bfloat16 array is one of `ml_dtypes.bfloat16`. Where that package is not installed results are
uint16 arrays of the same bits; as operands such arrays are taken for bfloat16 only where the caller
says so, with dtype="bfloat16": elsewhere they are as likely to hold numbers.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.arrays import (
    ABOUT_BITS,
    Array,
    FloatArray,
    about_numbers,
    aligned,
    array_of,
    contiguous,
    require_shape,
    result_array,
    viewed,
)
from dlprim.arguments.names import dtype_name

_FLOAT32, _BITS = np.dtype(np.float32), np.dtype(np.uint16)


def float_operand(name: str, value: Any, bits: bool = False) -> Array:
    """``value`` as a C-contiguous array of float32 or bfloat16, else TypeError.

    With ``bits``, uint16 arrays are those of bfloat16 values.
    """
    if type(value) is np.ndarray and value.dtype is _FLOAT32:  # the shortest way of small calls
        flags = value.flags
        if flags.c_contiguous and flags.aligned:
            return value
    return contiguous(float_view(name, value, bits))


def plain_operand(name: str, value: Any, bits: bool = False) -> Array:
    """As `float_operand`, of an array whose axes mean something: a packed one has others."""
    array = float_operand(name, value, bits)
    require_plain(name, array)
    return array


def plain_view(name: str, value: Any, bits: bool = False) -> Array:
    """As `plain_operand`, without a copy of what is not contiguous."""
    array = float_view(name, value, bits)
    require_plain(name, array)
    return array


def require_plain(name: str, array: Array) -> None:
    """TypeError where the array is packed."""
    form = None if type(array) is np.ndarray else getattr(array, "packed_as", None)
    if form is not None:
        raise TypeError(f"{name} is packed as {form}, expected a plain array")


def float_view(name: str, value: Any, bits: bool = False) -> Array:
    """As `float_operand`, without a copy of what is not contiguous."""
    array = viewed(name, value, "float32 or bfloat16")
    dtype = array.dtype
    if dtype == _FLOAT32 or (dtype == _BITS and bits):
        return array
    if dtype == _BITS or dtype != bfloat16_dtype():
        how = about_numbers(name, dtype)
        raise TypeError(f"{name} has dtype {dtype}, expected float32 or bfloat16{how}")
    return array


def holds_bits(dtype: npt.DTypeLike | None) -> bool:
    """Whether the argument dtype says of uint16 arrays that they hold the bits of bfloat16."""
    if dtype is None:
        return False
    if dtype_name("dtype", dtype) != "bfloat16":
        raise TypeError(
            f"dtype is {dtype!r}, expected None or 'bfloat16', which uint16 arrays hold"
        )
    return True


def like(name: str, value: Any, other: Array) -> Array:
    """An operand of float32 or bfloat16, as bits only where ``other`` is bits."""
    return float_operand(name, value, other.dtype == _BITS)


def type_of(array: Array) -> str:
    """The core's name of the dtype of an array from `float_operand`."""
    return "float32" if array.dtype == np.float32 else "bfloat16"


def bits_of(array: Array) -> Array:
    """An array of float32 or bfloat16 on the same memory, of elements that NumPy moves quickly."""
    return array.view(np.ndarray) if array.dtype == _FLOAT32 else array.view(_BITS)


def require_type(name: str, array: Array, src: Array) -> None:
    """Raise TypeError unless ``array`` has the type of ``src``, the argument x."""
    if type_of(array) != type_of(src):
        raise TypeError(f"{name} has dtype {array.dtype}, expected {src.dtype} as x has")


def like_x(name: str, value: Any, src: Array, shape: tuple[int, ...], why: str) -> Array:
    """An operand of the type of x, ``src``, and of ``shape``; ``why`` as for `require_shape`."""
    array = like(name, value, src)
    require_type(name, array, src)
    require_shape(name, array, shape, why)
    return array


def bias_operand(bias: Any, weights: Array) -> FloatArray | None:
    """The argument bias, (K,), as float32; None where it is."""
    if bias is None:
        return None
    array = like("bias", bias, weights)
    require_shape("bias", array, weights.shape[:1], "K from w")
    return widened(array)


def float32_operand(name: str, value: Any, dtype: str) -> Any:
    """An operand that the core takes as float32, widened if it is bfloat16.

    ``dtype`` is that of the primitive: uint16 arrays are bits only where it is bfloat16.
    """
    if value is None or getattr(value, "dtype", None) != bfloat16_dtype():
        return value
    if value.dtype == _BITS and dtype != "bfloat16":
        return value  # which the core refuses
    return widened(contiguous(viewed(name, value, "bfloat16")))


def widened(array: Array) -> FloatArray:
    """``array``, as float32 if it is bfloat16."""
    if array.dtype == np.float32:
        return array
    result = aligned(array.shape, np.float32)
    _core.widen_to_float32(array, result)
    return result


def to_bfloat16(x: Any, *, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
    """float32 rounded to bfloat16.

    To nearest, ties to even, subnormal numbers as well; too large values become infinite. A NaN
    keeps its sign and the upper bits of its payload and becomes quiet.

    Parameters
    ----------
    x : array of float32, any shape
    out : ndarray of bfloat16, the shape of x, optional
        Written and returned; C-contiguous, and shares no memory with x.

    Returns
    -------
    ndarray of bfloat16, the shape of x
        Of uint16, the bits, where ml_dtypes is not installed.

    Raises
    ------
    TypeError, ValueError
        x is no array of float32, or out cannot take the result.
    """
    values = array_of("x", x)
    result = result_array(out, values.shape, {"x": values}, bfloat16_dtype())
    _core.round_to_bfloat16(values, result)
    return result


def to_float32(x: Any, *, dtype: npt.DTypeLike | None = None) -> npt.NDArray[np.float32]:
    """bfloat16 as float32, which is exact.

    Parameters
    ----------
    x : array of bfloat16, any shape
    dtype : None or "bfloat16"
        "bfloat16" says of a uint16 x that it holds the bits of bfloat16 values.

    Returns
    -------
    ndarray of float32, the shape of x

    Raises
    ------
    TypeError
        x is no array of bfloat16, or of uint16 and nothing says what it holds.
    """
    bits = holds_bits(dtype)
    values = viewed("x", x, "bfloat16")
    if values.dtype == _BITS:
        if not bits:
            raise TypeError("x has dtype uint16, expected bfloat16: " + ABOUT_BITS)
    elif name_of(values.dtype) != "bfloat16":
        raise TypeError(f"x has dtype {values.dtype}, expected bfloat16")
    return widened(contiguous(values))


def bfloat16_dtype() -> np.dtype[Any]:
    """What results of bfloat16 are made of: ml_dtypes.bfloat16, or uint16 where it is missing."""
    return _core.bfloat16_dtype()


def dtype_named(name: str) -> np.dtype[Any]:
    """By the core's name."""
    return bfloat16_dtype() if name == "bfloat16" else np.dtype(name)


@cache
def name_of(dtype: np.dtype[Any]) -> str:
    return dtype.name  # which NumPy composes anew, at the cost of packing a small matrix
