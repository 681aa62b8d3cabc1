"""Single elements of convolution results in float64: a large layer is verified quickly.

Every pass is a sum over a window: of the padded image (forward), of the gradient of the result
with zeros between its rows for the stride and around it for the filter (backward_data), or over all
images and places of two arrays at the steps of the stride (backward_weights).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dlprim.bench.measuring.verification import (
    BFLOAT16_ROUNDOFF,
    WrongResultError,
    doubles,
    sum_bound,
)

_SAMPLES = 400

Index = tuple[int, ...]


@dataclass(frozen=True)
class Layer:
    """A row of a table of shapes: one stride and one padding for both directions."""

    id: int
    C: int
    K: int
    H: int
    W: int
    R: int
    S: int
    stride: int
    pad: int
    count: int
    groups: int = 1

    def __str__(self) -> str:
        grouped = f" g{self.groups}" if self.groups > 1 else ""
        return f"{self.C}-{self.K} {self.H}x{self.W} {self.R}x{self.S}/{self.stride}{grouped}"

    @property
    def w_shape(self) -> tuple[int, int, int, int]:
        return self.K, self.C // self.groups, self.R, self.S

    def x_shape(self, batch: int) -> tuple[int, int, int, int]:
        return batch, self.C, self.H, self.W

    def y_shape(self, batch: int) -> tuple[int, int, int, int]:
        p = (self.H + 2 * self.pad - self.R) // self.stride + 1
        q = (self.W + 2 * self.pad - self.S) // self.stride + 1
        return batch, self.K, p, q


class Plain(NamedTuple):
    """Operands in PyTorch's shapes."""

    x: np.ndarray
    w: np.ndarray
    dy: np.ndarray


def verify(name: str, which: str, layer: Layer, plain: Plain, result: np.ndarray) -> None:
    """Refuse a result of a pass, in plain shape, unless sampled elements are within bounds.

    Raises
    ------
    WrongResultError
    """
    random = np.random.default_rng(0)
    last = tuple(extent - 1 for extent in result.shape)
    drawn = (tuple(int(random.integers(n)) for n in result.shape) for _ in range(_SAMPLES))
    products_of = _PRODUCTS[which](layer, plain)
    for index in ((0, 0, 0, 0), last, *drawn):
        products = products_of(index)
        exact = products.sum()
        bound = sum_bound(max(products.size, 1), np.abs(products).sum())
        if result.dtype != np.float32:
            bound += BFLOAT16_ROUNDOFF * (abs(exact) + bound)
        error = abs(doubles(result[index].reshape(1))[0] - exact)
        if not error <= bound:
            raise WrongResultError(
                f"{name} {which} at {index}: wrong result, {error / bound:.1f} times the bound"
            )


def _forward(layer: Layer, plain: Plain) -> Callable[[Index], Any]:
    x = _padded(doubles(plain.x), layer.pad, layer.pad)

    def products(index: Index) -> Any:
        n, k, p, q = index
        h, w = p * layer.stride, q * layer.stride
        channels = _channels(layer.C, layer, k // (layer.K // layer.groups))
        window = x[n, channels, h : h + layer.R, w : w + layer.S]
        return window * doubles(plain.w[k])

    return products


def _backward_data(layer: Layer, plain: Plain) -> Callable[[Index], Any]:
    shape, step = plain.dy.shape, layer.stride
    spread = np.zeros((*shape[:2], (shape[2] - 1) * step + 1, (shape[3] - 1) * step + 1))
    spread[:, :, ::step, ::step] = doubles(plain.dy)
    behind = layer.pad + layer.R + step  # at least as far as any window reaches
    spread = _padded(spread, layer.R - 1, behind, layer.S - 1)
    filters = doubles(plain.w)[:, :, ::-1, ::-1]

    def products(index: Index) -> Any:
        n, c, h, w = index
        group, channel = divmod(c, layer.C // layer.groups)
        outputs = _channels(layer.K, layer, group)
        rows = slice(h + layer.pad, h + layer.pad + layer.R)
        columns = slice(w + layer.pad, w + layer.pad + layer.S)
        window = spread[n, outputs, rows, columns]
        return window * filters[outputs, channel]

    return products


def _backward_weights(layer: Layer, plain: Plain) -> Callable[[Index], Any]:
    x, dy, step = _padded(doubles(plain.x), layer.pad, layer.pad), plain.dy, layer.stride
    height, width = (step * (extent - 1) + 1 for extent in dy.shape[2:])

    def products(index: Index) -> Any:
        k, c, r, s = index
        channel = k // (layer.K // layer.groups) * (layer.C // layer.groups) + c
        window = x[:, channel, r : r + height : step, s : s + width : step]
        return window * doubles(dy[:, k])

    return products


_PRODUCTS = {
    "forward": _forward,
    "backward_data": _backward_data,
    "backward_weights": _backward_weights,
}


def _channels(channels: int, layer: Layer, group: int) -> slice:
    size = channels // layer.groups
    return slice(group * size, (group + 1) * size)


def _padded(images: np.ndarray, before: int, behind: int, left: int | None = None) -> np.ndarray:
    left = before if left is None else left
    return np.pad(images, ((0, 0), (0, 0), (before, behind), (left, behind)))
