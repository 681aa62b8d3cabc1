"""Batch normalisation folded into the convolution in front of it, for inference."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlprim.arguments.arrays import FloatArray, aligned, array_of
from dlprim.arguments.instead import instead
from dlprim.arguments.scalars import real


class Folded(NamedTuple):
    """What `fold_batch_norm` returns: weights and bias of one convolution or linear layer.

    Attributes
    ----------
    w : ndarray of float32, the shape of the w that was given
    bias : ndarray of float32, (K,)
    """

    w: FloatArray
    bias: FloatArray


@instead(b="bias", weight="norm_weight", epsilon="eps")
def fold_batch_norm(
    w: Any,
    bias: Any = None,
    *,
    running_mean: Any,
    running_var: Any,
    norm_weight: Any = None,
    norm_bias: Any = None,
    eps: float = 1e-5,
) -> Folded:
    """Weights and bias of a convolution that includes the batch normalisation after it.

    For inference: ``conv(x, w, bias)`` normalised with running statistics is one convolution.

    Parameters
    ----------
    w : array of float32, (K, C/groups, R, S) or (K, C)
        Plain weights of the convolution or linear layer.
    bias : array of float32, (K,), optional
        Its bias.
    running_mean, running_var : array of float32, (K,), or None
        Of the batch normalisation; zeros and ones if None.
    norm_weight, norm_bias : array of float32, (K,), optional
        Its weight and bias; ones and zeros if None.
    eps : float
        Added to the variance.

    Returns
    -------
    Folded
        ``(w, bias)``, computed in float64 and rounded once.

    Raises
    ------
    TypeError, ValueError
        An array has the wrong dtype, its length is not K, or a variance or eps is negative.
    """
    weights = array_of("w", w)
    if weights.ndim < 2:
        raise ValueError(f"w has shape {weights.shape}, expected (K, C/groups, R, S) or (K, C)")
    real("eps", eps, 0)
    K = weights.shape[0]

    def by_channel(name: str, value: Any, otherwise: float) -> npt.NDArray[np.float64]:
        if value is None:
            return np.full(K, otherwise)
        array = array_of(name, value)
        if array.shape != (K,):
            raise ValueError(f"{name} has shape {array.shape}, expected ({K},)")
        return array.astype(np.float64)

    var = by_channel("running_var", running_var, 1)
    if np.any(var < 0) or np.any(var + eps == 0):
        raise ValueError(
            f"running_var is {var.min()} in a channel and eps {eps}, expected variances of "
            "at least 0 and a sum above 0"
        )
    scale = by_channel("norm_weight", norm_weight, 1) / np.sqrt(var + eps)
    offset = by_channel("bias", bias, 0) - by_channel("running_mean", running_mean, 0)
    folded = aligned(weights.shape, np.float32)
    folded[...] = weights * scale.reshape(-1, *[1] * (weights.ndim - 1))
    shifted = offset * scale + by_channel("norm_bias", norm_bias, 0)
    return Folded(folded, shifted.astype(np.float32))
