"""PReLU, a leaky relu with trained slopes, and its gradients."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlprim.arguments.arrays import Array, FloatArray, aligned, require_separate
from dlprim.arguments.floats import (
    float_operand,
    holds_bits,
    plain_operand,
    widened,
)
from dlprim.arguments.instead import instead
from dlprim.functions.rows.row_programs import plain_gradient_operands, result_like, run

_LONG = 1 << 10  # elements of a row, from which on it makes no difference how many there are


class PReLUGradients(NamedTuple):
    """What `prelu_backward` returns.

    Attributes
    ----------
    dx : ndarray of the dtype and shape of x
    dw : ndarray of float32, the shape of weight
    """

    dx: Array
    dw: FloatArray


@instead(input="x")
def prelu(
    x: Any, weight: Any, *, out: Array | None = None, dtype: npt.DTypeLike | None = None
) -> Array:
    """x where it is positive, otherwise ``weight * x``.

    Parameters
    ----------
    x : array of float32 or bfloat16, any shape
    weight : array of float32 or bfloat16, (1,) or (C,)
        One slope, or one for each channel, the second axis of x, (N, C, ...).
    out : ndarray of the dtype and shape of x, optional
        Written and returned. Must be C-contiguous; may be x.
    dtype : None or "bfloat16"
        "bfloat16" treats uint16 arrays as the bits of bfloat16 values; the result is then uint16
        too.

    Returns
    -------
    ndarray of the dtype and shape of x
        Computed in float32 and rounded once; NaN stays NaN.

    Raises
    ------
    TypeError, ValueError
        An array has the wrong dtype or shape, or `out` partly overlaps x, or overlaps weight.

    Notes
    -----
    Source: arXiv 1502.01852.

    Examples
    --------
    >>> x, weight = -np.ones((4, 10, 7), np.float32), np.full(10, 0.25, np.float32)
    >>> float(dlprim.prelu(x, weight)[0, 0, 0])
    -0.25
    >>> dx, dw = dlprim.prelu_backward(np.ones_like(x), x, weight)
    """
    bits = dtype is not None and holds_bits(dtype)
    src = plain_operand("x", x, bits)
    slopes = _slopes(weight, src, bits)
    dst = result_like(out, src, x=src)
    require_separate("out", dst, weight=slopes)
    rows, columns, of_columns = _rows(src, slopes)
    if of_columns:
        run("prelu_of_columns", rows, columns, (src, slopes, dst))
    else:
        run("prelu_of_rows", rows, columns, (src, _of_rows(slopes, rows), dst))
    return dst


def prelu_backward(
    dy: Any,
    x: Any,
    weight: Any,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> PReLUGradients:
    """Gradients of `prelu` with respect to x and weight.

    Parameters
    ----------
    dy, x : array of float32 or bfloat16, of the same shape
        x is the argument of `prelu`.
    weight : array of float32 or bfloat16, (1,) or (C,)
        As passed to `prelu`.
    out : ndarray of the dtype and shape of x, optional
        Receives dx. Must be C-contiguous; may be dy or x.
    dtype : None or "bfloat16"
        As for `prelu`.

    Returns
    -------
    PReLUGradients
        ``(dx, dw)``; dw is float32, of the shape of weight. At 0 and NaN, the derivative is that of
        negative numbers, as in PyTorch. The bits do not depend on the number of threads.

    Raises
    ------
    TypeError, ValueError
        As for `prelu`.
    """
    diff, src = plain_gradient_operands("x", dy, x, dtype)
    slopes = _slopes(weight, src, dtype is not None)
    dx = result_like(out, diff, dy=diff, x=src)
    require_separate("out", dx, weight=slopes)
    rows, columns, of_columns = _rows(src, slopes)
    dw: FloatArray = aligned(slopes.shape, np.float32, zeros=True)
    if of_columns:
        run("prelu_of_columns_backward", rows, columns, (diff, src, slopes, dx, dw))
    else:
        shares = np.zeros(rows, np.float32)
        operands = (diff, src, _of_rows(slopes, rows), dx, shares)
        run("prelu_of_rows_backward", rows, columns, operands)
        if rows:
            with np.errstate(over="ignore", invalid="ignore"):
                dw[...] = shares.reshape(-1, slopes.size).sum(0, np.float64).reshape(dw.shape)
    return PReLUGradients(dx, dw)


def _slopes(weight: Any, src: Array, bits: bool) -> FloatArray:
    array = widened(float_operand("weight", weight, bits))
    shapes: list[tuple[int, ...]] = [(), (1,)]
    if src.ndim >= 2:
        shapes.append(src.shape[1:2])
    if array.shape not in shapes:
        expected = "(1,)" if src.ndim < 2 else f"(1,) or {src.shape[1:2]}"
        raise ValueError(
            f"weight has shape {array.shape}, expected {expected}, one slope or one for each "
            f"channel of x, whose shape is {src.shape}"
        )
    return array


def _rows(src: Array, slopes: FloatArray) -> tuple[int, int, bool]:
    """How many rows and columns x has, and whether columns are channels; else rows are."""
    shape = src.shape
    if slopes.size == 1:
        columns, axis = 1, src.ndim
        while axis > 0 and columns < _LONG:
            axis -= 1
            columns *= shape[axis]
        return math.prod(shape[:axis]), columns, False
    columns = math.prod(shape[2:])
    if columns == 1:
        return shape[0], shape[1], True
    return shape[0] * shape[1], columns, False


def _of_rows(slopes: FloatArray, rows: int) -> FloatArray:
    return np.tile(slopes.reshape(-1), rows // max(slopes.size, 1))
