"""Residual networks: ResNet-18 to ResNet-101 with the names of torchvision's state dict.

Source: arXiv 1512.03385, table 1; the stride stands in the 3x3 convolution, as torchvision has it.
The last normalisation of each block begins with weight 0, so that blocks begin as the identity
(arXiv 1706.02677, section 5.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dlprim.arguments.scalars import integer
from dlprim.nn.containers import Sequential
from dlprim.nn.context import Context
from dlprim.nn.conv import Conv2d
from dlprim.nn.initial import generator_or_own
from dlprim.nn.linear import Linear
from dlprim.nn.module import Module
from dlprim.nn.norm import BatchNorm2d
from dlprim.nn.pool import GlobalAvgPool2d, MaxPool2d
from dlprim.nn.residual import ConvBatchNorm, Residual

_EXPANSION = 4
_LEAST_DEEP = 50  # layers, from which on blocks are bottlenecks
_DEPTHS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


def _of_depth(depth: int) -> Callable[..., Sequential]:
    def make(
        classes: int = 1000,
        generator: np.random.Generator | None = None,
        context: Context | None = None,
    ) -> Sequential:
        is_deep = depth >= _LEAST_DEEP
        return resnet(_DEPTHS[depth], 64, classes, generator, context, bottleneck=is_deep)

    make.__name__ = make.__qualname__ = f"resnet{depth}"
    make.__doc__ = f"ResNet-{depth} for images (N, 3, H, W), as `resnet`; gives (N, classes)."
    return make


resnet18, resnet34, resnet50, resnet101 = map(_of_depth, _DEPTHS)


def resnet(
    blocks: Sequence[int],
    width: int,
    classes: int,
    generator: np.random.Generator | None = None,
    context: Context | None = None,
    *,
    bottleneck: bool = True,
) -> Sequential:
    """A residual network of any depth.

    Parameters
    ----------
    blocks : sequence of int
        How many each stage has; each stage but the first halves the size and doubles channels.
    width : int
        Channels inside the blocks of the first stage; 64 in ResNet-50.
    classes : int
    generator : numpy.random.Generator, optional
        Draws the parameters; `dlprim.nn.seed`'s without it.
    context : Context, optional
    bottleneck : bool
        Whether blocks are of three convolutions, with four times as many channels around them; else
        of two.
    """
    generator = generator_or_own(generator)
    stem = Conv2d(3, width, 7, stride=2, padding=3, bias=False, generator=generator, first=True)
    layers: dict[str, Module] = {
        "": ConvBatchNorm(stem, BatchNorm2d(width, activation="relu"), ("conv1", "bn1")),
        "maxpool": MaxPool2d(3, 2, 1),
    }
    channels = width
    for stage, count in enumerate(blocks):
        integer(f"blocks[{stage}]", count, 1)
        inner = width << stage
        made: dict[str, Module] = {}
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            made[str(block)] = _block(channels, inner, stride, bottleneck, generator)
            channels = _EXPANSION * inner if bottleneck else inner
        layers[f"layer{stage + 1}"] = Sequential(made)
    layers["avgpool"] = GlobalAvgPool2d()
    scale = channels**-0.5
    layers["fc"] = Linear(channels, classes, generator=generator, scale=scale)
    model = Sequential(layers)
    model.use(Context() if context is None else context)
    return model


def _block(
    C: int, inner: int, stride: int, bottleneck: bool, generator: np.random.Generator
) -> Residual:
    def conv(c: int, k: int, kernel: int, step: int) -> Conv2d:
        return Conv2d(c, k, kernel, step, kernel // 2, bias=False, generator=generator)

    # Channels, kernel and stride of each convolution.
    sizes = [(C, inner, 3, stride), (inner, inner, 3, 1)]
    if bottleneck:
        K = _EXPANSION * inner
        sizes = [(C, inner, 1, 1), (inner, inner, 3, stride), (inner, K, 1, 1)]
    main = []
    for place, size in enumerate(sizes, 1):
        weight = 0 if place == len(sizes) else 1
        norm = BatchNorm2d(size[1], activation="relu", weight=weight)
        main.append(ConvBatchNorm(conv(*size), norm, (f"conv{place}", f"bn{place}")))
    K = sizes[-1][1]
    if stride == 1 and C == K:
        return Residual(main)
    names = ("downsample.0", "downsample.1")
    return Residual(main, ConvBatchNorm(conv(C, K, 1, stride), BatchNorm2d(K), names))
