"""Layers on single elements, for where no other pass takes them along: relu, sums, dropout.

They work on packed and plain arrays alike, of any shape: one read of each operand, one write.
"""

from __future__ import annotations

import math
from typing import Any

import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.arrays import Array
from dlprim.arguments.floats import float_operand, holds_bits
from dlprim.arguments.instead import ARRAYS, IN_PLACE, instead
from dlprim.arguments.names import relu_or_none
from dlprim.arguments.scalars import fraction, integer
from dlprim.arguments.traced import Traced

_WORDS = 2**32
_SEEDS = 2**64


@instead(**ARRAYS, **IN_PLACE)
def relu(x: Any, *, out: Array | None = None, dtype: npt.DTypeLike | None = None) -> Array:
    """``max(x, 0)``; NaN stays NaN.

    Parameters
    ----------
    x : array of float32 or bfloat16, any shape
    out : ndarray of the same dtype and shape, optional
        Written and returned. Must be C-contiguous; may be x.
    dtype : None or "bfloat16"
        "bfloat16" treats uint16 arrays as the bits of bfloat16 values; the result is then uint16
        too.

    Returns
    -------
    ndarray of the dtype and shape of x

    Raises
    ------
    TypeError, ValueError
        An array has the wrong dtype or shape, or `out` partly overlaps x.
    """
    return _core.elementwise("relu", float_operand("x", x, holds_bits(dtype)), None, out)


def relu_backward(
    dy: Any, y: Any, *, out: Array | None = None, dtype: npt.DTypeLike | None = None
) -> Array:
    """The gradient of `relu`: dy, or 0 where y <= 0.

    Parameters
    ----------
    dy, y : array of float32 or bfloat16, of the same shape
        y is the result of `relu`. NaN counts as positive.
    out : ndarray of the same dtype and shape, optional
        As for `relu`; may be dy or y.
    dtype : None or "bfloat16"
        As for `relu`.

    Returns
    -------
    ndarray of the dtype and shape of dy

    Raises
    ------
    TypeError, ValueError
        As for `relu`.
    """
    bits = holds_bits(dtype)
    gradient, result = float_operand("dy", dy, bits), float_operand("y", y, bits)
    return _core.elementwise("relu_backward", gradient, result, out)


@instead(input="x", alpha="none: other times alpha", relu="activation='relu'")
def add(
    x: Any,
    other: Any,
    *,
    activation: str | None = None,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """``x + other``, optionally with relu, rounded once.

    Parameters
    ----------
    x, other : array of float32 or bfloat16, of the same shape
    activation : None or "relu"
    out : ndarray of the same dtype and shape, optional
        As for `relu`; may be x or other.
    dtype : None or "bfloat16"
        As for `relu`.

    Returns
    -------
    ndarray of the dtype and shape of x

    Raises
    ------
    TypeError, ValueError
        As for `relu`, or the activation is unknown.
    """
    kind = "add" if relu_or_none(activation) is None else "add_relu"
    bits = holds_bits(dtype)
    source, addend = float_operand("x", x, bits), float_operand("other", other, bits)
    return _core.elementwise(kind, source, addend, out)


@instead(**ARRAYS, **IN_PLACE, training="a call where it trains alone")
def dropout(
    x: Any,
    p: float,
    *,
    seed: int,
    offset: int = 0,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """Zero with probability p, otherwise ``x / (1 - p)``.

    The mask depends on seed, offset and the position of the element in memory, but not on the dtype
    or the number of threads. The backward pass is the same call on dy.

    Parameters
    ----------
    x : array of float32 or bfloat16, any shape
    p : float
        In [0, 1]; rounded to a multiple of 2**-32.
    seed, offset : int
        In [0, 2**64). Each pair has its own mask: use another offset in each step and layer.
    out : ndarray, optional
        As for `relu`; may be x.
    dtype : None or "bfloat16"
        As for `relu`.

    Returns
    -------
    ndarray of the dtype and shape of x

    Raises
    ------
    TypeError, ValueError
        As for `relu`, or a number is out of range.

    Notes
    -----
    Philox 4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC11).

    Examples
    --------
    >>> x = np.ones((4, 100), np.float32)
    >>> y = dlprim.dropout(x, 0.2, seed=1, offset=0)
    >>> dx = dlprim.dropout(np.ones_like(y), 0.2, seed=1, offset=0)  # the same mask
    >>> bool(((y == 0) == (dx == 0)).all())
    True
    """
    p = fraction("p", p)
    seed, offset = integer("seed", seed, 0, _SEEDS), integer("offset", offset, 0, _SEEDS)
    source = float_operand("x", x, holds_bits(dtype))
    threshold = round(math.ldexp(p, 32))
    scale = 0.0 if threshold == _WORDS else 1 / (1 - p)
    return _core.dropout(source, out, seed, offset, threshold, scale)


def stop_gradient(x: Any) -> Any:
    """x, as a constant for gradients in traced functions and modules.

    ``x + stop_gradient(f(x) - x)`` is f(x) with the gradient of x: a straight-through estimator.

    Parameters
    ----------
    x : array, or a number

    Returns
    -------
    array, or the number
        x itself where nothing is traced.

    Raises
    ------
    TypeError
        x is neither an array nor a number.

    Notes
    -----
    Source: arXiv 1308.3432, section 3.3, for the estimator.
    """
    if not isinstance(x, Traced | int | float) and not hasattr(x, "dtype"):
        raise TypeError(f"x is of type {type(x).__name__}, expected an array or a number")
    return x.called("stop_gradient", (x,), {}) if isinstance(x, Traced) else x
