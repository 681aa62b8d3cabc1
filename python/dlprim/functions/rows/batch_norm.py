"""Batch normalisation of plain arrays of any rank: batch_norm and its gradient."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlprim.arguments.arrays import (
    Array,
    FloatArray,
    aligned,
    contiguous,
    require_running,
    require_separate,
    require_shape,
)
from dlprim.arguments.floats import bits_of, holds_bits, plain_operand, widened
from dlprim.arguments.instead import instead
from dlprim.arguments.scalars import flag, fraction, real
from dlprim.functions.rows.row_programs import plain_gradient_operands, result_like, run

Doubles = npt.NDArray[np.float64]

# Of a channel of an image: shorter rows are put behind each other.
_FEWEST_PIXELS = 32


class BatchNormalizationGradients(NamedTuple):
    """What `batch_norm_backward` returns.

    Attributes
    ----------
    dx : ndarray of the dtype and shape of x
    dw, db : ndarray of float32, (C,)
    """

    dx: Array
    dw: FloatArray
    db: FloatArray


class _Rows(NamedTuple):
    """Elements of channels as rows: `together` rows of each channel, C apart, or one."""

    together: int
    channels: int
    pixels: int

    @property
    def elements(self) -> int:
        """Of each channel."""
        return self.together * self.pixels

    def repeated(self, values: Any) -> FloatArray:
        """Of a value for each channel one for each row."""
        return np.tile(np.asarray(values, np.float32), self.together)

    def summed(self, values: FloatArray) -> Doubles:
        """Over the rows of each channel."""
        total: Doubles = values.reshape(self.together, self.channels).sum(0, np.float64)
        return total


@instead(input="x")
def batch_norm(
    x: Any,
    running_mean: FloatArray | None = None,
    running_var: FloatArray | None = None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """``(x - mean) / sqrt(var + eps) * weight + bias`` of each channel, over all images.

    Arguments and values are those of `torch.nn.functional.batch_norm`. `BatchNorm` takes packed
    arrays, and can include a residual and relu.

    Parameters
    ----------
    x : array of float32 or bfloat16, (N, C, ...)
        With any number of axes.
    running_mean, running_var : ndarray of float32, (C,), optional
        With training, they are updated in place, ``running = (1 - momentum) * running + momentum *
        statistic`` with the unbiased variance, but not for an empty minibatch. Without training,
        they are the statistics and required.
    weight, bias : array of float32 or bfloat16, (C,), optional
        1 and 0 by default.
    training : bool
        Use the statistics of the minibatch.
    momentum : float
        In [0, 1].
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
        Computed in float32 and rounded once. The bits do not depend on the number of threads.

    Raises
    ------
    TypeError, ValueError
        An array has the wrong dtype or shape, statistics are missing, a number is out of range, or
        `out` partly overlaps x.

    Notes
    -----
    Source: arXiv 1502.03167.
    """
    bits = dtype is not None and holds_bits(dtype)
    src = plain_operand("x", x, bits)
    it, flat = _rows(src)
    scale = _of_channels("weight", weight, it.channels, bits, 1)
    shift = _of_channels("bias", bias, it.channels, bits, 0)
    number, part = real("eps", eps, 0), fraction("momentum", momentum)
    of_batch = _takes_batch(it.channels, running_mean, running_var, training)
    dst = result_like(out, src, x=src)
    require_separate(
        "out", dst, weight=weight, bias=bias, running_mean=running_mean, running_var=running_var
    )
    if src.size == 0:
        return dst
    if of_batch:
        middle, variance = _statistics(it, flat)
        if running_mean is not None and running_var is not None:
            _update(it, (running_mean, running_var), (middle, variance), part)
    else:
        middle, variance = _given(running_mean, running_var)
    scales = scale / np.sqrt(variance + number)
    rows = [it.repeated(each) for each in (middle, scales, shift)]
    made = dst if flat is src else aligned(flat.shape, flat.dtype)
    run("channel_affine", it.together * it.channels, it.pixels, (flat, *rows, made))
    if made is not dst:
        _restore(made, dst)
    return dst


def batch_norm_backward(
    dy: Any,
    x: Any,
    running_mean: FloatArray | None = None,
    running_var: FloatArray | None = None,
    weight: Any = None,
    training: bool = False,
    eps: float = 1e-5,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> BatchNormalizationGradients:
    """Gradients of `batch_norm` with respect to x, weight and bias.

    Parameters
    ----------
    dy, x : array of float32 or bfloat16, of the same shape (N, C, ...)
        x is the argument of `batch_norm`; with training, its statistics are computed again.
    running_mean, running_var : ndarray of float32, (C,), optional
        Required without training; never written.
    weight : array of float32 or bfloat16, (C,), optional
    training : bool
    eps : float
        As passed to `batch_norm`.
    out : ndarray of the dtype and shape of x, optional
        Receives dx. Must be C-contiguous; may be dy or x.
    dtype : None or "bfloat16"
        As for `batch_norm`.

    Returns
    -------
    BatchNormalizationGradients
        ``(dx, dw, db)``; dw and db are float32, (C,). The bits do not depend on the number of
        threads.

    Raises
    ------
    TypeError, ValueError
        As for `batch_norm`.
    """
    diff, src = plain_gradient_operands("x", dy, x, dtype)
    (it, flat), (_, flat_dy) = _rows(src), _rows(diff)
    scale = _of_channels("weight", weight, it.channels, dtype is not None, 1)
    number = real("eps", eps, 0)
    of_batch = _takes_batch(it.channels, running_mean, running_var, training)
    dx = result_like(out, diff, dy=diff, x=src)
    require_separate("out", dx, weight=weight, running_mean=running_mean, running_var=running_var)
    if src.size == 0:
        return BatchNormalizationGradients(dx, *np.zeros((2, it.channels), np.float32))
    found = _statistics(it, flat) if of_batch else _given(running_mean, running_var)
    middle, inverse = it.repeated(found[0]), 1 / np.sqrt(found[1] + number)
    count = it.together * it.channels
    sums = [np.zeros(count, np.float32) for _ in range(2)]
    run("channel_sums", count, it.pixels, (flat_dy, flat, middle, *sums))
    of_bias, of_weight = (it.summed(each) for each in sums)
    of_weight = of_weight * inverse
    # With g = dy weight and the normalised h: (g - mean(g) - h mean(g h)) / sqrt(var + eps).
    steps, mean = inverse * scale, of_batch / it.elements
    factors = steps, -steps * inverse * of_weight * mean, -steps * of_bias * mean
    made = dx if flat is src else aligned(flat.shape, flat.dtype)
    rows = [it.repeated(each) for each in factors]
    run("channel_slope", count, it.pixels, (flat_dy, flat, middle, *rows, made))
    if made is not dx:
        _restore(made, dx)
    return BatchNormalizationGradients(dx, of_weight.astype(np.float32), of_bias.astype(np.float32))


def _rows(src: Array) -> tuple[_Rows, Array]:
    """Rows of single channels, where they lie or in a copy."""
    if src.ndim < 2:
        raise ValueError(f"x has shape {src.shape}, expected (N, C, ...)")
    n, channels, *others = src.shape
    pixels = math.prod(others)
    if pixels >= _FEWEST_PIXELS or n == 1:
        return _Rows(n, channels, pixels), src
    by_channel = bits_of(src).reshape(n, channels, pixels).swapaxes(0, 1)
    flat: Array = contiguous(by_channel).view(src.dtype)
    return _Rows(1, channels, n * pixels), flat


def _restore(by_channel: Array, dst: Array) -> None:
    """Rows of channels as the plain array that they are of."""
    n, channels = dst.shape[:2]
    rows = bits_of(by_channel).reshape(channels, n, -1)
    bits_of(dst).reshape(n, channels, -1)[...] = rows.swapaxes(0, 1)


def _of_channels(name: str, value: Any, channels: int, bits: bool, default: float) -> FloatArray:
    if value is None:
        return np.full(channels, default, np.float32)
    array = plain_operand(name, value, bits)
    require_shape(name, array, (channels,), "C from x")
    return widened(array)


def _takes_batch(channels: int, running_mean: Any, running_var: Any, training: Any) -> bool:
    """Whether statistics are those of the minibatch."""
    require_running(channels, running_mean, running_var)
    if flag("training", training):
        return True
    if running_mean is None:
        raise ValueError(
            "running_mean and running_var are missing, expected both, or training=True, which "
            "takes the statistics of x"
        )
    return False


def _statistics(it: _Rows, flat: Array) -> tuple[Doubles, Doubles]:
    """Mean and variance of each channel, from those of its rows."""
    rows = it.together * it.channels
    middle, within = (aligned((rows,), np.float32) for _ in range(2))
    run("row_variances", rows, it.pixels, (flat, middle, within))
    means, variances = (
        each.reshape(it.together, it.channels).astype(np.float64) for each in (middle, within)
    )
    mean = means.mean(0)
    with np.errstate(invalid="ignore"):
        return mean, variances.mean(0) + ((means - mean) ** 2).mean(0)


def _given(running_mean: Any, running_var: Any) -> tuple[Doubles, Doubles]:
    return running_mean.astype(np.float64), running_var.astype(np.float64)


def _update(
    it: _Rows,
    running: tuple[FloatArray, FloatArray],
    found: tuple[Doubles, Doubles],
    momentum: float,
) -> None:
    unbiased = it.elements / max(it.elements - 1, 1)
    for array, value in zip(running, (found[0], found[1] * unbiased), strict=True):
        array[...] = (1 - momentum) * array.astype(np.float64) + momentum * value
