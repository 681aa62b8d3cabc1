"""Pooling as layers: maximum and mean of windows, and the mean of all pixels as features."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlprim
from dlprim.arguments.instead import instead
from dlprim.arguments.scalars import flag
from dlprim.nn.arguments import Extent, Pair, pair, shortest
from dlprim.nn.calls import label
from dlprim.nn.module import Module


class MaxPool2d(Module):
    """The largest value of each window; arguments as for `dlprim.MaxPool2d`.

    Defaults are those of `torch.nn.MaxPool2d`, which has dilation and ceil_mode besides.
    """

    @instead(kernel_size="kernel", ceil_mode="none: extents are rounded down", dilation="none")
    def __init__(self, kernel: Extent, stride: Extent | None = None, padding: Extent = 0) -> None:
        super().__init__()
        self._window = _window(kernel, stride, padding)

    def arguments(self) -> dict[str, Any]:
        return _named(self._window)

    def forward(self, x: Any) -> Any:
        return dlprim.max_pool2d(x, *self._window)


class AvgPool2d(Module):
    """The mean of each window; arguments as for `dlprim.AvgPool2d`.

    Defaults are those of `torch.nn.AvgPool2d`, which has ceil_mode besides.
    """

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

    def arguments(self) -> dict[str, Any]:
        return {
            **_named(self._window),
            "count_include_pad": self._counts_padding,
        }

    def forward(self, x: Any) -> Any:
        return dlprim.avg_pool2d(x, *self._window, count_include_pad=self._counts_padding)


class GlobalAvgPool2d(Module):
    """The mean over H and W, as features (N, C)."""

    def arguments(self) -> dict[str, Any]:
        return {}

    def forward(self, x: Any) -> Any:
        if x.ndim != 4:
            raise ValueError(f"x of {label(self)} has shape {x.shape}, expected (N, C, H, W)")
        return np.mean(x, axis=(2, 3))


def _window(kernel: Any, stride: Any, padding: Any) -> tuple[Pair, Pair | None, Pair]:
    """The three, checked; what a stride of None means is the primitive's to say."""
    step = None if stride is None else pair("stride", stride)
    return pair("kernel", kernel), step, pair("padding", padding, 0)


def _named(window: tuple[Pair, Pair | None, Pair]) -> dict[str, Any]:
    return dict(zip(("kernel", "stride", "padding"), map(shortest, window), strict=True))
