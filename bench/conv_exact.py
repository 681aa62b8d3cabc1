"""Single elements of convolution results in float64: a large layer is verified quickly."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import dlprim
import harness

_SAMPLES = 400
_BFLOAT16_ROUNDOFF = 2.0**-8


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
    """Stop unless sampled elements of the result of a pass, in plain shape, are within bounds."""
    random = np.random.default_rng(0)
    last = tuple(extent - 1 for extent in result.shape)
    drawn = (tuple(int(random.integers(n)) for n in result.shape) for _ in range(_SAMPLES))
    for index in ((0, 0, 0, 0), last, *drawn):
        products = _PRODUCTS[which](layer, plain, index)
        exact = products.sum()
        bound = harness.sum_bound(max(products.size, 1), np.abs(products).sum())
        if result.dtype != np.float32:
            bound += _BFLOAT16_ROUNDOFF * (abs(exact) + bound)
        actual = _doubles(result[index].reshape(1))[0]
        harness.verify(f"{name} {which} at {index}", actual, exact, bound)


def _doubles(array: np.ndarray) -> np.ndarray:
    widened = array if array.dtype == np.float32 else dlprim.to_float32(array, dtype="bfloat16")
    return widened.astype(np.float64)


def _forward(layer: Layer, plain: Plain, index: tuple[int, ...]) -> np.ndarray:
    n, k, p, q = index
    rows, h = _inside(np.arange(layer.R), p * layer.stride - layer.pad, layer.H)
    columns, w = _inside(np.arange(layer.S), q * layer.stride - layer.pad, layer.W)
    image = plain.x[n, _channels(layer.C, layer, k // (layer.K // layer.groups))]
    filters = plain.w[k][:, rows][:, :, columns]
    return _doubles(image[:, h][:, :, w]) * _doubles(filters)


def _backward_data(layer: Layer, plain: Plain, index: tuple[int, ...]) -> np.ndarray:
    n, c, h, w = index
    rows, p = _meeting(layer.R, h + layer.pad, layer.stride, plain.dy.shape[2])
    columns, q = _meeting(layer.S, w + layer.pad, layer.stride, plain.dy.shape[3])
    group, channel = divmod(c, layer.C // layer.groups)
    outputs = _channels(layer.K, layer, group)
    filters = plain.w[outputs, channel][:, rows][:, :, columns]
    return _doubles(plain.dy[n, outputs][:, p][:, :, q]) * _doubles(filters)


def _backward_weights(layer: Layer, plain: Plain, index: tuple[int, ...]) -> np.ndarray:
    k, c, r, s = index
    strides = [layer.stride * np.arange(extent) for extent in plain.dy.shape[2:]]
    p, h = _inside(strides[0], r - layer.pad, layer.H)
    q, w = _inside(strides[1], s - layer.pad, layer.W)
    group = k // (layer.K // layer.groups)
    image = plain.x[:, group * (layer.C // layer.groups) + c]
    return _doubles(image[:, h][:, :, w]) * _doubles(plain.dy[:, k][:, p][:, :, q])


_PRODUCTS = {
    "forward": _forward,
    "backward_data": _backward_data,
    "backward_weights": _backward_weights,
}


def _channels(channels: int, layer: Layer, group: int) -> slice:
    size = channels // layer.groups
    return slice(group * size, (group + 1) * size)


def _inside(steps: np.ndarray, start: int, extent: int) -> tuple[np.ndarray, np.ndarray]:
    """Which of ``start + steps`` lie in the image, and these."""
    position = start + steps
    inside = np.flatnonzero((position >= 0) & (position < extent))
    return inside, position[inside]


def _meeting(taps: int, start: int, stride: int, extent: int) -> tuple[np.ndarray, np.ndarray]:
    """The taps that some result meets a pixel with, and these results."""
    distance = start - np.arange(taps)
    meets = (distance >= 0) & (distance % stride == 0) & (distance // stride < extent)
    return np.flatnonzero(meets), distance[meets] // stride
