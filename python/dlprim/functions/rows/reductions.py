"""Sums, means and extremes along any axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.arrays import Array, FloatArray, aligned, result_array
from dlprim.arguments.floats import (
    bfloat16_dtype,
    holds_bits,
    plain_operand,
    widened,
)
from dlprim.arguments.instead import AXES, instead
from dlprim.functions.rows.axes import (
    LONG,
    axes_of,
    blocks_of,
    joined,
    kept_shape,
    require_elements,
)
from dlprim.functions.rows.row_programs import run

_FEW = 16  # rows that leave threads without work, unless long ones are cut
_SLAB = 1 << 12  # elements from which on a call for each slab is cheaper than turning it
_HIGH = 1 << 12  # rows of a column that are added up one by one, and 16 parts of them at a time
_FOLDED = 8  # tensors of which a program makes one


@instead(**AXES)
def reduce_sum(
    x: Any,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """The sum along axes; its gradient is dy, broadcast.

    The first and last axes need no copy, nor do others in front of large extents; otherwise NumPy
    moves the axes to the end.

    Parameters
    ----------
    x : array of float32 or bfloat16, any shape
    axis : int or tuple of int, optional
        All axes by default; none for ().
    keepdims : bool
        Whether axes are kept, with one element.
    out : ndarray of the dtype of x and the shape of the result, optional
        Written and returned. Must be C-contiguous and share no memory with x.
    dtype : None or "bfloat16"
        "bfloat16" treats uint16 arrays as the bits of bfloat16 values; the result is then uint16
        too.

    Returns
    -------
    ndarray of the dtype of x
        Computed in float32, with compensation where sums are long, and rounded once. The sum of
        nothing is 0. The bits do not depend on the number of threads.

    Raises
    ------
    TypeError, ValueError
        An array has the wrong dtype or shape, x has no such axis, or an axis is repeated.
    """
    return _result(_SUM, x, (axis, keepdims), out, dtype)


@instead(**AXES)
def reduce_mean(
    x: Any,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """The mean along axes; its gradient is dy, broadcast, divided by the number of elements.

    Parameters
    ----------
    x : array of float32 or bfloat16, any shape
    axis : int or tuple of int, optional
    keepdims : bool
    out : ndarray of the dtype of x and the shape of the result, optional
    dtype : None or "bfloat16"
        All as for `reduce_sum`.

    Returns
    -------
    ndarray of the dtype of x
        `reduce_sum` divided by the number of elements, rounded once. The mean of nothing is NaN.

    Raises
    ------
    TypeError, ValueError
        As for `reduce_sum`.

    Examples
    --------
    >>> dlprim.reduce_mean(np.ones((8, 20, 64), np.float32), (0, -1), keepdims=True).shape
    (1, 20, 1)
    """
    return _result(_MEAN, x, (axis, keepdims), out, dtype)


@instead(**AXES)
def reduce_max(
    x: Any,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """The largest element along axes.

    Parameters
    ----------
    x : array of float32 or bfloat16, any shape
    axis : int or tuple of int, optional
        All axes by default. None of them may be empty.
    keepdims : bool
    out : ndarray of the dtype of x and the shape of the result, optional
    dtype : None or "bfloat16"
        All as for `reduce_sum`.

    Returns
    -------
    ndarray of the dtype of x
        Exact; NaN if there is one among the elements.

    Raises
    ------
    TypeError, ValueError
        As for `reduce_sum`; or an axis is empty.
    """
    return _result(_MAX, x, (axis, keepdims), out, dtype)


@instead(**AXES)
def reduce_min(
    x: Any,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """The smallest element along axes.

    Parameters
    ----------
    x : array of float32 or bfloat16, any shape
    axis : int or tuple of int, optional
    keepdims : bool
    out : ndarray of the dtype of x and the shape of the result, optional
    dtype : None or "bfloat16"
        All as for `reduce_max`.

    Returns
    -------
    ndarray of the dtype of x
        As from `reduce_max`.

    Raises
    ------
    TypeError, ValueError
        As for `reduce_max`.
    """
    return _result(_MIN, x, (axis, keepdims), out, dtype)


class _Kind(NamedTuple):
    """A reduction: its program for rows, and what makes one row of a matrix of several."""

    rows: str
    columns: Callable[[Array], Array]
    takes_nothing: bool = True
    is_mean: bool = False


def _sum_of_columns(matrix: Array) -> FloatArray:
    rows, columns = matrix.shape
    parts = -(-rows // _HIGH)
    found: FloatArray = aligned((parts, columns), np.float32, zeros=True)
    for part in range(parts):
        some = matrix[part * _HIGH : (part + 1) * _HIGH]
        run("sum_of_columns", len(some), columns, (some, found[part]))
    return found[0] if parts == 1 else _sum_of_columns(found)


def _folded(program: str) -> Callable[[Array], Array]:
    """Of rows, as many as programs take tensors at a time; what is taken twice does no harm."""

    def fold(matrix: Array) -> Array:
        while len(matrix) > 1:
            rows = -(-len(matrix) // _FOLDED)
            begins = [min(it * rows, len(matrix) - rows) for it in range(_FOLDED)]
            found = aligned((rows, matrix.shape[1]), matrix.dtype)
            run(program, 1, found.size, (*(matrix[it : it + rows] for it in begins), found))
            matrix = found
        row: Array = matrix[0]
        return row

    return fold


_SUM = _Kind("sum_of_rows", _sum_of_columns)
_MEAN = _SUM._replace(is_mean=True)
_MAX = _Kind("max_of_rows", _folded("max_of_tensors"), takes_nothing=False)
_MIN = _Kind("min_of_rows", _folded("min_of_tensors"), takes_nothing=False)


def _result(
    kind: _Kind, x: Any, how: tuple[Any, Any], out: Array | None, dtype: npt.DTypeLike | None
) -> Array:
    """Of the arguments (axis, keepdims)."""
    src = np.asarray(plain_operand("x", x, dtype is not None and holds_bits(dtype)))
    axes = axes_of(how[0], src.ndim)
    shape = kept_shape(src.shape, axes, how[1])
    if not kind.takes_nothing:
        require_elements(src, axes)
    dst = result_array(out, shape, {"x": src}, src.dtype)
    if not dst.size:
        return dst
    found = _reduced(kind, src, axes) if src.size else np.zeros(shape, np.float32)
    if kind.is_mean:
        with np.errstate(invalid="ignore"):
            count = np.float32(math.prod(src.shape[it] for it in axes))
            found = np.asarray(widened(found) / count)
    if found.dtype == dst.dtype:
        dst[...] = found.reshape(shape)
    else:
        _core.round_to_bfloat16(found.reshape(shape), dst.view(bfloat16_dtype()))
    return dst


def _reduced(kind: _Kind, src: Array, axes: tuple[int, ...]) -> Array:
    """Of x or in float32, without the axes."""
    array, blocks = src, blocks_of(src.shape, axes)
    while True:
        place = next((it for it in reversed(range(len(blocks))) if blocks[it].is_reduced), None)
        if place is None:
            return array
        sizes = [it.size for it in blocks]
        shape = math.prod(sizes[:place]), sizes[place], math.prod(sizes[place + 1 :])
        array = _without(kind, array.reshape(shape))
        blocks = joined(blocks[:place] + blocks[place + 1 :])


def _without(kind: _Kind, array: Array) -> Array:
    """An array of three axes without the middle one."""
    outer, extent, inner = array.shape
    if inner == 1:
        return _of_rows(kind.rows, array.reshape(outer, extent))
    if outer == 1:
        return kind.columns(array[0])
    if extent * inner >= _SLAB:
        return np.stack([kind.columns(slab) for slab in array])
    turned = np.ascontiguousarray(array.swapaxes(1, 2))
    return _of_rows(kind.rows, turned.reshape(outer * inner, extent))


def _of_rows(program: str, matrix: Array) -> FloatArray:
    rows, columns = matrix.shape
    if columns < 2 * LONG or rows >= _FEW:
        found: FloatArray = aligned((rows,), np.float32)
        run(program, rows, columns, (matrix, found))
        return found
    whole, rest = divmod(columns, LONG)
    parts: FloatArray = aligned((rows, whole + (rest > 0)), np.float32)
    for row, to in zip(matrix, parts, strict=True):
        run(program, whole, LONG, (row[: whole * LONG], to[:whole]))
        run(program, min(rest, 1), rest, (row[whole * LONG :], to[whole:]))
    return _of_rows(program, parts)
