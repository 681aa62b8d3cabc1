"""Normalisation of the last axes: layer_norm, rms_norm and their gradients."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlprim.arguments.arrays import Array, FloatArray, aligned, require_separate, require_shape
from dlprim.arguments.floats import (
    holds_bits,
    plain_operand,
)
from dlprim.arguments.instead import instead
from dlprim.arguments.scalars import real
from dlprim.functions.rows.row_parameters import columns_of, constant_row, parameter_of, rows_of
from dlprim.functions.rows.row_programs import (
    made,
    plain_gradient_operands,
    require_alike,
    result_like,
    run,
)


class LayerNormGradients(NamedTuple):
    """What `layer_norm_backward` returns.

    Attributes
    ----------
    dx : ndarray of the dtype and shape of x
    dw, db : ndarray of float32, the shape of weight
    """

    dx: Array
    dw: FloatArray
    db: FloatArray


class RMSNormGradients(NamedTuple):
    """What `rms_norm_backward` returns.

    Attributes
    ----------
    dx : ndarray of the dtype and shape of x
    dw : ndarray of float32, the shape of weight
    """

    dx: Array
    dw: FloatArray


@instead(input="x", normalized_shape="weight or bias of that shape, or rows of the last axis")
def layer_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """``(x - mean) / sqrt(var + eps) * weight + bias`` over the last axis of x.

    More exactly, over as many of the last axes as weight or bias have, like PyTorch's
    normalized_shape.

    Parameters
    ----------
    x : array of float32 or bfloat16, (..., C)
    weight, bias : array of float32 or bfloat16, (C,) or more of the last axes of x, optional
        1 and 0 by default.
    eps : float
        At least 0.
    out : ndarray of the dtype and shape of x, optional
        Written and returned. Must be C-contiguous; may be x.
    dtype : None or "bfloat16"
        "bfloat16" treats uint16 arrays as the bits of bfloat16 values; the result is then uint16
        too.

    Returns
    -------
    ndarray of the dtype and shape of x
        Computed in float32 and rounded once. The variance is computed in a second pass, so that a
        mean far from 0 does not reduce its accuracy. A NaN or infinity makes its row NaN.

    Raises
    ------
    TypeError, ValueError
        An array has the wrong dtype or shape, eps is not a finite number of at least 0, or `out`
        partly overlaps x.

    Notes
    -----
    Source: arXiv 1607.06450.

    Examples
    --------
    >>> x, weight = np.ones((8, 20, 64), np.float32), np.ones((20, 64), np.float32)
    >>> y = dlprim.layer_norm(x, weight)  # over the last two axes
    >>> dx, dw, db = dlprim.layer_norm_backward(np.ones_like(y), x, weight)
    >>> dw.shape
    (20, 64)
    """
    if dtype is None and type(eps) is float and 0 <= eps < math.inf:
        quickly = made("layer_norm", False, out, x, weight, bias, eps)
        if quickly is not None:
            return quickly
    bits = dtype is not None and holds_bits(dtype)
    src = plain_operand("x", x, bits)
    scale, shift = parameter_of("weight", weight, src, bits), parameter_of("bias", bias, src, bits)
    if scale is not None and shift is not None:
        require_shape("bias", shift, scale.shape, "the shape of weight")
    columns = columns_of(src, shift if scale is None else scale)
    dst = result_like(out, src, x=src)
    require_separate("out", dst, weight=scale, bias=shift)
    eps = real("eps", eps, 0)
    scale = constant_row(columns, 1) if scale is None else scale
    shift = constant_row(columns, 0) if shift is None else shift
    run("layer_norm", rows_of(src, columns), columns, (src, scale, shift, eps, dst))
    return dst


@instead(input="x", normalized_shape="weight of that shape, or rows of the last axis")
def rms_norm(
    x: Any,
    weight: Any = None,
    eps: float = 1e-5,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last axis of x.

    More exactly, over as many of the last axes as weight has.

    Parameters
    ----------
    x : array of float32 or bfloat16, (..., C)
    weight : array of float32 or bfloat16, (C,) or more of the last axes of x, optional
    eps : float
        At least 0. PyTorch's default is float32's, 1.19e-7.
    out : ndarray of the dtype and shape of x, optional
    dtype : None or "bfloat16"
        As for `layer_norm`.

    Returns
    -------
    ndarray of the dtype and shape of x
        Computed in float32 and rounded once. A NaN makes its row NaN. In a row with an infinity,
        that becomes NaN and all else 0.

    Raises
    ------
    TypeError, ValueError
        As for `layer_norm`.

    Notes
    -----
    Source: arXiv 1910.07467.
    """
    if dtype is None and type(eps) is float and 0 <= eps < math.inf:
        quickly = made("rms_norm", False, out, x, weight, eps)
        if quickly is not None:
            return quickly
    bits = dtype is not None and holds_bits(dtype)
    src = plain_operand("x", x, bits)
    scale = parameter_of("weight", weight, src, bits)
    columns = columns_of(src, scale)
    dst = result_like(out, src, x=src)
    require_separate("out", dst, weight=scale)
    eps = real("eps", eps, 0)
    scale = constant_row(columns, 1) if scale is None else scale
    run("rms_norm", rows_of(src, columns), columns, (src, scale, eps, dst))
    return dst


def layer_norm_backward(
    dy: Any,
    x: Any,
    weight: Any = None,
    eps: float = 1e-5,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> LayerNormGradients:
    """Gradients of `layer_norm` with respect to x, weight and bias.

    Parameters
    ----------
    dy, x : array of float32 or bfloat16, of the same shape
        x is the argument of `layer_norm`.
    weight : array of float32 or bfloat16, optional
        As passed to `layer_norm`; an array of ones if only bias had several axes there.
    eps : float
        As passed to `layer_norm`.
    out : ndarray of the dtype and shape of x, optional
        Receives dx. Must be C-contiguous; may be dy or x.
    dtype : None or "bfloat16"
        As for `layer_norm`.

    Returns
    -------
    LayerNormGradients
        ``(dx, dw, db)``; dw and db are float32, of the shape of weight, or (C,) without one. The
        bits do not depend on the number of threads.

    Raises
    ------
    TypeError, ValueError
        As for `layer_norm`.
    """
    given = (dy, x, weight, eps, None)
    return LayerNormGradients._make(norm_gradients("layer_norm_backward", 2, given, out, dtype))


def rms_norm_backward(
    dy: Any,
    x: Any,
    weight: Any = None,
    eps: float = 1e-5,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> RMSNormGradients:
    """Gradients of `rms_norm` with respect to x and weight.

    Parameters
    ----------
    dy, x : array of float32 or bfloat16, of the same shape
        x is the argument of `rms_norm`.
    weight : array of float32 or bfloat16, optional
    eps : float
        As passed to `rms_norm`.
    out : ndarray of the dtype and shape of x, optional
        Receives dx. Must be C-contiguous; may be dy or x.
    dtype : None or "bfloat16"
        As for `layer_norm`.

    Returns
    -------
    RMSNormGradients
        ``(dx, dw)``; dw is float32, of the shape of weight, or (C,) without one. The bits do not
        depend on the number of threads.

    Raises
    ------
    TypeError, ValueError
        As for `layer_norm`.
    """
    given = (dy, x, weight, eps, None)
    return RMSNormGradients._make(norm_gradients("rms_norm_backward", 1, given, out, dtype))


def norm_gradients(
    name: str,
    sums: int,
    given: tuple[Any, ...],
    out: Any,
    dtype: npt.DTypeLike | None,
    of: str = "x",
) -> tuple[Array, ...]:
    """Of the arguments (dy, x, weight, eps, dsum): dx, and behind it ``sums`` gradients of
    parameters.

    x is the argument ``of``; dsum, unless it is None, flows into it too.
    """
    dy, x, weight, eps, dsum = given
    if dsum is None and dtype is None and type(eps) is float and 0 <= eps < math.inf:
        quickly: Any = made(name, False, out, dy, x, weight, eps)
        if quickly is not None:
            return quickly  # type: ignore[no-any-return]
    diff, src = plain_gradient_operands(of, dy, x, dtype)
    gradients = {"dy": diff}
    if dsum is not None:
        gradients["dsum"] = plain_operand("dsum", dsum, dtype is not None)
        require_alike("dsum", gradients["dsum"], "dy", diff)
        name = f"add_{name}"
    scale = parameter_of("weight", weight, src, dtype is not None)
    columns = columns_of(src, scale)
    dx = result_like(out, diff, **gradients, **{of: src})
    require_separate("out", dx, weight=scale)
    eps = real("eps", eps, 0)
    shape = (columns,) if scale is None else scale.shape
    totals = [aligned(shape, np.float32, zeros=True) for _ in range(sums)]
    scale = constant_row(columns, 1) if scale is None else scale
    run(name, rows_of(src, columns), columns, (*gradients.values(), src, scale, eps, dx, *totals))
    return dx, *totals
