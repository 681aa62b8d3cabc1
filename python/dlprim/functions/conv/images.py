"""Convolutions along one axis and two as those of images; a signal is an image of one row."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from dlprim._core import PlainConv2d
from dlprim.arguments.arrays import Array, FloatArray, Shape
from dlprim.functions.conv.windows import Window
from dlprim.functions.convolution import plain_conv
from dlprim.primitives.conv_arguments import Geometry


def _image(shape: Shape) -> Shape:
    """(A, B, W) as (A, B, 1, W)."""
    return shape if len(shape) == 4 else (*shape[:2], 1, *shape[2:])


def conv_of(window: Window, dtype: str, bias: bool) -> PlainConv2d:
    """Of a window along one or two axes."""
    none = 2 - len(window.stride)
    ones = (1,) * none
    numbers: Any = (
        _image(window.x_shape),
        _image(window.w_shape),
        (*ones, *window.stride),
        ((0, 0),) * none + window.padding,
        (*ones, *window.dilation),
        window.groups,
    )
    return plain_conv(Geometry(*numbers), dtype, bias)


class Images:
    """Of ``window``, the axes of the arrays, by way of ``flat``, which has one axis or two."""

    def __init__(self, window: Window, flat: Window, dtype: str) -> None:
        self._w_shape = window.w_shape
        shapes = flat.x_shape, flat.w_shape, flat.y_shape
        self._x, self._w, self._y = (_image(shape) for shape in shapes)
        own = window.x_shape, window.w_shape, window.y_shape
        self._as_they_are = own == (self._x, self._w, self._y)
        self._flat = flat
        self._dtype = dtype

    @cached_property
    def _plain(self) -> PlainConv2d:
        return conv_of(self._flat, self._dtype, False)

    @cached_property
    def _with_bias(self) -> PlainConv2d:
        return conv_of(self._flat, self._dtype, True)

    def forward(self, x: Array, w: Array, bias: FloatArray | None, y: Array) -> None:
        conv = self._plain if bias is None else self._with_bias
        conv.forward(x.reshape(self._x), w.reshape(self._w), bias, None, y.reshape(self._y))

    def backward_data(self, dy: Array, w: Array, dx: Array) -> None:
        if self._as_they_are:
            return self._plain.backward_data(dy, w, dx)
        return self._plain.backward_data(
            dy.reshape(self._y), w.reshape(self._w), dx.reshape(self._x)
        )

    def backward_weights(self, dy: Array, x: Array) -> tuple[Array, FloatArray]:
        dw, db = self._plain.backward_weights(dy.reshape(self._y), x.reshape(self._x))
        return dw.reshape(self._w_shape), db

    def backward(self, dy: Array, x: Array, w: Array) -> tuple[Array, Array, FloatArray]:
        operands = dy.reshape(self._y), x.reshape(self._x), w.reshape(self._w)
        dx, dw, db = self._plain.backward(*operands, None)
        return dx.reshape(x.shape), dw.reshape(self._w_shape), db
