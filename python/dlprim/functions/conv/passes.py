"""The passes of convolutions along one, two and three axes: on images, or as products."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

from dlprim.arguments.arrays import Array, FloatArray, aligned
from dlprim.functions.conv.images import Images
from dlprim.functions.conv.products import Products, suits
from dlprim.functions.conv.volumes import Volumes
from dlprim.functions.conv.windows import Window
from dlprim.primitives.conv_algorithm import PREFERABLY, resolved

# Channels, up to which blocks of them are mostly empty.
_FEW = 4


class Passes(Protocol):
    """Of one window, on C-contiguous arrays of its shapes that were checked."""

    def forward(self, x: Array, w: Array, bias: FloatArray | None, y: Array) -> None:
        """Write the result to y."""

    def backward_data(self, dy: Array, w: Array, dx: Array) -> None:
        """Write the gradient of x to dx."""

    def backward_weights(self, dy: Array, x: Array) -> tuple[Array, FloatArray]:
        """The gradients of w, and of the bias."""

    def backward(self, dy: Array, x: Array, w: Array) -> tuple[Array, Array, FloatArray]:
        """The gradients of x, w and the bias."""


class _Either:
    """Each pass on images, or by products where those are expected to be faster."""

    def __init__(self, on_images: Images | Volumes, products: Products, may_be: set[str]) -> None:
        self._on_images = on_images
        self._products = products
        self._may_be = may_be

    def _chosen(self, which: str) -> Products | Images | Volumes:
        faster = which in self._may_be and self._products.is_faster(which)
        return self._products if faster else self._on_images

    @cached_property
    def _forward(self) -> Products | Images | Volumes:
        return self._chosen("forward")

    @cached_property
    def _data(self) -> Products | Images | Volumes:
        return self._chosen("backward_data")

    @cached_property
    def _weights(self) -> Products | Images | Volumes:
        return self._chosen("backward_weights")

    def forward(self, x: Array, w: Array, bias: FloatArray | None, y: Array) -> None:
        self._forward.forward(x, w, bias, y)

    def backward_data(self, dy: Array, w: Array, dx: Array) -> None:
        self._data.backward_data(dy, w, dx)

    def backward_weights(self, dy: Array, x: Array) -> tuple[Array, FloatArray]:
        return self._weights.backward_weights(dy, x)

    def backward(self, dy: Array, x: Array, w: Array) -> tuple[Array, Array, FloatArray]:
        images = self._on_images
        if isinstance(images, Images) and self._data is images and self._weights is images:
            return images.backward(dy, x, w)  # which packs dy once
        dx = aligned(x.shape, x.dtype)
        self.backward_data(dy, w, dx)
        return (dx, *self.backward_weights(dy, x))


def passes_of(window: Window, dtype: str) -> Passes:
    """Of operands of ``dtype``."""
    flat = window.flat()
    by_products = suits(flat) and resolved("auto") != PREFERABLY
    products = Products(window, flat, dtype)
    if len(flat.stride) == 3:
        every = {"forward", "backward_data", "backward_weights"} if by_products else set()
        return _Either(Volumes(window, dtype), products, every)
    may_be = set()
    if by_products and flat.w_shape[1] <= _FEW:
        may_be.add("backward_data")
    # Filters of one channel that leave out pixels are no products on rows of neighbours.
    if by_products and len(window.stride) == 1 and (flat.w_shape[1] > 1 or max(flat.stride) == 1):
        may_be.add("forward")
    return _Either(Images(window, flat, dtype), products, may_be)
