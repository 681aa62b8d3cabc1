"""Batch normalisation of a minibatch of which a layer has only a part: the rest is elsewhere.

Where several processes share a minibatch, each alone would normalise with statistics of few
samples. A layer with a population takes two passes over its part instead of one that stays in the
caches: sums first, then, when those of all parts are known, what they are for.
"""

from __future__ import annotations

from typing import Any, Protocol

from dlprim.arguments.arrays import FloatArray


class Population(Protocol):
    """Combines what each part of a minibatch knows; called for the same layers in the same order
    by all that hold one. Arrays are float32, (C,)."""

    def moments(
        self, pixels: int, mean: FloatArray, variance: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        """Number of values per channel, mean and biased variance of all, from those of a part."""
        ...

    def sums(
        self, pixels: int, diff_weights: FloatArray, diff_bias: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        """Values per channel and gradients of weights and bias of all, from those of a part."""
        ...


def forward(
    core: Any, arrays: dict[str, Any], pixels: int, population: Population
) -> tuple[float, FloatArray]:
    """As ``core.forward`` with the statistics of the population, whose size and variance follow."""
    core.forward(arrays | {"out": None, "residual": None, "relu_mask": None})
    count, mean, variance = population.moments(pixels, arrays["mean"], arrays["variance"])
    core.forward(arrays | {"running_mean": mean, "running_var": variance, "variance": None})
    return count, variance


def backward(core: Any, arrays: dict[str, Any], pixels: int, population: Population) -> None:
    """As ``core.backward``; the gradients of weights and bias are those of this part."""
    core.backward(arrays | {"out": None}, False, 0)
    count, weights, bias = population.sums(pixels, arrays["diff_weights"], arrays["diff_bias"])
    given = {"given_diff_weights": weights, "given_diff_bias": bias}
    core.backward(arrays | given | {"diff_weights": None, "diff_bias": None}, False, count)
