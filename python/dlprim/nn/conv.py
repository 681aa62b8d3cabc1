"""Convolution, alone or with the batch normalisation behind it, on packed activations.

Weights are packed in every training step, in the form that passes transform themselves. For
inference they are packed once, transformed, with batch normalisation folded in.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import dlprim
from dlprim.nn.context import Images
from dlprim.nn.module import Array, Module, Ready, finished
from dlprim.nn.norm import BatchNorm2d
from dlprim.nn.parameter import FloatArray, Parameter, drawn

Shape = tuple[int, int, int, int]


class Fused(NamedTuple):
    """What a convolution does besides, for inference."""

    activation: str | None = None
    residual: Array | None = None
    out: Array | None = None  # the place of the result, where the caller has one


_NOTHING = Fused()


class Conv2d(Module):
    """A convolution; arguments as for `dlprim.Conv2d`.

    Parameters
    ----------
    C, K : int
        Input and output channels.
    kernel : int
        R and S.
    stride, padding, groups : int
    bias : bool
    generator : numpy.random.Generator, optional
        Draws weights of variance 2 / (K * R * S) (arXiv 1502.01852, the mode that keeps the
        variance of gradients); zeros without it.
    first : bool
        Nothing in front of it needs a gradient, so `backward` returns None.
    """

    def __init__(
        self,
        C: int,
        K: int,
        kernel: int,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
        bias: bool = False,
        generator: np.random.Generator | None = None,
        first: bool = False,
    ) -> None:
        super().__init__()
        self.stride, self.padding, self.groups, self.first = stride, padding, groups, first
        shape = (K, C // groups, kernel, kernel)
        self.weight = Parameter(drawn(shape, generator, math.sqrt(2 / (K * kernel * kernel))))
        self.bias = Parameter(np.zeros(K, np.float32)) if bias else None
        self._primitives: dict[tuple[Any, ...], dlprim.Conv2d] = {}
        self._packed: dict[tuple[Any, ...], tuple[Array, FloatArray | None]] = {}
        self._src: Images | None = None
        self._used: tuple[dlprim.Conv2d, Array] | None = None

    def own_parameters(self) -> dict[str, Parameter]:
        found = {"weight": self.weight}
        return found if self.bias is None else found | {"bias": self.bias}

    def changed(self) -> None:
        self._packed.clear()

    def primitive(self, shape: Shape, bias: bool, activation: str | None = None) -> dlprim.Conv2d:
        """The primitive for inputs of a shape, made once."""
        context = self.context
        key = (shape, bias, activation, context.dtype_name, context.layout, context.algorithm)
        if key not in self._primitives:
            self._primitives[key] = dlprim.Conv2d(
                shape,
                self.weight.value.shape,
                stride=self.stride,
                padding=self.padding,
                groups=self.groups,
                dtype=context.dtype_name,
                layout=context.layout,
                algorithm=context.algorithm,
                activation=activation,
                bias=bias,
            )
        return self._primitives[key]

    def forward(self, x: Images, training: bool = True) -> Images:
        bias = None if self.bias is None else self.bias.value
        if not training:
            return self.infer(x, self.weight.value, bias)
        conv = self.primitive(x.shape, bias is not None)
        with self.context.timed(self.name, "pack"):
            packed = self._used[1] if self._used and self._used[0] is conv else None
            packed = conv.pack_weights(self.weight.value, packed, "direct")
        dst = self.context.buffers.take(conv.dst_shape, self.context.dtype)
        with self.context.timed(self.name, "forward", conv.flops):
            conv.forward(x.array, packed, bias, out=dst)
        self._src, self._used = x, (conv, packed)
        return Images(dst, images_shape(conv.y_shape))

    def infer(
        self,
        x: Images,
        weights: FloatArray,
        bias: FloatArray | None,
        fused: Fused = _NOTHING,
    ) -> Images:
        """The result with weights that stay until `changed`."""
        conv = self.primitive(x.shape, bias is not None, fused.activation)
        key = (conv.algorithms["forward"], conv.src_shape[1:], self.context.dtype_name)
        if key not in self._packed:
            packed = conv.pack_weights(weights, form="forward")
            self._packed[key] = (packed, None if bias is None else bias.copy())
        packed, offset = self._packed[key]
        dst = fused.out
        if dst is None:
            dst = self.context.buffers.take(conv.dst_shape, self.context.dtype)
        with self.context.timed(self.name, "inference", conv.flops):
            conv.forward(x.array, packed, offset, fused.residual, out=dst)
        return Images(dst, images_shape(conv.y_shape))

    def is_packed(self) -> bool:
        """Whether `infer` has weights for some shape already."""
        return bool(self._packed)

    def backward(self, dy: Images, ready: Ready | None = None) -> Images | None:
        assert self._src is not None
        assert self._used is not None
        (conv, packed), src, buffers = self._used, self._src, self.context.buffers
        self._packed.clear()
        if self.bias is not None:
            conv.diff_bias(dy.array, self.bias.gradient)
        diff_weights = buffers.take(conv.diff_weights_shape, np.float32)
        with self.context.timed(self.name, "backward weights", conv.flops):
            conv.backward_weights(src.array, dy.array, diff_weights)
        with self.context.timed(self.name, "pack"):
            conv.unpack_diff_weights(diff_weights, self.weight.gradient)
        buffers.give(diff_weights)
        finished(ready, *self.own_parameters().values())
        self._src = None
        diff_src = None
        if not self.first:
            out = buffers.take(conv.src_shape, self.context.dtype)
            with self.context.timed(self.name, "backward data", conv.flops):
                conv.backward_data(dy.array, packed, out)
            diff_src = Images(out, src.shape)
        buffers.give(dy.array)
        return diff_src


def images_shape(shape: tuple[int, ...]) -> Shape:
    """(N, C, H, W), by number and not only by use."""
    n, c, h, w = shape
    return n, c, h, w


class ConvBatchNorm(Module):
    """A convolution, batch normalisation, and the residual and relu that may follow.

    Parameters
    ----------
    conv : Conv2d
    norm : BatchNorm2d
    names : (str, str)
        Of the two in the state dict.
    """

    def __init__(self, conv: Conv2d, norm: BatchNorm2d, names: tuple[str, str]) -> None:
        super().__init__()
        self.conv, self.norm, self._names = conv, norm, names

    def children(self) -> dict[str, Module]:
        return dict(zip(self._names, (self.conv, self.norm), strict=True))

    def forward(
        self, x: Images, training: bool = True, residual: Array | None = None, into: bool = False
    ) -> Images:
        """With ``into`` the result takes the place of the residual."""
        if not training:
            return self._infer(x, residual, None)
        self.conv.changed()  # inference folds statistics in, which this pass moves
        between = self.conv.forward(x)
        self.context.observe(self.conv.name, between)
        return self.norm.forward(between, residual=residual, out=residual if into else None)

    def infer_into(self, x: Images, out: Array, residual: Array | None = None) -> None:
        self._infer(x, residual, out)

    def backward(self, dy: Images, ready: Ready | None = None) -> Images | None:
        return self.backward_branches(dy, ready)[0]

    def backward_branches(
        self, dy: Images, ready: Ready | None = None
    ) -> tuple[Images | None, Array | None]:
        """The gradients with respect to x and, where there was one, to the residual."""
        between, diff_residual = self.norm.backward_branches(dy, ready)
        return self.conv.backward(between, ready), diff_residual

    def _infer(self, x: Images, residual: Array | None, out: Array | None) -> Images:
        conv, norm = self.conv, self.norm
        weights, bias = conv.weight.value, norm.bias.value
        if not conv.is_packed():
            weights, bias = dlprim.fold_batch_norm(
                weights,
                None if conv.bias is None else conv.bias.value,
                norm.weight.value,
                norm.bias.value,
                norm.running_mean,
                norm.running_var,
                norm.epsilon,
            )
        fused = Fused("relu" if norm.relu else None, residual, out)
        return conv.infer(x, weights, bias, fused)
