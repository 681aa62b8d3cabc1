"""Pooling as layers: maximum and mean of windows, and the mean of all pixels as plain features."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlprim
from dlprim.arguments.instead import instead
from dlprim.arguments.scalars import flag
from dlprim.nn.arguments import Extent, Pair, pair, shortest
from dlprim.nn.context import Images
from dlprim.nn.module import Array, Module, Ready
from dlprim.nn.passes import backward_pass, forward_pass
from dlprim.nn.recent import Recent


class MaxPool2d(Module):
    """The largest value of each window; arguments as for `dlprim.MaxPool2d`.

    Defaults are those of `torch.nn.MaxPool2d`, which has dilation and ceil_mode besides.
    """

    keeps_input = False
    takes_images = True
    of_passes = ("_primitives", "_kept")

    @instead(kernel_size="kernel", ceil_mode="none: extents are rounded down", dilation="none")
    def __init__(self, kernel: Extent, stride: Extent | None = None, padding: Extent = 0) -> None:
        super().__init__()
        self._window = _window(kernel, stride, padding)
        self._primitives: Recent[tuple[object, ...], Any] = Recent()
        self._kept: tuple[Any, Array, Images] | None = None

    def arguments(self) -> dict[str, Any]:
        return _named(self._window)

    def traced(self, x: Any) -> Any:
        return dlprim.max_pool2d(x, *self._window)

    @forward_pass
    def forward(self, x: Images, training: bool | None = None) -> Images:
        context = self.context
        key = (x.shape, x.groups, context.dtype_name, context.layout)
        if key not in self._primitives:
            self._primitives[key] = dlprim.MaxPool2d(
                x.shape,
                *self._window,
                layout=context.layout,
                dtype=context.dtype_name,
                groups=x.groups,
            )
        pool = self._primitives[key]
        dst = context.buffers.take(pool.dst_shape, context.dtype)
        indices = context.buffers.take(pool.indices_shape, np.uint8) if training else None
        with context.timed(self.name, "forward" if training else "inference"):
            pool.forward(x.array, dst, indices)
        if indices is not None:
            self._kept = pool, indices, x
        return Images(dst, pool.y_shape, x.groups)

    @backward_pass
    def backward(self, dy: Images, ready: Ready | None = None) -> Images:
        assert self._kept is not None
        (pool, indices, x), self._kept = self._kept, None
        out = self.context.buffers.take(pool.src_shape, self.context.dtype)
        with self.context.timed(self.name, "backward"):
            pool.backward(dy.array, indices, out)
        self.context.buffers.give(dy.array, indices)
        return Images(out, x.shape, x.groups)


class AvgPool2d(Module):
    """The mean of each window; arguments as for `dlprim.AvgPool2d`.

    Defaults are those of `torch.nn.AvgPool2d`, which has ceil_mode besides.
    """

    keeps_input = False
    takes_images = True
    of_passes = ("_primitives", "_kept")

    @instead(
        kernel_size="kernel", ceil_mode="none: extents are rounded down", divisor_override="none"
    )
    def __init__(
        self,
        kernel: Extent,
        stride: Extent | None = None,
        padding: Extent = 0,
        *,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self._window = _window(kernel, stride, padding)
        self._counts_padding = flag("count_include_pad", count_include_pad)
        self._primitives: Recent[tuple[object, ...], dlprim.AvgPool2d] = Recent()
        self._kept: tuple[dlprim.AvgPool2d, Images] | None = None

    def arguments(self) -> dict[str, Any]:
        return {
            **_named(self._window),
            "count_include_pad": self._counts_padding,
        }

    def traced(self, x: Any) -> Any:
        return dlprim.avg_pool2d(x, *self._window, count_include_pad=self._counts_padding)

    @forward_pass
    def forward(self, x: Images, training: bool | None = None) -> Images:
        context = self.context
        key = (x.shape, x.groups, context.dtype_name, context.layout)
        if key not in self._primitives:
            self._primitives[key] = dlprim.AvgPool2d(
                x.shape,
                *self._window,
                layout=context.layout,
                dtype=context.dtype_name,
                groups=x.groups,
                count_include_pad=self._counts_padding,
            )
        pool = self._primitives[key]
        dst = context.buffers.take(pool.dst_shape, context.dtype)
        with context.timed(self.name, "forward" if training else "inference"):
            pool.forward(x.array, dst)
        if training:
            self._kept = pool, x
        return Images(dst, pool.y_shape, x.groups)

    @backward_pass
    def backward(self, dy: Images, ready: Ready | None = None) -> Images:
        assert self._kept is not None
        (pool, x), self._kept = self._kept, None
        out = self.context.buffers.take(pool.src_shape, self.context.dtype)
        with self.context.timed(self.name, "backward"):
            pool.backward(dy.array, out)
        self.context.buffers.give(dy.array)
        return Images(out, x.shape, x.groups)


class GlobalAvgPool2d(Module):
    """The mean over H and W, as plain features (N, C)."""

    keeps_input = False
    takes_images = True
    of_passes = ("_primitives", "_kept")

    def __init__(self) -> None:
        super().__init__()
        self._primitives: Recent[tuple[object, ...], Any] = Recent()
        self._kept: tuple[Any, Images] | None = None

    def arguments(self) -> dict[str, Any]:
        return {}

    def traced(self, x: Any) -> Any:
        return np.mean(x, axis=(2, 3))

    @forward_pass
    def forward(self, x: Images, training: bool | None = None) -> Array:
        context = self.context
        key = (x.shape, x.groups, context.dtype_name, context.layout)
        if key not in self._primitives:
            self._primitives[key] = dlprim.GlobalAvgPool2d(
                x.shape, layout=context.layout, dtype=context.dtype_name, groups=x.groups
            )
        pool = self._primitives[key]
        with context.timed(self.name, "forward" if training else "inference"):
            features: Array = pool.features(pool.forward(x.array))
        if training:
            self._kept = pool, x
        return features

    @backward_pass
    def backward(self, dy: Array, ready: Ready | None = None) -> Images:
        assert self._kept is not None
        (pool, x), self._kept = self._kept, None
        out = self.context.buffers.take(pool.src_shape, self.context.dtype)
        with self.context.timed(self.name, "backward"):
            pool.backward(pool.from_features(dy), out)
        self.context.buffers.give(dy)
        return Images(out, x.shape, x.groups)


def _window(kernel: Any, stride: Any, padding: Any) -> tuple[Pair, Pair | None, Pair]:
    """The three, checked; what a stride of None means is the primitive's to say."""
    step = None if stride is None else pair("stride", stride)
    return pair("kernel", kernel), step, pair("padding", padding, 0)


def _named(window: tuple[Pair, Pair | None, Pair]) -> dict[str, Any]:
    return dict(zip(("kernel", "stride", "padding"), map(shortest, window), strict=True))
