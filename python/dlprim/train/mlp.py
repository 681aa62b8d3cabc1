"""A multilayer perceptron: linear layers with ReLU between them, forward and backward.

Bias and ReLU are fused into the matrix products, so a layer is one call in each direction, and its
output is all that the backward pass needs to have kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

import dlprim


class MLP:
    """Layers of the given widths; ReLU after every layer but the last.

    `weights[i]` is float32 (K, C) = (widths[i + 1], widths[i]), `biases[i]` float32 (K,);
    `diff_weights` and `diff_biases` have the same shapes and belong to the latest `backward`.

    Args:
        widths: C of the input, the hidden widths, K of the output; at least two, each at least 1.
        generator: draws the initial weights; biases start at zero.

    Raises:
        ValueError: fewer than two widths, or one below 1.
    """

    def __init__(self, widths: Sequence[int], generator: np.random.Generator) -> None:
        if len(widths) < 2 or min(widths) < 1:
            raise ValueError(f"widths is {list(widths)}, expected two or more integers >= 1.")
        self.weights: list[NDArray[np.float32]] = []
        self.biases: list[NDArray[np.float32]] = []
        self.diff_weights: list[NDArray[np.float32]] = []
        self.diff_biases: list[NDArray[np.float32]] = []
        self._activations: list[NDArray[np.float32]] = []
        for c, k in pairwise(widths):
            # He et al., arXiv 1502.01852, section 2.2: keeps the variance through ReLU layers.
            weights = generator.standard_normal((k, c), dtype=np.float32)
            weights *= math.sqrt(2 / c)
            self.weights.append(weights)
            self.biases.append(np.zeros(k, dtype=np.float32))

    @property
    def parameters(self) -> list[NDArray[np.float32]]:
        """The arrays to be trained, all weights before all biases; the model's own, not copies."""
        return self.weights + self.biases

    @property
    def gradients(self) -> list[NDArray[np.float32]]:
        """The gradients of the latest `backward`, in the order of `parameters`."""
        return self.diff_weights + self.diff_biases

    def forward(self, src: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns dst (N, K) for src (N, C), both float32, and keeps what `backward` needs."""
        self._activations = [src]
        last = len(self.weights) - 1
        for layer, (weights, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            activation = "relu" if layer < last else None
            src = dlprim.linear(src, weights, bias, activation=activation)
            self._activations.append(src)
        return src

    def backward(self, diff_dst: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns diff_src (N, C) for diff_dst (N, K) and sets `diff_weights` and `diff_biases`.

        It refers to the latest `forward`: diff_dst is the gradient with respect to its dst.
        """
        layers = len(self.weights)
        self.diff_weights, self.diff_biases = [], []
        for layer in reversed(range(layers)):
            src, dst = self._activations[layer : layer + 2]
            activation = "relu" if layer < layers - 1 else None
            diff_dst, diff_weights, diff_bias = dlprim.linear_backward(
                diff_dst, src, self.weights[layer], y=dst, activation=activation
            )
            self.diff_weights.insert(0, diff_weights)
            self.diff_biases.insert(0, diff_bias)
        return diff_dst
