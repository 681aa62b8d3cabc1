"""Softmax cross-entropy: the loss of a classifier and its gradient, from one reading."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.arrays import Array, array_of, require_shape, result_array
from dlprim.arguments.floats import float_operand, holds_bits, type_of
from dlprim.arguments.scalars import flag, integer


class LossAndGradient(NamedTuple):
    """What `softmax_cross_entropy` returns.

    Attributes
    ----------
    loss : float
        In nats; NaN where no row counts, as in PyTorch.
    dx : ndarray of the dtype of logits, (N, K), or None
        The gradient of the loss with respect to logits; None with gradient=False.
    """

    loss: float
    dx: Array | None


def softmax_cross_entropy(
    logits: Any,
    targets: Any,
    *,
    ignore_index: int = -100,
    gradient: bool = True,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> LossAndGradient:
    """The mean of ``-log(softmax(logits)[target])`` and its gradient, in one pass.

    Parameters
    ----------
    logits : array of float32 or bfloat16, (N, K)
        Computed with in float32.
    targets : array of int64, (N,)
        In [0, K), or ignore_index.
    ignore_index : int
        Rows of this target count neither in the loss nor in the gradient.
    gradient : bool
        False computes the loss only.
    out : ndarray of the dtype of logits, (N, K), optional
        Receives the gradient; C-contiguous; may be logits itself.
    dtype : None or "bfloat16"
        "bfloat16" says of uint16 logits that they hold the bits of bfloat16 values; the gradient is
        such an array then.

    Returns
    -------
    LossAndGradient
        ``(loss, dx)``; dx is None with gradient=False.

    Raises
    ------
    TypeError, ValueError
        An array is of another dtype or shape, a target outside its range, or K is 0.
    """
    ignored = integer("ignore_index", ignore_index, -(2**63))
    values = float_operand("logits", logits, holds_bits(dtype))
    if values.ndim != 2 or values.shape[1] == 0:
        raise ValueError(f"logits has shape {values.shape}, expected (N, K) with K >= 1")
    labels = array_of("targets", targets, np.int64)
    require_shape("targets", labels, values.shape[:1], f"logits has shape {values.shape}")
    result = None
    if flag("gradient", gradient):
        in_place = out is not None and out is logits
        operands = {"targets": labels} if in_place else {"logits": values, "targets": labels}
        result = result_array(out, values.shape, operands, values.dtype)
    loss = _core.softmax_cross_entropy(values, type_of(values), labels, ignored, result)
    return LossAndGradient(loss, result)
