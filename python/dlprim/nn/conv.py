"""Convolution, alone or with the batch normalisation behind it, on packed activations.

Weights are packed in every training step, in the form that passes transform themselves. For
inference they are packed once, transformed, with batch normalisation folded in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import dlprim
from dlprim.arguments.scalars import flag, integer
from dlprim.nn.context import Images
from dlprim.nn.images import in_blocks
from dlprim.nn.initial import generator_or_own, normal, uniform, zeros
from dlprim.nn.module import Array, Module, Ready, finished
from dlprim.nn.norm import BatchNorm2d
from dlprim.nn.parameter import FloatArray, Parameter
from dlprim.nn.passes import backward_pass, forward_pass

Shape = tuple[int, int, int, int]
Source: TypeAlias = Callable[[], tuple[FloatArray, FloatArray | None]]


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
    """A convolution; arguments as for `dlprim.Conv2d`.

    Parameters
    ----------
    C, K : int
        Input and output channels.
    kernel : int
        R and S.
    stride, padding, groups : int
        In the blocked layout no block crosses groups (unless groups = C = K), so activations whose
        blocks do are packed anew in front of and behind it; with "NHWC" they never are.
    bias : bool
    generator : numpy.random.Generator, optional
        Draws normal weights of variance 2 / (K * R * S) (arXiv 1502.01852, the mode that keeps the
        variance of gradients), and the bias is zero. Without it `dlprim.nn.seed`'s draws weights
        and bias uniformly from +-1 / sqrt(C / groups * R * S), as PyTorch does.
    first : bool
        Nothing in front of it needs a gradient, so `backward` returns None.

    Raises
    ------
    TypeError, ValueError
        A number is no integer or outside its range, groups does not divide C and K, or bias or
        first is no bool.
    """

    takes_images = True
    of_passes = ("_primitives", "_packed", "_prepared", "_src", "_given", "_used")

    def __init__(
        self,
        C: int,
        K: int,
        kernel: int,
        stride: int = 1,
        padding: int = 0,
        *,
        groups: int = 1,
        bias: bool = False,
        generator: np.random.Generator | None = None,
        first: bool = False,
    ) -> None:
        super().__init__()
        at_least_one = {"C": C, "K": K, "kernel": kernel, "stride": stride, "groups": groups}
        for name, value in at_least_one.items():
            integer(name, value, 1)
        integer("padding", padding, 0)
        if C % groups or K % groups:
            raise ValueError(f"groups is {groups}, expected a divisor of C = {C} and K = {K}")
        has_bias, self.first = flag("bias", bias), flag("first", first)
        self.stride, self.padding, self.groups = stride, padding, groups
        self._is_whole = groups == 1 or groups == C == K
        shape = (K, C // groups, kernel, kernel)
        weight, offset = _initial(shape, generator)
        self.weight = Parameter(weight)
        self.bias = Parameter(offset) if has_bias else None
        self._primitives: dict[tuple[Any, ...], dlprim.Conv2d] = {}
        self._packed: dict[tuple[Any, ...], tuple[Array, FloatArray | None]] = {}
        self._prepared: dict[tuple[Any, ...], Prepared] = {}
        self._src: Images | None = None  # of the latest training forward, in its own blocks
        self._given: Images | None = None  # as it was given
        self._used: tuple[dlprim.Conv2d, Array] | None = None

    @property
    def blocks(self) -> int:
        """The groups of the blocks of channels that it takes and gives."""
        return 1 if self._is_whole or self.context.layout == "NHWC" else self.groups

    def own_parameters(self) -> dict[str, Parameter]:
        found = {"weight": self.weight}
        return found if self.bias is None else found | {"bias": self.bias}

    def changed(self) -> None:
        self._packed.clear()
        self._prepared.clear()

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

    @forward_pass
    def forward(self, x: Images, training: bool = True) -> Images:
        bias = None if self.bias is None else self.bias.value
        if not training:
            return self.infer(x, lambda: (self.weight.value, bias))
        blocks, self._given = self.blocks, x
        if x.groups != blocks:
            x = in_blocks(x, blocks, self)
        conv = self.primitive(x.shape, bias is not None)
        with self.context.timed(self.name, "pack"):
            packed = self._used[1] if self._used and self._used[0] is conv else None
            packed = conv.pack_weights(self.weight.value, packed, form="direct")
        dst = self.context.buffers.take(conv.dst_shape, self.context.dtype)
        with self.context.timed(self.name, "forward", conv.flops):
            conv.forward(x.array, packed, bias, out=dst)
        self._src, self._used = x, (conv, packed)
        return Images(dst, images_shape(conv.y_shape), blocks)

    def infer(self, x: Images, source: Source, fused: Fused = _NOTHING) -> Images:
        """The result with weights and a bias that stay until `changed`: what `source` says, which
        is asked for each new shape."""
        context, given, blocks = self.context, x, self.blocks
        if x.groups != blocks:
            x = in_blocks(x, blocks, self)
        key = (x.shape, fused.activation, context.dtype_name, context.layout, context.algorithm)
        ready = self._prepared.get(key)
        if ready is None:
            ready = self._prepared[key] = self._prepare(x.shape, source, fused.activation)
        dst = fused.out
        if dst is None:
            dst = context.buffers.take(ready.dst_shape, context.dtype)
        with context.timed(self.name, "inference", ready.flops):
            ready.conv.forward(x.array, ready.weights, ready.bias, fused.residual, out=dst)
        if x.array is not given.array:
            context.buffers.give(x.array)
        return Images(dst, ready.y_shape, blocks)

    def _prepare(self, shape: Shape, source: Source, activation: str | None) -> Prepared:
        weights, bias = source()
        conv = self.primitive(shape, bias is not None, activation)
        # whatever the number of images
        key = (conv.algorithms["forward"], conv.src_shape[1:], self.context.dtype_name)
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
        self.changed()
        if self.bias is not None:
            conv.diff_bias(dy.array, self.bias.gradient)
        diff_weights = buffers.take(conv.diff_weights_shape, np.float32)
        with self.context.timed(self.name, "backward weights", conv.flops):
            conv.backward_weights(src.array, dy.array, diff_weights)
        with self.context.timed(self.name, "pack"):
            conv.unpack_diff_weights(diff_weights, self.weight.gradient)
        buffers.give(diff_weights)
        finished(ready, *self.own_parameters().values())
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


class ConvBatchNorm(Module):
    """A convolution, batch normalisation, and the residual and relu that may follow.

    Parameters
    ----------
    conv : Conv2d
    norm : BatchNorm2d
    names : (str, str)
        Of the two in the state dict.
    """

    takes_images = True

    def __init__(self, conv: Conv2d, norm: BatchNorm2d, names: tuple[str, str]) -> None:
        super().__init__()
        self.conv, self.norm, self._names = conv, norm, names
        self._contain()
        self.use(self.context)

    def _contained(self) -> dict[str, Module]:
        return {"conv": self.conv, "norm": self.norm}

    def children(self) -> dict[str, Module]:
        return dict(zip(self._names, (self.conv, self.norm), strict=True))

    @property
    def result_name(self) -> str:
        return self.name or self.norm.name

    @forward_pass
    def forward(
        self, x: Images, training: bool = True, residual: Array | None = None, into: bool = False
    ) -> Images:
        """With ``into`` the result takes the place of the residual."""
        into = flag("into", into)
        if not training:
            return self._infer(x, residual, residual if into else None)
        self.conv.changed()  # inference folds statistics in, which this pass moves
        between = self.conv.forward(x)
        self.context.observe(self.conv.name, between)
        return self.norm.forward(between, residual=residual, out=residual if into else None)

    def infer_into(self, x: Images, out: Array, residual: Array | None = None) -> None:
        self._infer(x, residual, out)

    @backward_pass
    def backward(self, dy: Images, ready: Ready | None = None) -> Images | None:
        return self.backward_branches(dy, ready)[0]

    def backward_branches(
        self, dy: Images, ready: Ready | None = None
    ) -> tuple[Images | None, Array | None]:
        """The gradients with respect to x and, where there was one, to the residual."""
        between, diff_residual = self.norm.backward_branches(dy, ready)
        return self.conv.backward(between, ready), diff_residual

    def _infer(self, x: Images, residual: Array | None, out: Array | None) -> Images:
        fused = Fused("relu" if self.norm.relu else None, residual, out)
        return self.conv.infer(x, self._folded, fused)

    def _folded(self) -> tuple[FloatArray, FloatArray]:
        conv, norm = self.conv, self.norm
        return dlprim.fold_batch_norm(
            conv.weight.value,
            None if conv.bias is None else conv.bias.value,
            running_mean=norm.running_mean,
            running_var=norm.running_var,
            norm_weight=norm.weight.value,
            norm_bias=norm.bias.value,
            eps=norm.epsilon,
        )
