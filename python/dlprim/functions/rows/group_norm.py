"""Normalisation of channels and groups of them: group_norm, instance_norm and their gradients."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlprim.arguments.arrays import Array, FloatArray, aligned, require_separate, require_shape
from dlprim.arguments.floats import (
    holds_bits,
    plain_operand,
    widened,
)
from dlprim.arguments.instead import instead
from dlprim.arguments.scalars import integer, real
from dlprim.functions.rows.row_programs import plain_gradient_operands, result_like, run


class GroupNormGradients(NamedTuple):
    """What `group_norm_backward` and `instance_norm_backward` return.

    Attributes
    ----------
    dx : ndarray of the dtype and shape of x
    dw, db : ndarray of float32, (C,)
    """

    dx: Array
    dw: FloatArray
    db: FloatArray


class _Extents(NamedTuple):
    """Of an array (N, C, ...): a group is `together` channels of `pixels` elements."""

    n: int
    channels: int
    groups: int
    pixels: int

    @property
    def together(self) -> int:
        return self.channels // self.groups


@instead(input="x")
def group_norm(
    x: Any,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """``(x - mean) / sqrt(var + eps) * weight + bias`` over each group of channels of an image.

    Parameters
    ----------
    x : array of float32 or bfloat16, (N, C, ...)
        Plain, with the channels in the second axis.
    num_groups : int
        A divisor of C: each group has C / num_groups consecutive channels.
    weight, bias : array of float32 or bfloat16, (C,), optional
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
        mean far from 0 does not reduce its accuracy. A NaN or infinity makes its group NaN. A group
        of one element, which is its own mean, becomes bias.

    Raises
    ------
    TypeError, ValueError
        An array has the wrong dtype or shape, num_groups does not divide C, eps is not a finite
        number of at least 0, or `out` partly overlaps x.

    Notes
    -----
    Source: arXiv 1803.08494.

    Examples
    --------
    >>> x = np.ones((2, 32, 7, 7), np.float32)
    >>> y = dlprim.group_norm(x, 8)
    >>> dx, dw, db = dlprim.group_norm_backward(np.ones_like(y), x, 8)
    """
    groups = integer("num_groups", num_groups, 1)
    return _value(x, groups, (weight, bias, eps), out, dtype)


@instead(input="x")
def instance_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """``(x - mean) / sqrt(var + eps) * weight + bias`` over each channel of an image.

    `group_norm` with one channel per group. There are no running statistics.

    Parameters
    ----------
    x : array of float32 or bfloat16, (N, C, ...)
    weight, bias : array of float32 or bfloat16, (C,), optional
    eps : float
    out : ndarray of the dtype and shape of x, optional
    dtype : None or "bfloat16"
        All as for `group_norm`.

    Returns
    -------
    ndarray of the dtype and shape of x
        As from `group_norm`.

    Raises
    ------
    TypeError, ValueError
        As for `group_norm`.

    Notes
    -----
    Source: arXiv 1607.08022.
    """
    return _value(x, 0, (weight, bias, eps), out, dtype)


def group_norm_backward(
    dy: Any,
    x: Any,
    num_groups: int,
    weight: Any = None,
    eps: float = 1e-5,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> GroupNormGradients:
    """Gradients of `group_norm` with respect to x, weight and bias.

    Parameters
    ----------
    dy, x : array of float32 or bfloat16, of the same shape (N, C, ...)
        x is the argument of `group_norm`.
    num_groups : int
    weight : array of float32 or bfloat16, (C,), optional
    eps : float
        As passed to `group_norm`.
    out : ndarray of the dtype and shape of x, optional
        Receives dx. Must be C-contiguous; may be dy or x.
    dtype : None or "bfloat16"
        As for `group_norm`.

    Returns
    -------
    GroupNormGradients
        ``(dx, dw, db)``; dw and db are float32, (C,). The bits do not depend on the number of
        threads.

    Raises
    ------
    TypeError, ValueError
        As for `group_norm`.
    """
    groups = integer("num_groups", num_groups, 1)
    return _gradients((dy, x), groups, (weight, eps), out, dtype)


def instance_norm_backward(
    dy: Any,
    x: Any,
    weight: Any = None,
    eps: float = 1e-5,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> GroupNormGradients:
    """Gradients of `instance_norm` with respect to x, weight and bias.

    Parameters
    ----------
    dy, x : array of float32 or bfloat16, of the same shape (N, C, ...)
        x is the argument of `instance_norm`.
    weight : array of float32 or bfloat16, (C,), optional
    eps : float
        As passed to `instance_norm`.
    out : ndarray of the dtype and shape of x, optional
    dtype : None or "bfloat16"
        As for `group_norm_backward`.

    Returns
    -------
    GroupNormGradients
        As from `group_norm_backward`.

    Raises
    ------
    TypeError, ValueError
        As for `group_norm`.
    """
    return _gradients((dy, x), 0, (weight, eps), out, dtype)


@np.errstate(over="ignore", invalid="ignore")  # of a channel's numbers, as of its elements
def _value(
    x: Any,
    groups: int,
    given: tuple[Any, Any, Any],
    out: Array | None,
    dtype: npt.DTypeLike | None,
) -> Array:
    """Of the arguments (weight, bias, eps); each channel is a group where there are 0."""
    weight, bias, eps = given
    bits = dtype is not None and holds_bits(dtype)
    src = plain_operand("x", x, bits)
    it = _extents(src, groups)
    scale = _parameter("weight", weight, it.channels, bits)
    shift = _parameter("bias", bias, it.channels, bits)
    eps = real("eps", eps, 0)
    dst = result_like(out, src, x=src)
    require_separate("out", dst, weight=scale, bias=shift)
    if src.size:
        scale = np.ones(it.channels, np.float32) if scale is None else scale
        shift = np.zeros(it.channels, np.float32) if shift is None else shift
        shifts = np.tile(shift, it.n)
        rows = it.n * it.channels
        if it.together == 1:
            run("instance_norm", rows, it.pixels, (src, np.tile(scale, it.n), shifts, eps, dst))
        else:
            middle, inverse = _moments(src, it, eps)
            scales = (inverse.reshape(it.n, -1) * scale).reshape(-1)
            run("channel_affine", rows, it.pixels, (src, middle, scales, shifts, dst))
    return dst


@np.errstate(over="ignore", invalid="ignore")
def _gradients(
    gradient: tuple[Any, Any],
    groups: int,
    given: tuple[Any, Any],
    out: Array | None,
    dtype: npt.DTypeLike | None,
) -> GroupNormGradients:
    """Of the arguments (dy, x) and (weight, eps)."""
    diff, src = plain_gradient_operands("x", *gradient, dtype)
    it = _extents(src, groups)
    scale = _parameter("weight", given[0], it.channels, dtype is not None)
    eps = real("eps", given[1], 0)
    dx = result_like(out, diff, dy=diff, x=src)
    require_separate("out", dx, weight=scale)
    of_weight, of_bias = np.zeros((2, it.n, it.channels), np.float32)
    if src.size:
        scale = np.ones(it.channels, np.float32) if scale is None else scale
        rows = it.n * it.channels
        if it.together == 1:
            operands = (diff, src, np.tile(scale, it.n), eps, dx, of_weight, of_bias)
            run("instance_norm_backward", rows, it.pixels, operands)
        else:
            middle, inverse = _moments(src, it, eps)
            run("channel_sums", rows, it.pixels, (diff, src, middle, of_bias, of_weight))
            of_weight *= inverse.reshape(of_weight.shape)
            factors = _factors(it, inverse, scale, (of_weight, of_bias))
            run("channel_slope", rows, it.pixels, (diff, src, middle, *factors, dx))
    return GroupNormGradients(dx, *(_summed(terms) for terms in (of_weight, of_bias)))


def _extents(src: Array, groups: int) -> _Extents:
    if src.ndim < 2:
        raise ValueError(f"x has shape {src.shape}, expected (N, C, ...)")
    n, channels, *others = src.shape
    groups = groups or max(channels, 1)
    if channels % groups:
        raise ValueError(f"num_groups is {groups}, expected a divisor of C = {channels}")
    return _Extents(n, channels, groups, math.prod(others))


def _parameter(name: str, value: Any, channels: int, bits: bool) -> FloatArray | None:
    if value is None:
        return None
    array = plain_operand(name, value, bits)
    require_shape(name, array, (channels,), "C from x")
    return widened(array)


def _moments(src: Array, it: _Extents, eps: float) -> tuple[FloatArray, FloatArray]:
    """For each channel the mean of its group, and 1 / sqrt(var + eps)."""
    groups = it.n * it.groups
    found = [aligned((groups,), np.float32) for _ in range(2)]
    run("row_moments", groups, it.together * it.pixels, (src, eps, *found))
    middle, inverse = (np.repeat(each, it.together) for each in found)
    return middle, inverse


def _factors(
    it: _Extents, inverse: FloatArray, scale: FloatArray, sums: tuple[FloatArray, FloatArray]
) -> list[FloatArray]:
    """Of dy and of x - mean, and what is added to both, in a row of each channel: dx.

    With g = dy weight and the normalised h it is (g - mean(g) - h mean(g h)) / sqrt(var + eps).
    """
    steps = inverse.reshape(it.n, it.channels).astype(np.float64)
    along, level = (_mean_of_groups(it, each.astype(np.float64) * scale) for each in sums)
    factors = steps * scale, -steps * steps * along, -steps * level
    return [each.reshape(-1).astype(np.float32) for each in factors]


def _mean_of_groups(it: _Extents, sums: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """For each channel that of its group, whose channels have these sums."""
    groups = sums.reshape(it.n, it.groups, it.together).mean(2) / it.pixels
    return np.repeat(groups, it.together, 1)


def _summed(terms: FloatArray) -> FloatArray:
    """Over images."""
    total: FloatArray = aligned(terms.shape[1:], np.float32)
    total[...] = terms.sum(0, np.float64)
    return total
