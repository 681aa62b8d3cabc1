"""Convolutions as products of matrices that find their way over the arrays themselves.

An image is a volume of one slice.
"""

from __future__ import annotations

import math
from functools import cached_property

from dlprim import _core
from dlprim.arguments.arrays import Array, FloatArray, Shape
from dlprim.functions.conv.windows import Window

_MOST_PADDING = 8  # times the elements of the volumes, which copies with their padding hold


def suits(window: Window) -> bool:
    """Unless filters reach so far that padding would be most of what is copied."""
    axes = zip(window.x_shape[2:], window.padding, strict=True)
    padded = math.prod(extent + sum(sides) for extent, sides in axes)
    return padded <= _MOST_PADDING * math.prod(window.x_shape[2:])


def _volume(shape: Shape) -> Shape:
    """(A, B, H, W) as (A, B, 1, H, W)."""
    return (*shape[:2], *(1,) * (5 - len(shape)), *shape[2:])


class Products:
    """Of ``window``, the axes of the arrays, by way of ``flat``, which may have fewer."""

    def __init__(self, window: Window, flat: Window, dtype: str) -> None:
        self._w_shape = window.w_shape
        self._x, self._w, self._y = map(_volume, (flat.x_shape, flat.w_shape, flat.y_shape))
        shapes = window.x_shape, window.w_shape, window.y_shape
        self._as_they_are = shapes == (self._x, self._w, self._y)
        self._flat = flat
        self._dtype = dtype

    @cached_property
    def _plain(self) -> _core.VolumeConv:
        return self._made(bias=False)

    @cached_property
    def _with_bias(self) -> _core.VolumeConv:
        return self._made(bias=True)

    def _made(self, bias: bool) -> _core.VolumeConv:
        it = self._flat
        ones = (1,) * (3 - len(it.stride))
        fronts = (*(0 for _ in ones), *(front for front, _ in it.padding))
        axes = zip(
            self._x[2:], self._w[2:], (*ones, *it.stride), (*ones, *it.dilation), fronts,
            self._y[2:], strict=True,
        )  # fmt: skip
        channels = it.x_shape[0], it.x_shape[1], it.w_shape[0], it.groups
        return _core.VolumeConv(channels, list(axes), self._dtype, bias)

    def is_faster(self, which: str) -> bool:
        """Of "forward", "backward_data" or "backward_weights": than on images, by estimate."""
        return self._plain.is_faster(which)

    def forward(self, x: Array, w: Array, bias: FloatArray | None, y: Array) -> None:
        conv = self._plain if bias is None else self._with_bias
        if self._as_they_are:
            return conv.forward(x, w, bias, y)
        return conv.forward(x.reshape(self._x), w.reshape(self._w), bias, y.reshape(self._y))

    def backward_data(self, dy: Array, w: Array, dx: Array) -> None:
        self._plain.backward_data(dy.reshape(self._y), w.reshape(self._w), dx.reshape(self._x))

    def backward_weights(self, dy: Array, x: Array) -> tuple[Array, FloatArray]:
        dw, db = self._plain.backward_weights(dy.reshape(self._y), x.reshape(self._x))
        return dw.reshape(self._w_shape), db
