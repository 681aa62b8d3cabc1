"""Convolution on packed activations.

Weights are packed in every training step, in the form that passes transform themselves. For
inference they are packed once, transformed, with the batch normalisation of conv_batch_norm.py
folded in.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

import dlprim
from dlprim.arguments.instead import LAYER, instead
from dlprim.arguments.names import relu_or_none
from dlprim.arguments.scalars import flag, integer
from dlprim.nn.arguments import Extent, fixed, padding_of, pair, shortest
from dlprim.nn.context import Images
from dlprim.nn.images import in_blocks
from dlprim.nn.initial import generator_or_own, normal, uniform, zeros
from dlprim.nn.module import Array, Module, Ready, finished
from dlprim.nn.parameter import FloatArray, Parameter, of_layer
from dlprim.nn.passes import backward_pass, forward_pass
from dlprim.nn.recent import Recent

Shape = tuple[int, int, int, int]
Stamp: TypeAlias = tuple[Any, ...]


class Folding(Protocol):
    """Who knows the weights and the bias of a convolution for inference."""

    def folded(self) -> tuple[FloatArray, FloatArray | None]:
        """Both, plain."""

    def stamp(self) -> Stamp:
        """Another one whenever they are."""


class Fused(NamedTuple):
    """What a convolution does besides, for inference."""

    activation: str | None = None
    residual: Array | None = None
    out: Array | None = None  # the place of the result, where the caller has one


_NOTHING = Fused()


class Prepared(NamedTuple):
    """What inference needs for images of a shape, looked up at once."""

    conv: dlprim.Conv2d
    weights: Array
    bias: FloatArray | None
    flops: float
    dst_shape: tuple[int, ...]
    y_shape: Shape


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
        In the blocked layout no block crosses groups (unless groups = C = K), so activations whose
        blocks do are packed anew in front of and behind it; with "NHWC" they never are.
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

    takes_images = True
    of_passes = (
        "_primitives",
        "_packed",
        "_prepared",
        "_stamp",
        "_src",
        "_given",
        "_used",
        "_mask",
    )
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
        self._is_whole = groups == 1 or groups == C == K
        shape = (K, C // groups, *taps)
        weight, offset = _initial(shape, generator)
        self.weight = Parameter(weight)
        self.bias = Parameter(offset) if has_bias else None
        self._primitives: Recent[tuple[Any, ...], dlprim.Conv2d] = Recent()
        self._packed: dict[tuple[Any, ...], tuple[Array, FloatArray | None]] = {}
        self._prepared: Recent[tuple[Any, ...], Prepared] = Recent()
        self._stamp: Stamp | None = None  # of what is packed
        self._src: Images | None = None  # of the latest training forward, in its own blocks
        self._given: Images | None = None  # as it was given
        self._used: tuple[dlprim.Conv2d, Array] | None = None
        self._mask: Array | None = None  # where relu let the latest result through

    @property
    def blocks(self) -> int:
        """The groups of the blocks of channels that it takes and gives."""
        return 1 if self._is_whole or self.context.layout == "NHWC" else self.groups

    def stamp(self) -> Stamp:
        """Another one whenever weights or bias are."""
        return self.weight.version, None if self.bias is None else self.bias.version

    def folded(self) -> tuple[FloatArray, FloatArray | None]:
        return self.weight.held, None if self.bias is None else self.bias.held

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

    def changed(self) -> None:
        super().changed()
        self._drop()

    def _drop(self) -> None:
        """What was made of parameters."""
        self._packed.clear()
        self._prepared.clear()

    def primitive(self, shape: Shape, bias: bool, activation: str | None = None) -> dlprim.Conv2d:
        """The primitive for inputs of a shape, made once."""
        context = self.context
        key = (shape, bias, activation, context.dtype_name, context.layout, context.algorithm)
        if key not in self._primitives:
            self._require_channels(shape)
            self._primitives[key] = dlprim.Conv2d(
                shape,
                self.weight.shape,
                stride=self.stride,
                padding=self.padding,
                dilation=self.dilation,
                groups=self.groups,
                dtype=context.dtype_name,
                layout=context.layout,
                algorithm=context.algorithm,
                activation=activation,
                bias=bias,
            )
        return self._primitives[key]

    def _require_channels(self, shape: Shape) -> None:
        C = self.weight.shape[1] * self.groups
        if shape[1] == C:
            return
        turned = ""
        if shape[3] == C:
            turned = "; images with channels last are turned by x.transpose(0, 3, 1, 2)"
        raise ValueError(
            f"x of Conv2d {self.name!r} has shape {shape}, expected (N, {C}, H, W){turned}"
        )

    def traced(self, x: Any) -> Any:
        how = (self.stride, self.padding, self.dilation, self.groups)
        return dlprim.conv2d(x, self.weight, self.bias, *how, activation=self.activation)

    @forward_pass
    def forward(self, x: Images, training: bool | None = None) -> Images:
        bias = None if self.bias is None else self.bias.held
        if not training:
            current = (self.weight.current, None if self.bias is None else self.bias.current)
            return self.infer(x, self, current, Fused(self.activation))
        blocks, self._given = self.blocks, x
        if x.groups != blocks:
            x = in_blocks(x, blocks, self)
        conv = self.primitive(x.shape, bias is not None, self.activation)
        with self.context.timed(self.name, "pack"):
            packed = self._used[1] if self._used and self._used[0] is conv else None
            packed = conv.pack_weights(self.weight.held, packed, form="direct")
        dst = self.context.buffers.take(conv.dst_shape, self.context.dtype)
        mask = None
        if self.activation is not None:
            mask = self.context.buffers.take(conv.relu_mask_shape, np.uint8)
        with self.context.timed(self.name, "forward", conv.flops):
            conv.forward(x.array, packed, bias, out=dst, relu_mask=mask)
        self._src, self._used, self._mask = x, (conv, packed), mask
        return Images(dst, images_shape(conv.y_shape), blocks)

    def infer(self, x: Images, by: Folding, current: Stamp, fused: Fused = _NOTHING) -> Images:
        """The result with the weights and the bias that `by` says, which is asked for each new
        shape, or where ``current``, the versions as far as they are known, are others."""
        if current != self._stamp:
            stamp = by.stamp()
            if stamp != self._stamp:
                self._drop()
                self._stamp = stamp
        context, given, blocks = self.context, x, self.blocks
        if x.groups != blocks:
            x = in_blocks(x, blocks, self)
        key = (x.shape, fused.activation, context.dtype_name, context.layout, context.algorithm)
        ready = self._prepared.get(key)
        if ready is None:
            ready = self._prepared[key] = self._prepare(x.shape, by, fused.activation)
        dst = fused.out
        if dst is None:
            dst = context.buffers.take(ready.dst_shape, context.dtype)
        with context.timed(self.name, "inference", ready.flops):
            ready.conv.forward(x.array, ready.weights, ready.bias, fused.residual, out=dst)
        if x.array is not given.array:
            context.buffers.give(x.array)
        return Images(dst, ready.y_shape, blocks)

    def _prepare(self, shape: Shape, by: Folding, activation: str | None) -> Prepared:
        weights, bias = by.folded()
        conv = self.primitive(shape, bias is not None, activation)
        # whatever the number of images and their size
        form = conv._core.weights_shape("forward"), conv._core.algorithm("forward")
        key = (*form, conv.layout, self.context.dtype_name)
        if key not in self._packed:
            packed = conv.pack_weights(weights, form="forward")
            self._packed[key] = (packed, None if bias is None else bias.copy())
        packed, offset = self._packed[key]
        y_shape = images_shape(conv.y_shape)
        return Prepared(conv, packed, offset, conv.flops, conv.dst_shape, y_shape)

    @backward_pass
    def backward(self, dy: Images, ready: Ready | None = None) -> Images | None:
        assert self._src is not None
        assert self._used is not None
        assert self._given is not None
        (conv, packed), src, buffers = self._used, self._src, self.context.buffers
        self._drop()  # which training leaves no use for
        total = None if self.bias is None else self.bias.gradient
        mask, self._mask = self._mask, None
        if mask is not None:
            conv.backward_relu(dy.array, relu_mask=mask, out=dy.array, diff_bias=total)
            buffers.give(mask)
        elif total is not None:
            conv.diff_bias(dy.array, total)
        diff_weights = buffers.take(conv.diff_weights_shape, np.float32)
        with self.context.timed(self.name, "backward weights", conv.flops):
            conv.backward_weights(src.array, dy.array, diff_weights)
        with self.context.timed(self.name, "pack"):
            conv.unpack_diff_weights(diff_weights, self.weight.gradient)
        buffers.give(diff_weights)
        finished(ready, self.weight, self.bias)
        given, self._src, self._given = self._given, None, None
        diff_src = None
        if not self.first:
            out = buffers.take(conv.src_shape, self.context.dtype)
            with self.context.timed(self.name, "backward data", conv.flops):
                conv.backward_data(dy.array, packed, out)
            diff_src = Images(out, src.shape, self.blocks)
            if given.groups != diff_src.groups:
                diff_src = in_blocks(diff_src, given.groups, self)
                buffers.give(None if diff_src.array is out else out)
        buffers.give(dy.array, None if src.array is given.array else src.array)
        return diff_src


def _initial(shape: Shape, generator: np.random.Generator | None) -> tuple[FloatArray, FloatArray]:
    """Weights of a shape, (K, C / groups, R, S), and bias."""
    K, C, *kernel = shape
    drawer, taps = generator_or_own(generator), math.prod(kernel)
    if generator is None:
        bound = 1 / math.sqrt(C * taps)
        return uniform(shape, drawer, bound), uniform((K,), drawer, bound)
    return normal(shape, drawer, math.sqrt(2 / (K * taps))), zeros((K,))


def images_shape(shape: tuple[int, ...]) -> Shape:
    """(N, C, H, W), by number and not only by use."""
    n, c, h, w = shape
    return n, c, h, w
