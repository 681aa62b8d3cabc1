"""Convolutions and pools along one and three axes, and transposed convolutions."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

import dlprim
from dlprim.arguments.instead import LAYER, instead
from dlprim.arguments.scalars import flag, integer
from dlprim.functions.conv.windows import steps
from dlprim.nn.initial import generator_or_own, uniform
from dlprim.nn.layer import Layer
from dlprim.nn.parameter import Parameter, of_layer


class Convolution(Layer):
    """What convolutions share: parameters as PyTorch draws them.

    Attributes
    ----------
    axes : int
        Of the class: how many the images have.
    """

    axes: ClassVar[int]
    weight: Parameter = of_layer(Parameter)
    bias: Parameter | None = of_layer(Parameter, or_none=True)

    def _draw(self, shape: tuple[int, int], K: int, bias: bool, generator: Any) -> None:
        """Weights of two first extents and the taps, and a bias."""
        for name in ("C", "K", "groups"):
            integer(name, getattr(self, name), 1)
        if self.C % self.groups or K % self.groups:
            raise ValueError(
                f"groups is {self.groups}, expected a divisor of C = {self.C} and K = {K}"
            )
        taps = steps("kernel", self.kernel, self.axes, 1)
        bound = 1 / math.sqrt(shape[1] * math.prod(taps))
        drawer = generator_or_own(generator)
        self.weight = Parameter(uniform((*shape, *taps), drawer, bound))
        self.bias = Parameter(uniform((K,), drawer, bound)) if flag("bias", bias) else None

    C: int
    groups: int
    kernel: Any


class _Ordinary(Convolution):
    """``C, K, kernel, stride, padding``, and the rest by name, as of `Conv2d`."""

    @instead(in_channels="C", out_channels="K", kernel_size="kernel", **LAYER)
    def __init__(
        self,
        C: int,
        K: int,
        kernel: Any,
        stride: Any = 1,
        padding: Any = 0,
        *,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        generator: np.random.Generator | None = None,
    ) -> None:
        super().__init__()
        self.C, self.K, self.kernel, self.stride, self.padding = C, K, kernel, stride, padding
        self.dilation, self.groups = dilation, groups
        self._draw((K, C // max(1, groups)), K, bias, generator)

    def forward(self, x: Any) -> Any:
        how = (self.stride, self.padding, self.dilation, self.groups)
        function = dlprim.conv1d if self.axes == 1 else dlprim.conv3d
        return function(x, self.weight, self.bias, *how)


class Conv1d(_Ordinary):
    """A convolution of (N, C, W), as `torch.nn.Conv1d` has it; arguments as of `dlprim.conv1d`."""

    axes = 1


class Conv3d(_Ordinary):
    """A convolution of (N, C, D, H, W), as `torch.nn.Conv3d`; arguments as of `dlprim.conv3d`."""

    axes = 3


class _Transposed(Convolution):
    """Arguments as of `dlprim.conv_transpose2d`; those behind ``output_padding`` by name."""

    @instead(in_channels="C", out_channels="K", kernel_size="kernel", **LAYER)
    def __init__(
        self,
        C: int,
        K: int,
        kernel: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        *,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        generator: np.random.Generator | None = None,
    ) -> None:
        super().__init__()
        self.C, self.K, self.kernel, self.stride, self.padding = C, K, kernel, stride, padding
        self.output_padding, self.groups, self.dilation = output_padding, groups, dilation
        self._draw((C, K // max(1, groups)), K, bias, generator)

    def forward(self, x: Any) -> Any:
        how = (self.stride, self.padding, self.output_padding, self.groups, self.dilation)
        functions = (dlprim.conv_transpose1d, dlprim.conv_transpose2d, dlprim.conv_transpose3d)
        return functions[self.axes - 1](x, self.weight, self.bias, *how)


class ConvTranspose1d(_Transposed):
    """The gradient of a convolution by its input, of (N, C, W): `torch.nn.ConvTranspose1d`."""

    axes = 1


class ConvTranspose2d(_Transposed):
    """The same of (N, C, H, W): `torch.nn.ConvTranspose2d`."""

    axes = 2


class ConvTranspose3d(_Transposed):
    """The same of (N, C, D, H, W): `torch.nn.ConvTranspose3d`."""

    axes = 3


# ---------------------------------------------------------------- windows


class _Pool(Layer):
    function: ClassVar[Any]

    @instead(kernel_size="kernel", ceil_mode="none: extents are rounded down", dilation="none")
    def __init__(self, kernel: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel, self.stride, self.padding = kernel, stride, padding

    def forward(self, x: Any) -> Any:
        return self.function(x, self.kernel, self.stride, self.padding)


class MaxPool1d(_Pool):
    """The largest value of each window of (N, C, W); see `dlprim.max_pool1d`."""

    function = staticmethod(dlprim.max_pool1d)


class MaxPool3d(_Pool):
    """The largest value of each window of (N, C, D, H, W); see `dlprim.max_pool3d`."""

    function = staticmethod(dlprim.max_pool3d)


class AvgPool1d(_Pool):
    """The mean of each window of (N, C, W); see `dlprim.avg_pool1d`."""

    function = staticmethod(dlprim.avg_pool1d)


class AvgPool3d(_Pool):
    """The mean of each window of (N, C, D, H, W); see `dlprim.avg_pool3d`."""

    function = staticmethod(dlprim.avg_pool3d)
