"""Softmax and its logarithm along an axis, and their gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim.arguments.arrays import Array, aligned, swapped
from dlprim.arguments.floats import (
    holds_bits,
    plain_operand,
)
from dlprim.arguments.instead import AXES, instead
from dlprim.arguments.scalars import integer
from dlprim.functions.rows.row_programs import (
    made,
    plain_gradient_operands,
    result_like,
    run,
)


@instead(**AXES)
def softmax(
    x: Any, axis: int = -1, *, out: Array | None = None, dtype: npt.DTypeLike | None = None
) -> Array:
    """``e^x / sum(e^x)`` along an axis.

    Parameters
    ----------
    x : array of float32 or bfloat16, any shape
    axis : int
        Of x. Any axis but the last one costs a copy.
    out : ndarray of the same dtype and shape, optional
        Written and returned. Must be C-contiguous; may be x.
    dtype : None or "bfloat16"
        "bfloat16" treats uint16 arrays as the bits of bfloat16 values; the result is then uint16
        too.

    Returns
    -------
    ndarray of the dtype and shape of x
        Computed in float32 and rounded once. -inf gives 0. If all elements are -inf, or one is NaN
        or inf, all results are NaN.

    Raises
    ------
    TypeError, ValueError
        An array has the wrong dtype or shape, x has no such axis, or `out` partly overlaps x.
    """
    return _value("softmax", x, axis, out, dtype)


@instead(**AXES)
def log_softmax(
    x: Any, axis: int = -1, *, out: Array | None = None, dtype: npt.DTypeLike | None = None
) -> Array:
    """``x - log(sum(e^x))`` along an axis: the logarithm of `softmax`, without its rounding error.

    Parameters
    ----------
    x : array of float32 or bfloat16, any shape
    axis : int
    out : ndarray of the same dtype and shape, optional
    dtype : None or "bfloat16"
        All as for `softmax`.

    Returns
    -------
    ndarray of the dtype and shape of x
        As from `softmax`, with -inf where x is.

    Raises
    ------
    TypeError, ValueError
        As for `softmax`.
    """
    return _value("log_softmax", x, axis, out, dtype)


@instead(**AXES)
def softmax_backward(
    dy: Any,
    y: Any,
    axis: int = -1,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """The gradient of `softmax`: ``y (dy - sum(dy y))``.

    Parameters
    ----------
    dy, y : array of float32 or bfloat16, of the same shape
        y is the result of `softmax`.
    axis : int
        As for `softmax`.
    out : ndarray of the same dtype and shape, optional
        As for `softmax`; may be dy or y.
    dtype : None or "bfloat16"
        As for `softmax`.

    Returns
    -------
    ndarray of the dtype and shape of dy

    Raises
    ------
    TypeError, ValueError
        As for `softmax`.
    """
    return _slope("softmax_backward", (dy, y), axis, out, dtype)


@instead(**AXES)
def log_softmax_backward(
    dy: Any,
    y: Any,
    axis: int = -1,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """The gradient of `log_softmax`: ``dy - e^y sum(dy)``.

    Parameters
    ----------
    dy, y : array of float32 or bfloat16, of the same shape
        y is the result of `log_softmax`.
    axis : int
        As for `softmax`.
    out : ndarray of the same dtype and shape, optional
        As for `softmax`; may be dy or y.
    dtype : None or "bfloat16"
        As for `softmax`.

    Returns
    -------
    ndarray of the dtype and shape of dy

    Raises
    ------
    TypeError, ValueError
        As for `softmax`.
    """
    return _slope("log_softmax_backward", (dy, y), axis, out, dtype)


def _value(name: str, x: Any, axis: Any, out: Array | None, dtype: npt.DTypeLike | None) -> Array:
    if dtype is None and type(axis) is int and axis == -1:
        quickly = made(name, False, out, x)
        if quickly is not None:
            return quickly
    src = plain_operand("x", x, dtype is not None and holds_bits(dtype))
    place = _place(axis, src)
    dst = result_like(out, src, x=src)
    _along(name, place, (src,), dst)
    return dst


def _slope(
    name: str, gradient: tuple[Any, Any], axis: Any, out: Array | None, dtype: npt.DTypeLike | None
) -> Array:
    if dtype is None and type(axis) is int and axis == -1:
        quickly = made(name, False, out, *gradient)
        if quickly is not None:
            return quickly
    diff, y = plain_gradient_operands("y", *gradient, dtype)
    place = _place(axis, diff)
    dst = result_like(out, diff, dy=diff, y=y)
    _along(name, place, (diff, y), dst)
    return dst


def _place(axis: Any, src: Array) -> int:
    """The axis, counted from behind: -1 for the last. An array of none has one of one element."""
    ndim = src.ndim or 1
    if type(axis) is int and -ndim <= axis < 0:
        return axis
    place = integer("axis", axis, -ndim, ndim)
    return place if place < 0 else place - ndim


def _along(name: str, place: int, operands: tuple[Array, ...], dst: Array) -> None:
    """Runs the program of ``name`` along an axis, on copies where it is not the last."""
    shape = dst.shape
    size = dst.size
    if place == -1:
        columns = shape[-1] if shape else 1
        if size:
            run(name, size // columns, columns, (*operands, dst))
        return
    if not size:
        return
    columns, inner = shape[place], math.prod(shape[place + 1 :])
    turned = [swapped(it.view(np.ndarray).reshape(-1, columns, inner)) for it in operands]
    result = aligned(turned[0].shape, dst.dtype)
    run(name, size // columns, columns, (*turned, result))
    swapped(result, dst.view(np.ndarray).reshape(-1, columns, inner))
