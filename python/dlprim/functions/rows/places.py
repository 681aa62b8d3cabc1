"""Where the largest or smallest element along an axis lies."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim.arguments.arrays import Array, FloatArray, contiguous, result_array
from dlprim.arguments.floats import (
    holds_bits,
    plain_operand,
)
from dlprim.arguments.instead import instead
from dlprim.functions.rows.axes import LONG, axes_of, kept_shape, require_elements
from dlprim.functions.rows.row_programs import run

Places = npt.NDArray[np.int64]


@instead(input="x", dim="axis", keepdim="keepdims, which there is not: index with None")
def argmax(
    x: Any,
    axis: int | None = None,
    keepdims: bool = False,
    *,
    out: Places | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Places:
    """The index of the largest element along an axis, the first of equal ones.

    Parameters
    ----------
    x : array of float32 or bfloat16, any shape
    axis : int, optional
        Of x. Any axis but the last one costs a copy. By default, the index is that in
        x.reshape(-1).
    keepdims : bool
        Whether the axis is kept, with one element.
    out : ndarray of int64, of the shape of the result, optional
        Written and returned. Must be C-contiguous and share no memory with x.
    dtype : None or "bfloat16"
        "bfloat16" treats uint16 arrays as the bits of bfloat16 values.

    Returns
    -------
    ndarray of int64
        The index of the first NaN if there is one, as in NumPy.

    Raises
    ------
    TypeError, ValueError
        An array has the wrong dtype or shape, x has no such axis, or the axis is empty.

    Examples
    --------
    >>> dlprim.argmax(np.float32([[1, 3, 2], [5, 4, 4]]), 1)
    array([1, 0])
    """
    return _result("place_of_max", x, (axis, keepdims), out, dtype)


@instead(input="x", dim="axis", keepdim="keepdims, which there is not: index with None")
def argmin(
    x: Any,
    axis: int | None = None,
    keepdims: bool = False,
    *,
    out: Places | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Places:
    """The index of the smallest element along an axis, the first of equal ones.

    Parameters
    ----------
    x : array of float32 or bfloat16, any shape
    axis : int, optional
    keepdims : bool
    out : ndarray of int64, of the shape of the result, optional
    dtype : None or "bfloat16"
        All as for `argmax`.

    Returns
    -------
    ndarray of int64
        As from `argmax`.

    Raises
    ------
    TypeError, ValueError
        As for `argmax`.
    """
    return _result("place_of_min", x, (axis, keepdims), out, dtype)


def _result(
    program: str, x: Any, how: tuple[Any, Any], out: Places | None, dtype: npt.DTypeLike | None
) -> Places:
    """Of the arguments (axis, keepdims)."""
    src = np.asarray(plain_operand("x", x, dtype is not None and holds_bits(dtype)))
    axis, keepdims = how
    if isinstance(axis, tuple | list):
        raise TypeError(f"axis is {axis!r}, expected an integer or None")
    axes = axes_of(axis, src.ndim)
    shape = kept_shape(src.shape, axes, keepdims)
    require_elements(src, axes)
    dst = result_array(out, shape, {"x": src}, np.int64)
    if dst.size:
        dst[...] = _places(program, _matrix(src, axes)).reshape(shape)
    return dst


def _matrix(src: Array, axes: tuple[int, ...]) -> Array:
    """Rows of what lies along the axes."""
    if len(axes) != 1:
        return src.reshape(1, -1)
    (axis,) = axes
    extent, inner = src.shape[axis], math.prod(src.shape[axis + 1 :])
    if inner == 1:
        return src.reshape(-1, extent)
    blocks = src.reshape(-1, extent, inner)
    if len(blocks) == 1:
        return contiguous(blocks[0].T)
    return np.ascontiguousarray(blocks.swapaxes(1, 2)).reshape(-1, extent)


def _places(program: str, matrix: Array) -> Places:
    rows, columns = matrix.shape
    if columns >= 2 * LONG:
        return np.array([_place(program, row) for row in matrix], np.int64)
    found = np.empty(rows, np.float32)
    run(program, rows, columns, (matrix, _counting(columns), found))
    return found.astype(np.int64)


def _place(program: str, row: Array) -> int:
    """In a long row: that of the extreme of its parts' extremes."""
    whole = row[: row.size // LONG * LONG].reshape(-1, LONG)
    rest = row[whole.size :].reshape(1, -1)
    parts = [it for it in (whole, rest) if it.size]
    inside = [_places(program, it) for it in parts]
    pairs = zip(parts, inside, strict=True)
    extremes = np.concatenate([np.take_along_axis(it, at[:, None], 1)[:, 0] for it, at in pairs])
    part = int(_places(program, extremes.reshape(1, -1))[0])
    return part * LONG + int(np.concatenate(inside)[part])


@lru_cache(maxsize=8)
def _counting(columns: int) -> FloatArray:
    array = np.arange(columns, dtype=np.float32)
    array.flags.writeable = False
    return array
