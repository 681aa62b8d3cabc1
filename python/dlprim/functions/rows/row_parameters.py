"""Parameters of what is normalised along rows, and how many rows and columns they make of x."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from dlprim.arguments.arrays import Array, FloatArray, aligned
from dlprim.arguments.floats import float_operand, widened


def parameter_of(name: str, value: Any, src: Array, bits: bool) -> FloatArray | None:
    """As float32, after checking that its shape is that of the last axes of x."""
    if value is None:
        return None
    array = widened(float_operand(name, value, bits))
    ndim = array.ndim
    if ndim == 0 or ndim > src.ndim or array.shape != src.shape[-ndim:]:
        last = src.shape[-1:]
        raise ValueError(
            f"{name} has shape {array.shape}, expected {last}, or more of the last axes of x, "
            f"whose shape is {src.shape}"
        )
    return array


def columns_of(src: Array, parameter: FloatArray | None) -> int:
    """How many elements are normalised together."""
    if src.ndim == 0:
        raise ValueError("x has shape (), expected (..., C)")
    return src.shape[-1] if parameter is None else parameter.size


def rows_of(src: Array, columns: int) -> int:
    return src.size // columns if columns else 0


@lru_cache(maxsize=16)
def constant_row(columns: int, value: int) -> FloatArray:
    """In the place of a parameter that is not there."""
    array: FloatArray = aligned((columns,), np.float32)
    array[...] = value
    array.flags.writeable = False
    return array
