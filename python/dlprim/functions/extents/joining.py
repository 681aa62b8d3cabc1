"""Arrays behind each other along an axis, and an array in parts: each is the other's gradient."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim.arguments.arrays import Array, result_array
from dlprim.arguments.floats import (
    bits_of,
    holds_bits,
    plain_view,
    type_of,
)
from dlprim.arguments.instead import instead
from dlprim.arguments.scalars import integer, shown


@instead(tensors="arrays", dim="axis")
def concat(
    arrays: Sequence[Any],
    axis: int = 0,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """Arrays joined along an axis. The gradient is `split` with their sizes.

    Parameters
    ----------
    arrays : sequence of arrays of float32 or bfloat16
        At least one, all of one dtype and, except along the axis, of one shape. Need not be
        contiguous.
    axis : int
    out : ndarray of the same dtype, the shape of the result, optional
        Written and returned. Must be C-contiguous and share no memory with the arrays.
    dtype : None or "bfloat16"
        "bfloat16" treats uint16 arrays as the bits of bfloat16 values; the result is then uint16
        too.

    Returns
    -------
    ndarray of the same dtype
        Always a copy.

    Raises
    ------
    TypeError, ValueError
        arrays is not a sequence or is empty, an array differs from the first in dtype or shape,
        there is no such axis, or `out` does not fit the result.

    Examples
    --------
    >>> x = np.ones((2, 3, 5), np.float32)
    >>> joined = dlprim.concat([x, x[:, :1]], axis=1)
    >>> [it.shape for it in dlprim.split(joined, [3, 1], axis=1)]
    [(2, 3, 5), (2, 1, 5)]
    """
    if not isinstance(arrays, Sequence) or isinstance(arrays, str | bytes | bytearray):
        raise TypeError(f"arrays is {shown(arrays)}, expected a list or tuple of arrays")
    if not arrays:
        raise ValueError("arrays is empty, expected at least one array")
    bits = holds_bits(dtype)
    parts = [plain_view(f"arrays[{place}]", it, bits) for place, it in enumerate(arrays)]
    first = parts[0]
    place = _place(axis, first.ndim, "arrays[0]")
    for number, it in enumerate(parts):
        if type_of(it) != type_of(first):
            raise TypeError(
                f"arrays[{number}] has dtype {it.dtype}, expected {first.dtype} as arrays[0] has"
            )
        if _others(it.shape, place) != _others(first.shape, place) or it.ndim != first.ndim:
            raise ValueError(
                f"arrays[{number}] has shape {it.shape}, expected {first.shape} as arrays[0] has, "
                f"but for axis {place}"
            )
    total = sum(it.shape[place] for it in parts)
    shape = (*first.shape[:place], total, *first.shape[place + 1 :])
    named = {f"arrays[{number}]": it for number, it in enumerate(parts)}
    dst = result_array(out, shape, named, first.dtype)
    np.concatenate([bits_of(it) for it in parts], place, bits_of(dst))
    return dst


@instead(dim="axis", tensor="x", split_size_or_sections="sizes")
def split(
    x: Any, sizes: int | Sequence[int], axis: int = 0, *, dtype: npt.DTypeLike | None = None
) -> list[Array]:
    """x split along an axis, as views. The gradient is `concat` of their gradients.

    Parameters
    ----------
    x : array of float32 or bfloat16
    sizes : int or sequence of int
        An integer is the size of every part, the last of which may be smaller, as in `torch.split`.
        A sequence has the size of each part, which add up to the axis.
    axis : int
    dtype : None or "bfloat16"
        "bfloat16" treats a uint16 x as the bits of bfloat16 values.

    Returns
    -------
    list of ndarray
        Views: writing to them writes to x. One empty view if the axis is empty and sizes is an
        integer.

    Raises
    ------
    TypeError, ValueError
        x has the wrong dtype or no such axis, or sizes are not integers or do not add up to the
        axis.
    """
    whole = plain_view("x", x, holds_bits(dtype))
    place = _place(axis, whole.ndim, "x")
    extent = whole.shape[place]
    if isinstance(sizes, Sequence | np.ndarray) and not isinstance(sizes, str | bytes | bytearray):
        lengths = [integer(f"sizes[{number}]", it, 0) for number, it in enumerate(sizes)]
        if sum(lengths) != extent:
            raise ValueError(
                f"sizes add up to {sum(lengths)}, expected the {extent} elements of x along axis "
                f"{place}"
            )
        begins = np.cumsum([0, *lengths]).tolist()
    else:
        step = integer("sizes", sizes, 1)
        begins = [*range(0, extent, step), extent] if extent else [0, 0]
    lead = (slice(None),) * place
    return [whole[(*lead, slice(begin, end))] for begin, end in pairwise(begins)]


def _place(axis: Any, ndim: int, name: str) -> int:
    if ndim == 0:
        raise ValueError(f"{name} has no axis, expected at least one")
    place = integer("axis", axis, -ndim, ndim)
    return place % ndim


def _others(shape: tuple[int, ...], place: int) -> tuple[int, ...]:
    return shape[:place] + shape[place + 1 :]
