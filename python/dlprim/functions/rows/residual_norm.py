"""Normalisation of a sum with a residual, in one pass over memory, and its gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy.typing as npt

from dlprim.arguments.arrays import Array, require_separate, require_shape
from dlprim.arguments.floats import (
    holds_bits,
    plain_operand,
)
from dlprim.arguments.scalars import real
from dlprim.arguments.traced import traced_among
from dlprim.functions.rows.normalization import LayerNormGradients, RMSNormGradients, norm_gradients
from dlprim.functions.rows.row_parameters import columns_of, constant_row, parameter_of, rows_of
from dlprim.functions.rows.row_programs import require_alike, result_like, run


class AddNormResult(NamedTuple):
    """What `add_layer_norm` and `add_rms_norm` return.

    Attributes
    ----------
    y : ndarray of the dtype and shape of x
        The normalised sum.
    sum : ndarray of the dtype and shape of x
        x + residual, the next residual.
    """

    y: Array
    sum: Array


def add_layer_norm(
    x: Any,
    residual: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> AddNormResult:
    """``x + residual``, and `layer_norm` of it, in one pass over memory.

    Parameters
    ----------
    x, residual : array of float32 or bfloat16, (..., C), of the same shape
    weight, bias : array of float32 or bfloat16, (C,) or more of the last axes of x, optional
        1 and 0 by default.
    eps : float
        At least 0.
    out : ndarray of the dtype and shape of x, optional
        Receives y. Must be C-contiguous; may be x or residual.
    dtype : None or "bfloat16"
        "bfloat16" treats uint16 arrays as the bits of bfloat16 values; results are then uint16 too.

    Returns
    -------
    AddNormResult
        ``(y, sum)``, each computed in float32 and rounded once; y is computed from the unrounded
        sum.

    Raises
    ------
    TypeError, ValueError
        An array has the wrong dtype or shape, eps is not a finite number of at least 0, or `out`
        partly overlaps x or residual.

    Notes
    -----
    Source: arXiv 1607.06450.

    Examples
    --------
    >>> x, residual = np.ones((2, 8, 64), np.float32)
    >>> y, total = dlprim.add_layer_norm(x, residual)
    >>> dx, dw, db = dlprim.add_layer_norm_backward(np.ones_like(y), np.ones_like(y), total)
    """
    traced = traced_among((x, residual, weight, bias))
    if traced is not None:
        how = {"out": out, "dtype": dtype}
        return traced.called("add_layer_norm", (x, residual, weight, bias, eps), how)  # type: ignore[no-any-return]
    bits = dtype is not None and holds_bits(dtype)
    src, beside = _summands(x, residual, bits)
    scale, shift = parameter_of("weight", weight, src, bits), parameter_of("bias", bias, src, bits)
    if scale is not None and shift is not None:
        require_shape("bias", shift, scale.shape, "the shape of weight")
    columns = columns_of(src, shift if scale is None else scale)
    y = result_like(out, src, x=src, residual=beside)
    require_separate("out", y, weight=scale, bias=shift)
    eps = real("eps", eps, 0)
    total = result_like(None, src)
    scale = constant_row(columns, 1) if scale is None else scale
    shift = constant_row(columns, 0) if shift is None else shift
    operands = (src, beside, scale, shift, eps, total, y)
    run("add_layer_norm", rows_of(src, columns), columns, operands)
    return AddNormResult(y, total)


def add_rms_norm(
    x: Any,
    residual: Any,
    weight: Any = None,
    eps: float = 1e-5,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> AddNormResult:
    """``x + residual``, and `rms_norm` of it, in one pass over memory.

    Parameters
    ----------
    x, residual : array of float32 or bfloat16, (..., C), of the same shape
    weight : array of float32 or bfloat16, (C,) or more of the last axes of x, optional
    eps : float
        At least 0. PyTorch's default for RMSNorm is float32's, 1.19e-7.
    out : ndarray of the dtype and shape of x, optional
    dtype : None or "bfloat16"
        As for `add_layer_norm`.

    Returns
    -------
    AddNormResult
        As from `add_layer_norm`.

    Raises
    ------
    TypeError, ValueError
        As for `add_layer_norm`.

    Notes
    -----
    Source: arXiv 1910.07467.

    Examples
    --------
    >>> x, residual = np.ones((2, 8, 64), np.float32)
    >>> y, total = dlprim.add_rms_norm(x, residual)
    >>> dx, dw = dlprim.add_rms_norm_backward(np.ones_like(y), None, total)
    """
    traced = traced_among((x, residual, weight))
    if traced is not None:
        how = {"out": out, "dtype": dtype}
        return traced.called("add_rms_norm", (x, residual, weight, eps), how)  # type: ignore[no-any-return]
    bits = dtype is not None and holds_bits(dtype)
    src, beside = _summands(x, residual, bits)
    scale = parameter_of("weight", weight, src, bits)
    columns = columns_of(src, scale)
    y = result_like(out, src, x=src, residual=beside)
    require_separate("out", y, weight=scale)
    eps = real("eps", eps, 0)
    total = result_like(None, src)
    scale = constant_row(columns, 1) if scale is None else scale
    operands = (src, beside, scale, eps, total, y)
    run("add_rms_norm", rows_of(src, columns), columns, operands)
    return AddNormResult(y, total)


def add_layer_norm_backward(
    dy: Any,
    dsum: Any,
    sum: Any,
    weight: Any = None,
    eps: float = 1e-5,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> LayerNormGradients:
    """Gradients of `add_layer_norm` with respect to x, residual, weight and bias.

    Parameters
    ----------
    dy, sum : array of float32 or bfloat16, of the same shape
        sum is the one that `add_layer_norm` returned.
    dsum : array like dy, or None
        The gradient with respect to sum from its other use, the next residual.
    weight : array of float32 or bfloat16, optional
        As passed to `add_layer_norm`; an array of ones if only bias had several axes there.
    eps : float
        As passed to `add_layer_norm`.
    out : ndarray of the dtype and shape of dy, optional
        Receives dx. Must be C-contiguous; may be dy, dsum or sum.
    dtype : None or "bfloat16"
        As for `add_layer_norm`.

    Returns
    -------
    LayerNormGradients
        ``(dx, dw, db)``; dx is the gradient with respect to both x and residual, dw and db are
        float32, of the shape of weight, or (C,) without one. The bits do not depend on the number
        of threads.

    Raises
    ------
    TypeError, ValueError
        As for `add_layer_norm`.
    """
    given = (dy, sum, weight, eps, dsum)
    found = norm_gradients("layer_norm_backward", 2, given, out, dtype, "sum")
    return LayerNormGradients._make(found)


def add_rms_norm_backward(
    dy: Any,
    dsum: Any,
    sum: Any,
    weight: Any = None,
    eps: float = 1e-5,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> RMSNormGradients:
    """Gradients of `add_rms_norm` with respect to x, residual and weight.

    Parameters
    ----------
    dy, sum : array of float32 or bfloat16, of the same shape
        sum is the one that `add_rms_norm` returned.
    dsum : array like dy, or None
    weight : array of float32 or bfloat16, optional
    eps : float
    out : ndarray of the dtype and shape of dy, optional
    dtype : None or "bfloat16"
        All as for `add_layer_norm_backward`.

    Returns
    -------
    RMSNormGradients
        ``(dx, dw)``; dx is the gradient with respect to both x and residual, dw is float32, of the
        shape of weight, or (C,) without one. The bits do not depend on the number of threads.

    Raises
    ------
    TypeError, ValueError
        As for `add_layer_norm`.
    """
    given = (dy, sum, weight, eps, dsum)
    found = norm_gradients("rms_norm_backward", 1, given, out, dtype, "sum")
    return RMSNormGradients._make(found)


def _summands(x: Any, residual: Any, bits: bool) -> tuple[Array, Array]:
    src = plain_operand("x", x, bits)
    return src, _alike("residual", residual, "x", src, bits)


def _alike(name: str, value: Any, other: str, array: Array, bits: bool) -> Array:
    """An operand of the type and shape of an array, the argument ``other``."""
    found = plain_operand(name, value, bits)
    require_alike(name, found, other, array)
    return found
