"""Layers on single elements, for where no other pass takes them along: relu, sums, dropout.

They work on packed and plain arrays alike, of any shape: one read of each operand, one write.
"""

import math
from typing import Any

from dlprim import _core
from dlprim.arguments.arrays import Array
from dlprim.arguments.floats import float_operand
from dlprim.arguments.scalars import flag, fraction, integer

_WORDS = 2**32
_SEEDS = 2**64


def relu(src: Any, *, out: Array | None = None) -> Array:
    """src where it is not negative, else 0; NaN stays.

    Parameters
    ----------
    src : array of float32 or bfloat16, any shape
    out : ndarray of the same dtype and shape, optional
        Written and returned; C-contiguous; may be src.

    TypeError or ValueError: an array is of another dtype or shape, or `out` overlaps src in part.
    """
    return _core.elementwise("relu", float_operand("src", src), None, out)


def relu_backward(diff_dst: Any, dst: Any, *, out: Array | None = None) -> Array:
    """The gradient in front of relu: diff_dst, 0 where dst <= 0.

    Parameters
    ----------
    diff_dst, dst : array of float32 or bfloat16, of the same shape
        dst is what `relu` returned; NaN counts as let through.
    out
        As for `relu`, with its errors; may be diff_dst or dst.
    """
    gradient, result = float_operand("diff_dst", diff_dst), float_operand("dst", dst)
    return _core.elementwise("relu_backward", gradient, result, out)


def add(src: Any, other: Any, *, relu: bool = False, out: Array | None = None) -> Array:
    """``src + other``, or relu of that, rounded once.

    Parameters
    ----------
    src, other : array of float32 or bfloat16, of the same shape
    out
        As for `relu`, with its errors; may be src or other.
    """
    kind = "add_relu" if flag("relu", relu) else "add"
    source, addend = float_operand("src", src), float_operand("other", other)
    return _core.elementwise(kind, source, addend, out)


def dropout(src: Any, p: float, *, seed: int, offset: int = 0, out: Array | None = None) -> Array:
    """Zeros with probability p, else ``src / (1 - p)``.

    The mask is a function of seed, offset and the place of the element in memory, the same for
    any dtype and number of threads. The backward pass is the same call on diff_dst.

    Parameters
    ----------
    src : array of float32 or bfloat16, any shape
    p : float
        In [0, 1]; taken to a multiple of 2**-32.
    seed, offset : int
        In [0, 2**64). Each pair has a mask of its own: use another offset in each step and layer.
    out : ndarray, optional
        As for `relu`; may be src.

    Errors: as `relu` does; a number is outside its range.
    Source: Philox 4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC11).
    """
    p = fraction("p", p)
    seed, offset = integer("seed", seed, 0, _SEEDS), integer("offset", offset, 0, _SEEDS)
    source = float_operand("src", src)
    threshold = round(math.ldexp(p, 32))
    scale = 0.0 if threshold == _WORDS else 1 / (1 - p)
    return _core.dropout(source, out, seed, offset, threshold, scale)
