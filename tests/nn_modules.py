"""Modules of a user's, and what they give in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim import nn


class Scale(nn.Module):
    """``x * weight + bias``, by channels."""

    def __init__(self, C: int, power: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(np.linspace(1, 2, C))
        self.bias = nn.Parameter(np.zeros(C))
        self.power = power

    def arguments(self) -> dict[str, Any]:
        return {"C": self.weight.shape[0], "power": self.power}

    def forward(self, x: Any) -> Any:
        return x**self.power * self.weight + self.bias


class Net(nn.Module):
    """Layers of the package and of one's own."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = [nn.Linear(5, 5), Scale(5)]
        self.head = nn.Linear(5, 3)

    def arguments(self) -> dict[str, Any]:
        return {}

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = x + np.tanh(block(x))
        return self.head(x)


def made() -> Net:
    nn.seed(0)
    return Net()


def drawn(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def due(model: Net, x: Any) -> Any:
    """In float64."""
    state = {name: it.astype(np.float64) for name, it in model.state_dict().items()}
    x = x + np.tanh(x @ state["blocks.0.weight"].T + state["blocks.0.bias"])
    x = x + np.tanh(x * state["blocks.1.weight"] + state["blocks.1.bias"])
    return x @ state["head.weight"].T + state["head.bias"]


def require_right(model: Net, x: Any) -> None:
    """The result, and gradients against differences in float64."""
    np.testing.assert_allclose(model(x), due(model, x), rtol=1e-5, atol=1e-6)
    dy = drawn(*model(x).shape, seed=1)
    dx = model.backward(dy)
    for array, gradient in [(x, dx), *((it.value, it.gradient) for it in model.parameters())]:
        at = tuple(np.array(array.shape) // 2)
        kept, sums = array[at], []
        for sign in (1, -1):
            array[at] = kept + sign * np.float32(2**-9)
            sums.append((due(model, x) * dy).sum())
        array[at] = kept
        np.testing.assert_allclose((sums[0] - sums[1]) * 2**8, gradient[at], rtol=2e-3, atol=1e-3)
