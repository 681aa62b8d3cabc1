"""Operands that are float32 or bfloat16: what the functions on plain arrays take, and its name."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dlprim.arrays import FloatArray, contiguous, viewed
from dlprim.packing import bfloat16_dtype, to_float32

Array: TypeAlias = npt.NDArray[Any]


def float_operand(name: str, value: Any) -> Array:
    """``value`` as a C-contiguous array of float32 or bfloat16 (or its bits, uint16)."""
    array = viewed(name, value, "float32 or bfloat16")
    if array.dtype not in (np.float32, np.uint16, bfloat16_dtype()):
        raise TypeError(f"{name} has dtype {array.dtype}, expected float32 or bfloat16")
    return contiguous(array)


def type_of(array: Array) -> str:
    """The name of the dtype that a primitive for ``array`` has."""
    return "float32" if array.dtype == np.float32 else "bfloat16"


def require_type(name: str, array: Array, src: Array) -> None:
    """Raise TypeError unless ``array`` has the type of ``src``, the argument x."""
    if type_of(array) != type_of(src):
        raise TypeError(f"{name} has dtype {array.dtype}, expected {src.dtype} as x has")


def widened(array: Array) -> FloatArray:
    """``array``, as float32 if it is bfloat16."""
    return array if array.dtype == np.float32 else to_float32(array)
