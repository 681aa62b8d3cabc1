"""Convolutions of volumes as those of images, for layers of many channels.

A volume is as many images as its result is deep: the channels of each are those of all the slices
that the filter reads there, so that the sum over the depth of the filter is one over channels, in
the kernel's registers, and Winograd's algorithm serves it too. The slices are copied side by side
for that, a portion at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np

from dlprim._core import PlainConv2d
from dlprim.arguments.arrays import Array, FloatArray, Shape, aligned
from dlprim.arguments.floats import bits_of
from dlprim.functions.conv.images import conv_of
from dlprim.functions.conv.windows import Window

_PORTION = 1 << 22  # bytes of slices at once: more gain nothing, fewer leave threads without work
_FILTERS = 4  # times the bytes of the filters, which every call packs, at the least


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


class Volumes:
    def __init__(self, window: Window, dtype: str) -> None:
        self._window = window
        self._dtype = dtype
        step, front = window.stride[0], window.padding[0][0]
        places = range(window.w_shape[2])
        self._taps = [_Tap(window.dilation[0] * place - front, step) for place in places]

    def forward(self, x: Array, w: Array, bias: FloatArray | None, y: Array) -> None:
        filters = self._filters(w)

        def run(read: Array, slices: Array) -> None:
            self._forward(read, filters, bias, slices)

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
                self._backward_data(read, filters, slices)

            taps = [_Tap(reach[place][0], 1) for place in places]
            self._in_portions(run, dy, taps, filters, target)

    def backward_weights(self, dy: Array, x: Array) -> tuple[Array, FloatArray]:
        depth = range(dy.shape[2])
        read, slices = (
            _side_by_side(volumes, taps, depth, _room(len(volumes) * len(depth), volumes, taps))
            for volumes, taps in ((x, self._taps), (dy, [_Tap(0, 1)]))
        )
        dw, db = self._backward_weights(slices, read)
        return dw.reshape(self._window.w_shape), db

    # On slices, which are what `_side_by_side` makes.

    @staticmethod
    def _filters(w: Array) -> Array:
        return w.reshape(w.shape[0], -1, *w.shape[3:])

    def _forward(self, read: Array, filters: Array, bias: FloatArray | None, to: Array) -> None:
        conv = self._conv(read, filters.shape, self._window.groups, bias is not None)
        conv.forward(read, filters, bias, None, to)

    def _backward_data(self, read: Array, filters: Array, to: Array) -> None:
        conv = self._conv(read, filters.shape, self._window.groups)
        conv.backward_data(read, filters, to)

    def _backward_weights(self, slices: Array, read: Array) -> tuple[Array, FloatArray]:
        k, c, taps, *plane = self._window.w_shape
        conv = self._conv(read, (k, c * taps, *plane), self._window.groups)
        return conv.backward_weights(slices, read)

    def _conv(self, images: Array, filters: Shape, groups: int, bias: bool = False) -> PlainConv2d:
        """Of as many images as there are."""
        window = self._window
        x_shape = len(images), filters[1] * groups, *window.x_shape[3:]
        flat = Window(
            x_shape, filters, window.stride[1:], window.padding[1:], window.dilation[1:], groups
        )
        return conv_of(flat, self._dtype, bias)

    @staticmethod
    def _in_portions(
        run: Callable[[Array, Array], None],
        volumes: Array,
        taps: list[_Tap],
        filters: Array,
        target: Array,
    ) -> None:
        """Call ``run(read, slices)`` until ``target`` has all slices."""
        n, channels, depth, *plane = target.shape
        read_bytes = len(taps) * volumes[:1, :, :1].nbytes
        one = read_bytes + channels * math.prod(plane) * target.itemsize
        count = max(1, max(_PORTION, _FILTERS * filters.nbytes) // max(1, one))
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
