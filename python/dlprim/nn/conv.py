"""Convolution of images; how their channels lie and how weights are packed the network decides."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import dlprim
from dlprim.arguments.instead import LAYER, instead
from dlprim.arguments.names import relu_or_none
from dlprim.arguments.scalars import flag, integer
from dlprim.arguments.traced import RUNNING
from dlprim.nn.arguments import Extent, fixed, padding_of, pair, shortest
from dlprim.nn.calls import label
from dlprim.nn.initial import generator_or_own, normal, uniform, zeros
from dlprim.nn.module import Module
from dlprim.nn.parameter import FloatArray, Parameter, of_layer

Shape = tuple[int, int, int, int]


class Conv2d(Module):
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

    weight: Parameter = of_layer(Parameter)
    bias: Parameter | None = of_layer(Parameter, or_none=True)
    stride, padding, dilation = fixed("stride"), fixed("padding"), fixed("dilation")
    groups, activation, first = fixed("groups"), fixed("activation"), fixed("first")

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
        super().__init__()
        for name, value in {"C": C, "K": K, "groups": groups}.items():
            integer(name, value, 1)
        if C % groups or K % groups:
            raise ValueError(f"groups is {groups}, expected a divisor of C = {C} and K = {K}")
        has_bias, self._first = flag("bias", bias), flag("first", first)
        self._stride, self._dilation = pair("stride", stride), pair("dilation", dilation)
        taps, self._groups = pair("kernel", kernel), groups
        self._padding = padding_of(padding, self.stride)
        self._activation = relu_or_none(activation)
        shape = (K, C // groups, *taps)
        weight, offset = _initial(shape, generator)
        self.weight = Parameter(weight)
        self.bias = Parameter(offset) if has_bias else None

    def arguments(self) -> dict[str, Any]:
        return {
            "C": self.weight.shape[1] * self.groups,
            "K": self.weight.shape[0],
            "kernel": shortest(self.weight.shape[2:]),
            "stride": shortest(self.stride),
            "padding": shortest(self.padding),
            "dilation": shortest(self.dilation),
            "groups": self.groups,
            "bias": self.bias is not None,
            "activation": self.activation,
            "first": self.first,
        }

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


def _initial(shape: Shape, generator: np.random.Generator | None) -> tuple[FloatArray, FloatArray]:
    """Weights of a shape, (K, C / groups, R, S), and bias."""
    K, C, *kernel = shape
    drawer, taps = generator_or_own(generator), math.prod(kernel)
    if generator is None:
        bound = 1 / math.sqrt(C * taps)
        return uniform(shape, drawer, bound), uniform((K,), drawer, bound)
    return normal(shape, drawer, math.sqrt(2 / (K * taps))), zeros((K,))
