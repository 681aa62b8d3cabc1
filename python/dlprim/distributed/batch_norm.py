"""Batch normalisation with the statistics of all ranks: what one rank would take of the batch.

Each layer exchanges a few numbers per channel, forward and backward, while everybody waits: its
cost is latency, and the wait for the slowest rank at every layer. The numbers are float64 and added
up in the order of the ranks, so the bits depend on the number of ranks only, and sums of squares
lose nothing that the float32 activations had.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlprim.arguments.arrays import FloatArray
from dlprim.distributed.data_parallel import DataParallel
from dlprim.nn import BatchNorm2d


def synchronize_batch_norm(model: Any, parallel: DataParallel) -> int:
    """From now on the model's batch normalisation takes the statistics of all ranks in training.

    Parameters
    ----------
    model : dlprim.nn.Module
        The same on all ranks.
    parallel : DataParallel
        Of the model. Where ranks have batches of different sizes, set its `share` before the
        forward pass; a rank whose share is 0 has no part in the statistics.

    Returns
    -------
    int
        How many layers this concerns.
    """
    layers = [module for module in model.modules() if isinstance(module, BatchNorm2d)]
    if parallel.group.size > 1:
        statistics = RankStatistics(parallel)
        for layer in layers:
            layer.population = statistics
    return len(layers)


class RankStatistics:
    """The population of what all ranks have in a step; see `dlprim.primitives.populations`."""

    def __init__(self, parallel: DataParallel) -> None:
        self._parallel = parallel
        self._group = parallel.group.duplicate()

    def moments(
        self, pixels: int, mean: FloatArray, variance: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        weight, wide = float(pixels), mean.astype(np.float64)
        if self._parallel.share <= 0:  # then NaN, of no sample at all, has no part either
            weight, wide, variance = 0.0, np.zeros_like(wide), np.zeros_like(variance)
        pixels_of_all, sums, squares = self._total(
            weight, weight * wide, weight * (variance + wide * wide)
        )
        divisor = max(pixels_of_all, 1.0)
        centre = sums / divisor
        spread = np.maximum(squares / divisor - centre * centre, 0)
        return pixels_of_all, centre.astype(np.float32), spread.astype(np.float32)

    def sums(
        self, pixels: int, diff_weights: FloatArray, diff_bias: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        # A rank's gradients are of the mean loss over its own samples, so those of others count
        # in proportion to their shares.
        share = self._parallel.share
        if share <= 0:
            diff_weights, diff_bias = np.zeros_like(diff_weights), np.zeros_like(diff_bias)
        pixels_of_all, weights, biases = self._total(
            float(pixels) if share > 0 else 0.0,
            share * diff_weights.astype(np.float64),
            share * diff_bias.astype(np.float64),
        )
        own = share if share > 0 else 1.0
        weight, bias = (weights / own).astype(np.float32), (biases / own).astype(np.float32)
        return max(pixels_of_all, 1.0), weight, bias

    def _total(
        self, count: float, first: NDArray[np.float64], second: NDArray[np.float64]
    ) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        """The sums over the ranks."""
        own = np.concatenate([[count], first, second])
        everywhere = np.empty((self._group.size, own.size))
        request = self._group.communicator.Iallgather(own, everywhere)
        self._group.wait(request, "the statistics of batch normalisation")
        total = everywhere[0]
        for other in everywhere[1:]:
            total += other
        return float(total[0]), total[1 : 1 + first.size], total[1 + first.size :]
