"""The passes of convolutions along one, two and three axes, each run by the one of images.

A signal is an image of one row. A volume is as many images as its result is deep: the channels of
each are those of all the slices that the filter reads there, so that the sum over the depth of the
filter is one over channels, in the kernel's registers, and Winograd's algorithm serves it too. The
slices are copied side by side for that, a portion of the minibatch at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple, Protocol

import numpy as np

from dlprim._core import PlainConv2d
from dlprim.arguments.arrays import Array, FloatArray, Shape, aligned
from dlprim.arguments.floats import bits_of
from dlprim.functions.conv.windows import Window
from dlprim.functions.convolution import plain_conv
from dlprim.primitives.conv_arguments import Geometry

_PORTION = 1 << 20  # bytes of slices that are side by side at once


class Passes(Protocol):
    """Of one window, on C-contiguous arrays of its shapes that were checked."""

    def forward(self, x: Array, w: Array, bias: FloatArray | None, y: Array) -> None:
        """Write the result to y."""

    def backward_data(self, dy: Array, w: Array, dx: Array) -> None:
        """Write the gradient of x to dx."""

    def backward_weights(self, dy: Array, x: Array) -> tuple[Array, FloatArray]:
        """The gradients of w, and of the bias."""


def passes_of(window: Window, dtype: str) -> Passes:
    """Of operands of ``dtype``."""
    flat = window.flat()
    return _Images(window, flat, dtype) if len(flat.stride) < 3 else _Volumes(window, dtype)


def _image(shape: Shape) -> Shape:
    """(A, B, W) as (A, B, 1, W)."""
    return shape if len(shape) == 4 else (*shape[:2], 1, *shape[2:])


def _conv_of(window: Window, dtype: str, bias: bool) -> PlainConv2d:
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


class _Images:
    """``flat`` has one axis or two, ``window`` those of the arrays."""

    def __init__(self, window: Window, flat: Window, dtype: str) -> None:
        self._w_shape = window.w_shape
        shapes = flat.x_shape, flat.w_shape, flat.y_shape
        self._x, self._w, self._y = (_image(shape) for shape in shapes)
        self._flat = flat
        self._dtype = dtype

    def forward(self, x: Array, w: Array, bias: FloatArray | None, y: Array) -> None:
        conv = _conv_of(self._flat, self._dtype, bias is not None)
        conv.forward(x.reshape(self._x), w.reshape(self._w), bias, None, y.reshape(self._y))

    def backward_data(self, dy: Array, w: Array, dx: Array) -> None:
        conv = _conv_of(self._flat, self._dtype, False)
        conv.backward_data(dy.reshape(self._y), w.reshape(self._w), dx.reshape(self._x))

    def backward_weights(self, dy: Array, x: Array) -> tuple[Array, FloatArray]:
        conv = _conv_of(self._flat, self._dtype, False)
        dw, db = conv.backward_weights(dy.reshape(self._y), x.reshape(self._x))
        return dw.reshape(self._w_shape), db


class _Tap(NamedTuple):
    """Slice i of a result reads the one at ``first`` + i * ``step``, where that exists."""

    first: int
    step: int


def _side_by_side(volumes: Array, taps: list[_Tap], depth: range, to: Array) -> Array:
    """What the slices ``depth`` of a result read of (n, C, D, H, W), channels of one after another.

    Written to and returned as the first of ``to``, which is (n * depth or more, C * taps, H, W).
    """
    n, c, slices, h, w = volumes.shape
    read = to[: n * len(depth)]
    target = bits_of(read).reshape(n, len(depth), c, len(taps), h, w)
    source = bits_of(volumes).swapaxes(1, 2)
    for place, (first, step) in enumerate(taps):
        begin = min(max(depth.start, -(first // step)), depth.stop)
        end = min(max(begin, (slices - 1 - first) // step + 1), depth.stop)
        target[:, : begin - depth.start, :, place] = 0
        target[:, end - depth.start :, :, place] = 0
        if begin < end:
            there = slice(first + begin * step, first + (end - 1) * step + 1, step)
            target[:, begin - depth.start : end - depth.start, :, place] = source[:, there]
    return read


class _Volumes:
    def __init__(self, window: Window, dtype: str) -> None:
        self._window = window
        self._dtype = dtype
        step, front = window.stride[0], window.padding[0][0]
        places = range(window.w_shape[2])
        self._taps = [_Tap(window.dilation[0] * place - front, step) for place in places]

    def forward(self, x: Array, w: Array, bias: FloatArray | None, y: Array) -> None:
        filters = w.reshape(w.shape[0], -1, *w.shape[3:])  # their depth as channels

        def run(read: Array, slices: Array) -> None:
            conv = self._conv(len(read), filters.shape, bias is not None)
            conv.forward(read, filters, bias, None, slices)

        self._in_portions(run, x, self._taps, filters, y)

    def backward_data(self, dy: Array, w: Array, dx: Array) -> None:
        """Slices of dx whose places have the same remainder are reached by the same taps."""
        step = self._window.stride[0]
        for rest in range(min(step, dx.shape[2])):
            target = dx[:, :, rest::step]
            reach = [divmod(rest - tap.first, step) for tap in self._taps]
            places = [place for place, (_, left) in enumerate(reach) if left == 0]
            if not places:
                bits_of(target)[...] = 0
                continue
            chosen = np.ascontiguousarray(bits_of(w)[:, :, places].swapaxes(1, 2))
            filters = chosen.reshape(-1, *w.shape[1:2], *w.shape[3:]).view(w.dtype)

            def run(read: Array, slices: Array, filters: Array = filters) -> None:
                conv = self._conv(len(read), filters.shape, False)
                conv.backward_data(read, filters, slices)

            taps = [_Tap(reach[place][0], 1) for place in places]
            self._in_portions(run, dy, taps, filters, target)

    def backward_weights(self, dy: Array, x: Array) -> tuple[Array, FloatArray]:
        depth = range(dy.shape[2])
        read, slices = (
            _side_by_side(volumes, taps, depth, _room(len(volumes) * len(depth), volumes, taps))
            for volumes, taps in ((x, self._taps), (dy, [_Tap(0, 1)]))
        )
        w_shape = self._window.w_shape
        filters = (w_shape[0], w_shape[1] * len(self._taps), *w_shape[3:])
        dw, db = self._conv(len(read), filters, False).backward_weights(slices, read)
        return dw.reshape(w_shape), db

    def _conv(self, images: int, filters: Shape, bias: bool) -> PlainConv2d:
        """Of ``images`` slices."""
        window = self._window
        x_shape = images, filters[1] * window.groups, *window.x_shape[3:]
        flat = Window(
            x_shape, filters, window.stride[1:], window.padding[1:], window.dilation[1:],
            window.groups,
        )  # fmt: skip
        return _conv_of(flat, self._dtype, bias)

    @staticmethod
    def _in_portions(
        run: Callable[[Array, Array], None],
        volumes: Array,
        taps: list[_Tap],
        filters: Array,
        target: Array,
    ) -> None:
        """Call ``run(read, slices)`` until ``target`` has all slices.

        So many at once that they stay in the caches, but no fewer than pay for the filters, which
        each call packs.
        """
        n, channels, depth, *plane = target.shape
        read_bytes = len(taps) * volumes[:1, :, :1].nbytes
        one = read_bytes + channels * math.prod(plane) * target.itemsize
        count = max(1, max(_PORTION, 4 * filters.nbytes) // max(1, one))
        images, deep = max(1, count // depth), min(count, depth)
        most = min(n, images) * deep
        room, made = _room(most, volumes, taps), aligned((most, channels, *plane), target.dtype)
        for image, begin in product(range(0, n, images), range(0, depth, deep)):
            part = slice(image, image + images)
            end = min(depth, begin + deep)
            read = _side_by_side(volumes[part], taps, range(begin, end), room)
            slices = made[: len(read)]
            run(read, slices)
            apart = bits_of(slices).reshape(-1, end - begin, channels, *plane)
            bits_of(target)[part, :, begin:end] = apart.swapaxes(1, 2)


def _room(slices: int, volumes: Array, taps: list[_Tap]) -> Array:
    """For ``slices`` of what `_side_by_side` makes."""
    _, c, _, h, w = volumes.shape
    return aligned((slices, c * len(taps), h, w), volumes.dtype)
