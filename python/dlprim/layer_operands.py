"""Operands of layers that take arrays of any shape, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim.activations import Array, aligned
from dlprim.arrays import contiguous, result_array, viewed
from dlprim.packing import bfloat16_dtype


def float_operand(name: str, value: Any) -> tuple[Array, str]:
    """``value`` as a C-contiguous array, and the core's name of its dtype.

    Raises
    ------
    TypeError
        It is no array of float32 or bfloat16 (or its bits, uint16).
    """
    array = viewed(name, value, "float32 or bfloat16")
    if array.dtype == np.float32:
        return contiguous(array), "float32"
    if array.dtype not in (bfloat16_dtype(), np.dtype(np.uint16)):
        raise TypeError(f"{name} has dtype {array.dtype}, expected float32 or bfloat16")
    return contiguous(array), "bfloat16"


def integers(name: str, value: Any) -> npt.NDArray[np.int64]:
    array = viewed(name, value, "int64")
    if array.dtype != np.int64:
        raise TypeError(f"{name} has dtype {array.dtype}, expected int64")
    return contiguous(array)


def checked_result(
    out: Any, shape: tuple[int, ...], dtype: np.dtype[Any], operands: dict[str, Array]
) -> Array:
    if out is None:
        return aligned(shape, dtype)
    return result_array(out, shape, operands, dtype)
