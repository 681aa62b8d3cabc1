"""Batch normalisation folded into the convolution in front of it, for inference."""

from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim.arguments.arrays import FloatArray, aligned, array_of
from dlprim.arguments.scalars import real


def fold_batch_norm(
    w: Any,
    b: Any,
    *,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    epsilon: float = 1e-5,
) -> tuple[FloatArray, FloatArray]:
    """Weights and bias of a convolution that includes the batch normalisation behind it.

    Inference only: ``conv(x, w, b)`` normalised with running statistics is one convolution.

    Parameters
    ----------
    w : array of float32, (K, C/groups, R, S) or (K, C)
        Plain weights of the convolution or linear layer.
    b : array of float32, (K,), or None
        Its bias.
    weight, bias : array of float32, (K,), or None
        Of the batch normalisation: ones and zeros where None.
    running_mean, running_var : array of float32, (K,)
    epsilon : float

    Returns
    -------
    w, b : ndarray of float32
        Computed in float64, rounded once.

    TypeError or ValueError: an array is of another dtype, its length is not K, or a variance or
    epsilon is negative.
    """
    weights = array_of("w", w)
    if weights.ndim < 2:
        raise ValueError(f"w has shape {weights.shape}, expected (K, C/groups, R, S) or (K, C)")
    real("epsilon", epsilon, 0)
    K = weights.shape[0]

    def by_channel(name: str, value: Any, otherwise: float) -> npt.NDArray[np.float64]:
        if value is None:
            return np.full(K, otherwise)
        array = array_of(name, value)
        if array.shape != (K,):
            raise ValueError(f"{name} has shape {array.shape}, expected ({K},)")
        return array.astype(np.float64)

    var = by_channel("running_var", running_var, 1)
    if np.any(var < 0) or np.any(var + epsilon == 0):
        raise ValueError(
            f"running_var is {var.min()} in a channel and epsilon {epsilon}, expected variances of "
            "at least 0 and a sum above 0"
        )
    scale = by_channel("weight", weight, 1) / np.sqrt(var + epsilon)
    offset = by_channel("b", b, 0) - by_channel("running_mean", running_mean, 0)
    folded = aligned(weights.shape, np.float32)
    folded[...] = weights * scale.reshape(-1, *[1] * (weights.ndim - 1))
    return folded, (offset * scale + by_channel("bias", bias, 0)).astype(np.float32)
