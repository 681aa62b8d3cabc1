"""Embeddings: rows of a table by index, and gradients back into the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.arrays import Array, places_of, result_array
from dlprim.arguments.floats import float_operand, holds_bits, type_of
from dlprim.arguments.instead import instead
from dlprim.arguments.scalars import integer


@instead(input="indices", weight="w")
def embedding(
    indices: Any, w: Any, *, out: Array | None = None, dtype: npt.DTypeLike | None = None
) -> Array:
    """Rows of w, selected by index.

    Parameters
    ----------
    indices : array of int64 or other integers, any shape
        In [0, V).
    w : array of float32 or bfloat16, (V, K)
        The table.
    out : ndarray of the dtype of w, indices.shape + (K,), optional
        Written and returned. Must be C-contiguous and share no memory with an operand.
    dtype : None or "bfloat16"
        "bfloat16" treats a uint16 w as the bits of bfloat16 values; the result is then uint16 too.

    Returns
    -------
    ndarray of the dtype of w, indices.shape + (K,)

    Raises
    ------
    TypeError, ValueError
        An array has the wrong dtype or shape, or an index is out of range.

    Examples
    --------
    >>> table = np.ones((100, 16), np.float32)
    >>> words = np.array([[3, 14, 15], [92, 6, 5]])
    >>> y = dlprim.embedding(words, table)
    >>> y.shape
    (2, 3, 16)
    >>> dlprim.embedding_backward(np.ones_like(y), words, 100).shape
    (100, 16)
    """
    places = places_of("indices", indices)
    table = float_operand("w", w, holds_bits(dtype))
    if table.ndim != 2:
        raise ValueError(f"w has shape {table.shape}, expected (V, K)")
    shape = (*places.shape, table.shape[1])
    result = result_array(out, shape, {"indices": places, "w": table}, table.dtype)
    _core.gather_rows(places.reshape(-1), table, result)
    return result


def embedding_backward(
    dy: Any,
    indices: Any,
    rows: int,
    *,
    out: npt.NDArray[np.float32] | None = None,
    dtype: npt.DTypeLike | None = None,
) -> npt.NDArray[np.float32]:
    """The gradient with respect to the table w of `embedding`.

    Parameters
    ----------
    dy : array of float32 or bfloat16, indices.shape + (K,)
        Gradient of the loss with respect to the result of `embedding`.
    indices : array of int64 or other integers, any shape
    rows : int
        V, the number of rows of the table.
    out : ndarray of float32, (V, K), optional
        Written and returned. Must be C-contiguous and share no memory with an operand.
    dtype : None or "bfloat16"
        "bfloat16" treats a uint16 dy as the bits of bfloat16 values.

    Returns
    -------
    ndarray of float32, (V, K)
        Rows without an index are zero. Each row is summed in the order of the indices.

    Raises
    ------
    TypeError, ValueError
        As for `embedding`.
    """
    places = places_of("indices", indices)
    gradient = float_operand("dy", dy, holds_bits(dtype))
    if gradient.ndim != places.ndim + 1 or gradient.shape[:-1] != places.shape:
        raise ValueError(
            f"dy has shape {gradient.shape}, expected the shape of indices, {places.shape}, "
            "and K behind it"
        )
    shape = (integer("rows", rows, 0), gradient.shape[-1])
    operands = {"indices": places, "dy": gradient}
    result = result_array(out, shape, operands)
    _core.embedding_backward(places.reshape(-1), type_of(gradient), gradient, result)
    return result
