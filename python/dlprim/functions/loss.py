"""Softmax cross-entropy: the loss of a classifier and its gradient, from one reading."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.arrays import (
    Array,
    FloatArray,
    aligned,
    places_of,
    require_shape,
    result_array,
)
from dlprim.arguments.floats import float_operand, holds_bits, type_of, widened
from dlprim.arguments.instead import instead
from dlprim.arguments.names import one_of_names
from dlprim.arguments.scalars import flag, fraction, integer

REDUCTIONS = ("none", "mean", "sum")
_NONE, _MEAN = 0.0, "mean"  # defaults, which nothing more is asked of


class LossAndGradient(NamedTuple):
    """A loss and its gradient.

    Attributes
    ----------
    loss : float, or ndarray with reduction="none"
        In nats if it is a logarithm; NaN for a mean of nothing, as in PyTorch.
    dx : ndarray of the dtype and shape of what the loss is of, or None
        The gradient of the loss, or of the sum with reduction="none"; None with gradient=False.
    """

    loss: Any
    dx: Array | None


@instead(input="logits", target="targets")
def softmax_cross_entropy(
    logits: Any,
    targets: Any,
    *,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = _MEAN,
    label_smoothing: float = _NONE,
    gradient: bool = True,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> LossAndGradient:
    """``-log(softmax(logits)[target])`` of classes and its gradient, in one pass.

    Like `torch.nn.functional.cross_entropy` with class indices as targets. Scores of the classes
    are along the last axis, where PyTorch has them along the second of more than two axes.

    Parameters
    ----------
    logits : array of float32 or bfloat16, (..., K)
        Read as float32. (N, K), or (B, T, V) for a language model.
    targets : array of int64 or other integers, (...)
        In [0, K), or ignore_index.
    weight : array of float32 or bfloat16, (K,), optional
        Of the classes. The mean is then weighted by the weights of the targets.
    ignore_index : int
        Rows with this target count neither in the loss nor in the gradient.
    reduction : "mean", "sum" or "none"
        Over the rows that count. "none" returns the loss of each row, 0 for those that do not.
    label_smoothing : float
        In [0, 1]: the fraction of each target that is spread evenly over all classes.
    gradient : bool
        False computes the loss only.
    out : ndarray of the dtype and shape of logits, optional
        Receives the gradient. Must be C-contiguous; may be logits itself.
    dtype : None or "bfloat16"
        "bfloat16" treats uint16 arrays as the bits of bfloat16 values; the gradient is then uint16
        too.

    Returns
    -------
    LossAndGradient
        ``(loss, dx)``: a float, or an array of float32, of the shape of targets, with
        reduction="none"; dx is None with gradient=False. With "none", each row of dx is the
        gradient of its own loss: multiply by the gradient dy with respect to the losses, ``dx *
        dy[..., None]``, to get the gradient of anything computed from them.

    Raises
    ------
    TypeError, ValueError
        An array has the wrong dtype or shape, a target is out of range, K is 0, or another argument
        has an invalid value.
    """
    ignored, bits = integer("ignore_index", ignore_index, -(2**63)), holds_bits(dtype)
    values = float_operand("logits", logits, bits)
    if values.ndim < 2 or values.shape[-1] == 0:
        raise ValueError(f"logits has shape {values.shape}, expected (..., K) with K >= 1")
    labels = places_of("targets", targets)
    _require_labels(labels, values)
    terms: tuple[Any, ...] = ()
    if weight is not None or label_smoothing is not _NONE or reduction is not _MEAN:
        terms = _terms(values, weight, label_smoothing, reduction, bits)
    result = None
    if flag("gradient", gradient):
        in_place = out is not None and out is logits
        operands = {"targets": labels} if in_place else {"logits": values, "targets": labels}
        if terms:
            operands["weight"] = terms[0]
        result = result_array(out, values.shape, operands, values.dtype)
    rows = values.reshape(-1, values.shape[-1])
    diff = None if result is None else result.reshape(rows.shape)
    found = _core.softmax_cross_entropy(
        rows, type_of(values), labels.reshape(-1), ignored, diff, terms
    )
    losses = terms[-1] if terms else None
    return LossAndGradient(found if losses is None else losses.reshape(labels.shape), result)


def _require_labels(labels: Array, logits: Array) -> None:
    shape = logits.shape
    why = f"logits has shape {shape}"
    if labels.shape != shape[:-1] and labels.shape == (shape[0], *shape[2:]):
        why += " and classes along its last axis: np.moveaxis(logits, 1, -1) brings them there"
    require_shape("targets", labels, shape[:-1], why)


def _terms(
    logits: Array, weight: Any, label_smoothing: Any, reduction: Any, bits: bool
) -> tuple[Any, ...]:
    """What the core takes of these: weights, smoothing, whether it averages, losses of rows."""
    of_class: FloatArray | None = None
    if weight is not None:
        array = float_operand("weight", weight, bits)
        require_shape("weight", array, logits.shape[-1:], f"logits has shape {logits.shape}")
        of_class = widened(array)
    kind = one_of_names("reduction", reduction, REDUCTIONS)
    smoothing = fraction("label_smoothing", label_smoothing)
    losses = aligned((math.prod(logits.shape[:-1]),), np.float32) if kind == "none" else None
    return of_class, smoothing, kind == "mean", losses
