"""Pooling as layers: maximum and mean of windows, and all pixels, or their mean, as features."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

import dlprim
from dlprim.arguments.instead import instead
from dlprim.arguments.scalars import flag
from dlprim.nn.calls import label
from dlprim.nn.layer import Extent, Layer, pair


class Pool(Layer):
    """``kernel, stride, padding`` as of the function that the class says."""

    function: ClassVar[Any]
    kernel: Any
    stride: Any
    padding: Any

    @instead(kernel_size="kernel", ceil_mode="none: extents are rounded down", dilation="none")
    def __init__(self, kernel: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self._keep(kernel=kernel, stride=stride, padding=padding)

    def forward(self, x: Any) -> Any:
        return self.function(x, self.kernel, self.stride, self.padding)


class MaxPool1d(Pool):
    """The largest value of each window of (N, C, W); see `dlprim.max_pool1d`."""

    function = staticmethod(dlprim.max_pool1d)


class Pool2d(Pool):
    """The same of images, checked when the layer is made."""

    @instead(kernel_size="kernel", ceil_mode="none: extents are rounded down", dilation="none")
    def __init__(self, kernel: Extent, stride: Extent | None = None, padding: Extent = 0) -> None:
        # What a stride of None means is the function's to say.
        step = None if stride is None else pair("stride", stride)
        super().__init__(pair("kernel", kernel), step, pair("padding", padding, 0))


class MaxPool2d(Pool2d):
    """The largest value of each window; arguments as for `dlprim.MaxPool2d`.

    Defaults are those of `torch.nn.MaxPool2d`, which has dilation and ceil_mode besides.
    """

    function = staticmethod(dlprim.max_pool2d)


class MaxPool3d(Pool):
    """The largest value of each window of (N, C, D, H, W); see `dlprim.max_pool3d`."""

    function = staticmethod(dlprim.max_pool3d)


class AvgPool1d(Pool):
    """The mean of each window of (N, C, W); see `dlprim.avg_pool1d`."""

    function = staticmethod(dlprim.avg_pool1d)


class AvgPool2d(Pool2d):
    """The mean of each window; arguments as for `dlprim.AvgPool2d`.

    Defaults are those of `torch.nn.AvgPool2d`, which has ceil_mode besides.
    """

    function = staticmethod(dlprim.avg_pool2d)

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
        super().__init__(kernel, stride, padding)
        self.count_include_pad = flag("count_include_pad", count_include_pad)

    def forward(self, x: Any) -> Any:
        how = (self.kernel, self.stride, self.padding)
        return self.function(x, *how, count_include_pad=self.count_include_pad)


class AvgPool3d(Pool):
    """The mean of each window of (N, C, D, H, W); see `dlprim.avg_pool3d`."""

    function = staticmethod(dlprim.avg_pool3d)


class GlobalAvgPool2d(Layer):
    """The mean over H and W, as features (N, C)."""

    def forward(self, x: Any) -> Any:
        if x.ndim != 4:
            raise ValueError(f"x of {label(self)} has shape {x.shape}, expected (N, C, H, W)")
        return np.mean(x, axis=(2, 3))


class Flatten(Layer):
    """(N, ...) as features (N, C * H * W), in PyTorch's order."""

    def forward(self, x: Any) -> Any:
        if not x.shape:
            raise ValueError(f"x of {label(self)} has no axis, expected (N, ...)")
        return x.reshape(x.shape[0], math.prod(x.shape[1:]))
