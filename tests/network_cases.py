"""Networks in the compiled core, made by hand, for tests of what runs them."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlprim
from dlprim import _core as core
from drawing import RNG

__all__ = ["FLOATS", "SmallConvNet", "core", "formula", "normal"]

FLOATS = np.dtype(np.float32)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def formula(text: str, *arrays: np.ndarray) -> Any:
    return core.Formula(core.Definition(text), list(arrays), {}, {}, ["float32"])


class SmallConvNet:
    """Two convolutions, one with relu and one with a residual, between plain images."""

    def __init__(self) -> None:
        self.shape, filters = (2, 3, 12, 12), (16, 3, 3, 3)
        self.first = dlprim.Conv2d(self.shape, filters, padding=1, bias=True, activation="relu")
        self.second = dlprim.Conv2d((2, 16, 12, 12), (16, 16, 3, 3), padding=1)
        self.w1, self.w2, self.bias = normal(*filters), normal(16, 16, 3, 3), normal(16)

    def network(self) -> core.Network:
        network, first, second = core.Network(), self.first._core, self.second._core
        x = network.input(self.shape, FLOATS, "x")
        weights = [
            network.constant(conv.pack_weights(w))
            for conv, w in ((self.first, self.w1), (self.second, self.w2))
        ]
        src = network.temporary(first.shapes["src"], FLOATS)
        network.pack(first, "src", x, src)
        hidden = network.temporary(first.shapes["dst"], FLOATS)
        bias = network.constant(self.bias)
        network.conv2d(first, "first", src=src, weights=weights[0], bias=bias, dst=hidden)
        dst = network.temporary(second.shapes["dst"], FLOATS)
        network.conv2d(second, "second", src=hidden, weights=weights[1], residual=hidden, dst=dst)
        y = network.temporary((2, 16, 12, 12), FLOATS)
        network.unpack(second, "dst", dst, y, "plain again")
        network.finish([y])
        return network

    def expected(self, x: np.ndarray) -> np.ndarray:
        hidden = dlprim.conv2d(x, self.w1, self.bias, padding=1, activation="relu")
        return np.asarray(dlprim.conv2d(hidden, self.w2, padding=1) + hidden)
