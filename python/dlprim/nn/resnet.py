"""Residual networks with bottlenecks: ResNet-50 with the names of torchvision's state dict.

Source: arXiv 1512.03385, table 1; the stride stands in the 3x3 convolution, as torchvision has it.
The last normalisation of each block begins with weight 0, so that blocks begin as the identity
(arXiv 1706.02677, section 5.1).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlprim.arguments.scalars import integer
from dlprim.nn.containers import Pack, Sequential, Sliced
from dlprim.nn.context import Context
from dlprim.nn.conv import Conv2d
from dlprim.nn.conv_batch_norm import ConvBatchNorm
from dlprim.nn.initial import generator_or_own
from dlprim.nn.linear import Linear
from dlprim.nn.module import Module
from dlprim.nn.norm import BatchNorm2d
from dlprim.nn.pool import GlobalAvgPool2d, MaxPool2d
from dlprim.nn.residual import Residual

_EXPANSION = 4
_EARLY_STAGES = 2  # whose activations are large and weights small
_IMAGES = 4  # that inference takes through them at a time: they fit into a cache of 32 MB


def resnet50(
    classes: int = 1000,
    generator: np.random.Generator | None = None,
    context: Context | None = None,
) -> Sequential:
    """ResNet-50 for float32 images (N, 3, H, W); the result is (N, classes)."""
    return resnet((3, 4, 6, 3), 64, classes, generator, context)


def resnet(
    blocks: Sequence[int],
    width: int,
    classes: int,
    generator: np.random.Generator | None = None,
    context: Context | None = None,
) -> Sequential:
    """A residual network of any depth.

    Parameters
    ----------
    blocks : sequence of int
        Bottlenecks of each stage; each stage but the first halves the size and doubles channels.
    width : int
        Channels inside the bottlenecks of the first stage; 64 in ResNet-50.
    classes : int
    generator : numpy.random.Generator, optional
        Draws the parameters; `dlprim.nn.seed`'s without it.
    context : Context, optional
    """
    generator = generator_or_own(generator)
    stem = Conv2d(3, width, 7, stride=2, padding=3, bias=False, generator=generator, first=True)
    early: dict[str, Module] = {
        "": ConvBatchNorm(stem, BatchNorm2d(width, activation="relu"), ("conv1", "bn1")),
        "maxpool": MaxPool2d(3, 2, 1),
    }
    late: dict[str, Module] = {}
    channels = width
    for stage, count in enumerate(blocks):
        integer(f"blocks[{stage}]", count, 1)
        inner = width << stage
        made: dict[str, Module] = {}
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            made[str(block)] = _bottleneck(channels, inner, stride, generator)
            channels = _EXPANSION * inner
        of_stage = early if stage < _EARLY_STAGES else late
        of_stage[f"layer{stage + 1}"] = Sequential(made)
    layers = {"pack": Pack(), "": Sliced(early, _IMAGES), **late, "avgpool": GlobalAvgPool2d()}
    scale = channels**-0.5
    layers["fc"] = Linear(channels, classes, generator=generator, scale=scale)
    model = Sequential(layers)
    model.use(Context() if context is None else context)
    return model


def _bottleneck(C: int, inner: int, stride: int, generator: np.random.Generator) -> Residual:
    K = _EXPANSION * inner

    def conv(c: int, k: int, kernel: int, step: int) -> Conv2d:
        return Conv2d(c, k, kernel, step, kernel // 2, bias=False, generator=generator)

    main = [
        ConvBatchNorm(
            conv(C, inner, 1, 1), BatchNorm2d(inner, activation="relu"), ("conv1", "bn1")
        ),
        ConvBatchNorm(
            conv(inner, inner, 3, stride), BatchNorm2d(inner, activation="relu"), ("conv2", "bn2")
        ),
        ConvBatchNorm(
            conv(inner, K, 1, 1), BatchNorm2d(K, activation="relu", weight=0), ("conv3", "bn3")
        ),
    ]
    if stride == 1 and C == K:
        return Residual(main)
    names = ("downsample.0", "downsample.1")
    return Residual(main, ConvBatchNorm(conv(C, K, 1, stride), BatchNorm2d(K), names))
