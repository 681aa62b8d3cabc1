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
    """Arrays one behind the other along an axis. The gradient is `split` with their sizes.

    Parameters
    ----------
    arrays : sequence of arrays of float32 or bfloat16
        At least one, all of one dtype, and of one shape but for the axis. Need not be contiguous.
    axis : int
    out : ndarray of the same dtype, the shape of the result, optional
        Written and returned; C-contiguous, and shares no memory with the arrays.
    dtype : None or "bfloat16"
        "bfloat16" says of uint16 arrays that they hold the bits of bfloat16 values; the result is
        such an array then.

    Returns
    -------
    ndarray of the same dtype
        Always a copy.

    Raises
    ------
    TypeError, ValueError
        arrays is no sequence, or empty, an array has another dtype or shape than the first, there
        is no such axis, or `out` cannot take the result.
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
    """x in parts along an axis, as views of it. The gradient is `concat` of theirs.

    Parameters
    ----------
    x : array of float32 or bfloat16
    sizes : int or sequence of int
        Of every part, the last of which may be smaller, as in `torch.split`; or of each, which make
        up the axis together.
    axis : int
    dtype : None or "bfloat16"
        "bfloat16" says of a uint16 x that it holds the bits of bfloat16 values.

    Returns
    -------
    list of ndarray
        Views: what is written to them is written to x. One of no elements where the axis is empty
        and sizes an integer.

    Raises
    ------
    TypeError, ValueError
        x is of another dtype, there is no such axis, or sizes are no integers or do not make up the
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
