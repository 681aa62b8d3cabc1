"""A network small enough to check by hand, with the interface that data-parallel training needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ready = Callable[["Weights"], None]


@dataclass(eq=False)
class Weights:
    """A named array and its gradient."""

    name: str
    value: NDArray[np.float32]
    gradient: NDArray[np.float32]


class Network:
    """Layers y = tanh(x W^T) of the given widths, in NumPy."""

    def __init__(self, widths: tuple[int, ...], seed: int = 0) -> None:
        random = np.random.Generator(np.random.PCG64(seed))
        self.layers = []
        for index, (c, k) in enumerate(pairwise(widths)):
            value = random.standard_normal((k, c), dtype=np.float32) / np.float32(np.sqrt(c))
            self.layers.append(Weights(f"layer{index}.weights", value, np.zeros_like(value)))

    def parameters(self) -> list[Weights]:
        return self.layers

    def forward(self, x: NDArray[np.float32], training: bool = True) -> NDArray[np.float32]:
        self.activations = [x]
        for layer in self.layers:
            x = np.tanh(x @ layer.value.T)
            self.activations.append(x)
        return x

    def backward(self, dy: NDArray[np.float32], ready: Ready | None = None) -> Any:
        for index in reversed(range(len(self.layers))):
            layer, x, y = self.layers[index], *self.activations[index : index + 2]
            dy = dy * (1 - y * y)
            layer.gradient[...] = dy.T @ x
            dy = dy @ layer.value
            if ready is not None:
                ready(layer)
        return dy
