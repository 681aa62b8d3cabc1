"""Convolutions and transposed ones along one, two and three axes.

How channels lie and how weights are packed the network decides.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

import dlprim
from dlprim.arguments.instead import LAYER, instead
from dlprim.arguments.names import relu_or_none
from dlprim.arguments.scalars import flag, integer
from dlprim.arguments.traced import RUNNING
from dlprim.functions.conv.windows import steps
from dlprim.nn.calls import label
from dlprim.nn.layer import Extent, Pair, Told, Weighted, fixed, pair, shortest


class Convolution(Weighted):
    """``C, K, kernel, stride, padding``, and the rest by name, as of `Conv2d`.

    Attributes
    ----------
    function : function
        Of the class: what it computes.
    axes : int
        Of the class: how many the images have.
    is_transposed : bool
        Of the class.
    """

    function: ClassVar[Any]
    axes: ClassVar[int] = 2
    is_transposed: ClassVar[bool] = False
    stride: Any
    padding: Any
    dilation: Any
    groups: int

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
        for name, value in {"C": C, "K": K, "groups": groups}.items():
            integer(name, value, 1)
        if C % groups or K % groups:
            raise ValueError(f"groups is {groups}, expected a divisor of C = {C} and K = {K}")
        self._keep(stride=stride, padding=padding, dilation=dilation, groups=groups)
        first, second = (C, K) if self.is_transposed else (K, C)
        shape = (first, second // groups, *steps("kernel", kernel, self.axes, 1))
        self._draw(shape, K if bias else 0, bias, generator)

    @Told
    def C(self) -> int:
        first, second, *_ = self.weight.shape
        return int(first if self.is_transposed else second * self.groups)

    @Told
    def K(self) -> int:
        first, second, *_ = self.weight.shape
        return int(second * self.groups if self.is_transposed else first)

    @Told
    def kernel(self) -> Any:
        return shortest(self.weight.shape[2:])

    def forward(self, x: Any) -> Any:
        how = (self.stride, self.padding, self.dilation, self.groups)
        return self.function(x, self.weight, self.bias, *how)


class Conv1d(Convolution):
    """A convolution of (N, C, W), as `torch.nn.Conv1d` has it; arguments as of `dlprim.conv1d`."""

    axes, function = 1, staticmethod(dlprim.conv1d)


class Conv2d(Convolution):
    """A convolution, with relu if wanted; defaults and meanings as `torch.nn.Conv2d` has them.

    Beyond PyTorch it takes an activation, paddings that differ from side to side, ``generator`` and
    ``first``; what stands behind ``padding`` goes by name. There is no padding_mode.

    Parameters
    ----------
    C, K : int
        Input and output channels.
    kernel, stride, dilation : int or (height, width)
    padding : int, (height, width), ((top, bottom), (left, right)), "same" or "valid"
        Zeros around the input. "same" makes the result as large as the input, for stride 1; "valid"
        is none.
    groups : int
    bias : bool
        Superfluous in front of a normalisation.
    activation : None or "relu"
    generator : numpy.random.Generator, optional
        Draws normal weights of variance 2 / (K * R * S) (arXiv 1502.01852, the mode that keeps the
        variance of gradients), and the bias is zero. Without it `dlprim.nn.seed`'s draws weights
        and bias uniformly from +-1 / sqrt(C / groups * R * S), as PyTorch does.
    first : bool
        Nothing in front of it needs a gradient, so `backward` returns None.

    Raises
    ------
    TypeError, ValueError
        A number is no integer or outside its range, groups does not divide C and K, bias or first
        is no bool, or activation another one.
    """

    stride, padding, dilation = fixed(), fixed(), fixed()
    groups, activation, first = fixed(), fixed(), fixed()

    @instead(
        in_channels="C",
        out_channels="K",
        kernel_size="kernel",
        padding_mode="a padding layer in front, such as nn.ReflectionPad2d",
        **LAYER,
    )
    def __init__(
        self,
        C: int,
        K: int,
        kernel: Extent,
        stride: Extent = 1,
        padding: Any = 0,
        *,
        dilation: Extent = 1,
        groups: int = 1,
        bias: bool = True,
        activation: str | None = None,
        generator: np.random.Generator | None = None,
        first: bool = False,
    ) -> None:
        step = pair("stride", stride)
        super().__init__(
            C,
            K,
            pair("kernel", kernel),
            step,
            _padding_of(padding, step),
            dilation=pair("dilation", dilation),
            groups=groups,
            bias=bias,
            generator=generator,
        )
        self._keep(activation=relu_or_none(activation), first=flag("first", first))

    def _draw(
        self,
        shape: tuple[int, ...],
        K: int,
        bias: bool,
        generator: Any,
        deviation: float | None = None,
    ) -> None:
        if generator is not None:
            deviation = math.sqrt(2 / (shape[0] * math.prod(shape[2:])))
        super()._draw(shape, shape[0], bias, generator, deviation)  # a bias is drawn in any case

    def forward(self, x: Any) -> Any:
        C = self.weight.shape[1] * self.groups
        if x.ndim != 4 or x.shape[1] != C:
            turned = ""
            if x.ndim == 4 and x.shape[3] == C:
                turned = "; images with channels last are turned by x.transpose(0, 3, 1, 2)"
            raise ValueError(
                f"x of {label(self)} has shape {x.shape}, expected (N, {C}, H, W){turned}"
            )
        if self.first:
            RUNNING.tracer.end(x)
        how = (self.stride, self.padding, self.dilation, self.groups)
        return dlprim.conv2d(x, self.weight, self.bias, *how, activation=self.activation)


class Conv3d(Convolution):
    """A convolution of (N, C, D, H, W), as `torch.nn.Conv3d`; arguments as of `dlprim.conv3d`."""

    axes, function = 3, staticmethod(dlprim.conv3d)


class Transposed(Convolution):
    """Arguments as of `dlprim.conv_transpose2d`; those behind ``output_padding`` by name."""

    is_transposed = True

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
        how: dict[str, Any] = {"dilation": dilation, "groups": groups, "bias": bias}
        super().__init__(C, K, kernel, stride, padding, **how, generator=generator)
        self.output_padding = output_padding

    def forward(self, x: Any) -> Any:
        how = (self.stride, self.padding, self.output_padding, self.groups, self.dilation)
        return self.function(x, self.weight, self.bias, *how)


class ConvTranspose1d(Transposed):
    """The gradient of a convolution by its input, of (N, C, W): `torch.nn.ConvTranspose1d`."""

    axes, function = 1, staticmethod(dlprim.conv_transpose1d)


class ConvTranspose2d(Transposed):
    """The same of (N, C, H, W): `torch.nn.ConvTranspose2d`."""

    function = staticmethod(dlprim.conv_transpose2d)


class ConvTranspose3d(Transposed):
    """The same of (N, C, D, H, W): `torch.nn.ConvTranspose3d`."""

    axes, function = 3, staticmethod(dlprim.conv_transpose3d)


def _padding_of(padding: Any, stride: Pair) -> tuple[Pair, Pair] | str:
    """((top, bottom), (left, right)), or "same"."""
    if isinstance(padding, str):
        if padding == "valid":
            return (0, 0), (0, 0)
        if padding != "same":
            raise ValueError(f"padding is {padding!r}, expected 'same', 'valid' or numbers")
        if stride != (1, 1):
            raise ValueError(f"padding is 'same' and stride is {stride}, expected a stride of 1")
        return padding
    if not isinstance(padding, tuple | list) or len(padding) != 2:
        height, width = pair("padding", padding, 0)
        return (height, height), (width, width)
    height, width = padding
    return (
        pair("padding[0]", height, 0, "(top, bottom)"),
        pair("padding[1]", width, 0, "(left, right)"),
    )
