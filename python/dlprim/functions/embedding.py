"""Embeddings: rows of a table by index, and gradients back into the table."""

from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.arrays import Array, array_of, result_array
from dlprim.arguments.floats import float_operand, type_of


def embedding(indices: Any, weights: Any, *, out: Array | None = None) -> Array:
    """Rows of weights by index.

    Parameters
    ----------
    indices : array of int64, any shape
        In [0, V).
    weights : array of float32 or bfloat16, (V, K)
    out : ndarray of the dtype of weights, indices.shape + (K,), optional
        Written and returned; C-contiguous, apart from the operands.

    Returns: ndarray of the dtype of weights, indices.shape + (K,).
    TypeError or ValueError: an array is of another dtype or shape, or an index outside its range.
    """
    places = array_of("indices", indices, np.int64)
    table = float_operand("weights", weights)
    if table.ndim != 2:
        raise ValueError(f"weights has shape {table.shape}, expected (V, K)")
    shape = (*places.shape, table.shape[1])
    result = result_array(out, shape, {"indices": places, "weights": table}, table.dtype)
    _core.gather_rows(places.reshape(-1), table, result)
    return result


def embedding_backward(
    diff_dst: Any, indices: Any, rows: int, *, out: npt.NDArray[np.float32] | None = None
) -> npt.NDArray[np.float32]:
    """The gradient with respect to the weights of `embedding`.

    Parameters
    ----------
    diff_dst : array of float32 or bfloat16, indices.shape + (K,)
    indices : array of int64, any shape
    rows : int
        V, of the weights.
    out : ndarray of float32, (V, K), optional
        Written and returned; C-contiguous, apart from the operands.

    Returns
    -------
    ndarray of float32, (V, K)
        Zero where no index points; the sum of a row runs in the order of the indices.

    Errors: as `embedding` does.
    """
    places = array_of("indices", indices, np.int64)
    gradient = float_operand("diff_dst", diff_dst)
    if gradient.ndim != places.ndim + 1 or gradient.shape[:-1] != places.shape:
        raise ValueError(
            f"diff_dst has shape {gradient.shape}, expected the shape of indices, {places.shape}, "
            "and K behind it"
        )
    if index(rows) < 0:
        raise ValueError(f"rows is {rows}, expected at least 0")
    shape = (index(rows), gradient.shape[-1])
    operands = {"indices": places, "diff_dst": gradient}
    result = result_array(out, shape, operands)
    _core.embedding_backward(places.reshape(-1), type_of(gradient), gradient, result)
    return result
