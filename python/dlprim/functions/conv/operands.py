"""The arrays that convolutions along any number of axes take and return."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy.typing as npt

from dlprim.arguments.arrays import Array, FloatArray, require_shape
from dlprim.arguments.floats import (
    holds_bits,
    like,
    plain_operand,
    require_plain,
    require_type,
    widened,
)

_SHAPES = {1: "(N, C, W)", 2: "(N, C, H, W)", 3: "(N, C, D, H, W)"}


class ConvGradients(NamedTuple):
    """What the gradients of convolutions along any number of axes are.

    Attributes
    ----------
    dx : ndarray of the dtype of x, the shape of x
    dw : ndarray of the dtype of x, the shape of w
    db : ndarray of float32, (K,)
    """

    dx: Array
    dw: Array
    db: FloatArray


def operands_of(x: Any, w: Any, axes: int, dtype: npt.DTypeLike | None) -> tuple[Array, Array]:
    """The arguments x and w, of ``axes`` axes beside images and channels."""
    src = plain_operand("x", x, holds_bits(dtype))
    weights = like("w", w, src)
    require_plain("w", weights)
    require_type("w", weights, src)
    for name, array in (("x", src), ("w", weights)):
        if array.ndim != axes + 2:
            expected = f"{axes + 2} dimensions for x {_SHAPES[axes]}"
            raise ValueError(f"{name} has shape {array.shape}, expected {expected}")
        if 0 in array.shape[1:] or (name == "w" and array.shape[0] == 0):
            raise ValueError(f"{name} has shape {array.shape}, expected extents of at least 1")
    return src, weights


def offset_of(bias: Any, weights: Array, channels: int) -> FloatArray | None:
    """The argument bias, one for each of K channels, as float32; None where it is."""
    if bias is None:
        return None
    array = like("bias", bias, weights)
    require_shape("bias", array, (channels,), "K from w")
    return widened(array)
