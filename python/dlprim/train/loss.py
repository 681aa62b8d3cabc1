"""Softmax cross-entropy: a classifier's loss and the gradient that starts its backward pass.

Both come from one exponential per output. Subtracting the maximum of its row first leaves softmax
unchanged and keeps the exponential within range for every finite output.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def softmax_cross_entropy(
    dst: NDArray[np.float32], labels: NDArray[np.int64]
) -> tuple[float, NDArray[np.float32]]:
    """Returns (loss, diff_dst): the loss summed over the samples, and the gradient of its mean.

    A sum, because minibatches of unequal size can then be added up; it is taken in float64.

    Args:
        dst: float32 (N, K) unnormalised log-probabilities; not modified.
        labels: int64 (N,) with values in [0, K).

    Returns:
        The loss in nats, and diff_dst, float32 (N, K): (softmax(dst) - one_hot(labels)) / N.
        If dst holds a NaN or an infinity, the loss is not finite.
    """
    samples = np.arange(labels.size)
    diff_dst = dst - dst.max(axis=1, keepdims=True)
    shifted_target = diff_dst[samples, labels]
    np.exp(diff_dst, out=diff_dst)
    total = diff_dst.sum(axis=1)
    loss = float(np.sum(np.log(total) - shifted_target, dtype=np.float64))
    diff_dst /= total[:, np.newaxis]
    diff_dst[samples, labels] -= 1
    diff_dst /= labels.size
    return loss, diff_dst
