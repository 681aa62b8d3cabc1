"""Models of images with the names of torchvision's state dicts, and a U-Net.

Sources: arXiv 1409.1556 (VGG), 1801.04381 (MobileNetV2), 1505.04597 (U-Net), 2010.11929 (ViT).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from dlprim.arguments.scalars import integer
from dlprim.nn.activations import ReLU, ReLU6
from dlprim.nn.containers import Add, Identity, Sequential
from dlprim.nn.conv import Conv2d, ConvTranspose2d
from dlprim.nn.extents import AdaptiveAvgPool2d
from dlprim.nn.initial import generator_or_own, normal, zeros
from dlprim.nn.layer import Layer
from dlprim.nn.linear import Dropout, Linear
from dlprim.nn.module import Module
from dlprim.nn.norm import BatchNorm2d, LayerNorm
from dlprim.nn.parameter import Parameter
from dlprim.nn.pool import Flatten, GlobalAvgPool2d, MaxPool2d
from dlprim.nn.transformers import TransformerEncoderLayer

_VGG16 = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
# Of each stage of MobileNetV2: expansion, channels, blocks, stride of the first.
_STAGES = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)  # fmt: skip


def vgg16(classes: int = 1000, *, hidden: int = 4096, dropout: float = 0.5) -> Sequential:
    """VGG-16 for images (N, 3, H, W) of at least 32 pixels; the result is (N, classes).

    Parameters
    ----------
    classes, hidden : int
        Features of the result, and of the two layers in front of it.
    dropout : float
    """
    features: list[Module] = []
    channels = 3
    for stage in _VGG16:
        for K in stage:
            features += [Conv2d(channels, K, 3, padding=1), ReLU()]
            channels = K
        features.append(MaxPool2d(2))
    wide, drop = [Linear(channels * 49, hidden), Linear(hidden, hidden)], Dropout
    head: list[Module] = []
    for it in wide:
        head += [it, ReLU(), drop(dropout)]
    return Sequential(
        {
            "features": Sequential(*features),
            "avgpool": AdaptiveAvgPool2d(7),
            "flatten": Flatten(),
            "classifier": Sequential(*head, Linear(hidden, classes)),
        }
    )


def _normed(C: int, K: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> Sequential:
    """A convolution, its norm and relu6."""
    how: dict[str, Any] = {"padding": kernel // 2, "groups": groups, "bias": False}
    return Sequential(Conv2d(C, K, kernel, stride, **how), BatchNorm2d(K), ReLU6())


def _inverted(C: int, K: int, stride: int, expansion: int) -> Module:
    inner = C * expansion
    layers: list[Module] = [] if expansion == 1 else [_normed(C, inner)]
    layers += [
        _normed(inner, inner, 3, stride, inner),
        Conv2d(inner, K, 1, bias=False),
        BatchNorm2d(K),
    ]
    block: dict[str, Module] = {"conv": Sequential(*layers)}
    if stride == 1 and C == K:
        return Add({"x": Identity(), **block})
    return Sequential(block)


def mobilenet_v2(classes: int = 1000, *, width: float = 1.0, dropout: float = 0.2) -> Sequential:
    """MobileNetV2 for images (N, 3, H, W); the result is (N, classes).

    Parameters
    ----------
    classes : int
    width : float
        Times the channels of all layers, which are multiples of 8.
    dropout : float
    """
    channels = _of_width(32, width)
    features: list[Module] = [_normed(3, channels, 3, 2)]
    for expansion, K, count, stride in _STAGES:
        for block in range(count):
            due = _of_width(K, width)
            features.append(_inverted(channels, due, stride if block == 0 else 1, expansion))
            channels = due
    last = _of_width(1280, max(1.0, width))
    features.append(_normed(channels, last))
    return Sequential(
        {
            "features": Sequential(*features),
            "pool": GlobalAvgPool2d(),
            "classifier": Sequential(Dropout(dropout), Linear(last, classes)),
        }
    )


def _of_width(channels: int, width: float) -> int:
    """The nearest multiple of 8 that does not take away more than a tenth."""
    due = channels * width
    found = max(8, int(due + 4) // 8 * 8)
    return found + 8 if found < 0.9 * due else found


class UNet(Layer):
    """A U-Net for images (N, C, H, W), multiples of ``2^depth``; it gives (N, classes, H, W).

    Parameters
    ----------
    C, classes : int
    width : int
        Channels of the first level; each further one has twice as many.
    depth : int
        How often images are halved.
    """

    def __init__(self, C: int = 3, classes: int = 2, *, width: int = 64, depth: int = 4) -> None:
        super().__init__()
        self.C, self.classes = integer("C", C, 1), integer("classes", classes, 1)
        self.width, self.depth = integer("width", width, 1), integer("depth", depth, 1)
        widths = [width << level for level in range(depth + 1)]
        ways = list(pairwise(widths))
        self.downs = [_twice(C, width), *(_twice(one, two) for one, two in ways)]
        self.ups = [ConvTranspose2d(two, one, 2, 2) for one, two in reversed(ways)]
        self.merges = [_twice(2 * one, one) for one, _ in reversed(ways)]
        self.pool, self.head = MaxPool2d(2), Conv2d(width, classes, 1)

    def forward(self, x: Any) -> Any:
        first, *others = self.downs
        x = first(x)
        kept = []
        for down in others:
            kept.append(x)
            x = down(self.pool(x))
        for up, merge in zip(self.ups, self.merges, strict=True):
            x = merge(np.concatenate([kept.pop(), up(x)], axis=1))
        return self.head(x)


def _twice(C: int, K: int) -> Sequential:
    """Two convolutions with their norms."""
    layers: list[Module] = []
    for channels in (C, K):
        conv = Conv2d(channels, K, 3, padding=1, bias=False)
        layers += [conv, BatchNorm2d(K), ReLU()]
    return Sequential(*layers)


unet = UNet


class VisionBlock(TransformerEncoderLayer):
    """A block of a `ViT`, by torchvision's names."""

    def children(self) -> dict[str, Module]:
        return {
            "ln_1": self.norm1,
            "self_attention": self.self_attn,
            "ln_2": self.norm2,
            "mlp.0": self.linear1,
            "mlp.3": self.linear2,
            "drop": self.drop,
        }


class Encoder(Module):
    """The blocks of a `ViT`, by torchvision's names."""

    def __init__(self, C: int, length: int, layers: int, how: dict[str, Any]) -> None:
        super().__init__()
        self.pos_embedding = Parameter(normal((1, length, C), generator_or_own(None), 0.02))
        made = (VisionBlock(C, **how, eps=1e-6, norm_first=True) for _ in range(layers))
        self.layers = {f"encoder_layer_{place}": it for place, it in enumerate(made)}
        self.ln, self.drop = LayerNorm(C, 1e-6), Dropout(how["dropout"])

    def forward(self, x: Any) -> Any:
        x = self.drop(x + self.pos_embedding)
        for layer in self.layers.values():
            x = layer(x)
        return self.ln(x)


class ViT(Layer):
    """A vision transformer; `vit` makes it."""

    def __init__(self, image: int, patch: int, C: int, classes: int, how: dict[str, Any]) -> None:
        super().__init__()
        if integer("image", image, 1) % integer("patch", patch, 1):
            raise ValueError(f"patch is {patch}, expected a divisor of image = {image}")
        self.image, self.patch, self.C, self.classes, self.how = image, patch, C, classes, how
        self.class_token = Parameter(zeros((1, 1, C)))
        self.conv_proj = Conv2d(3, C, patch, patch)
        blocks = {name: it for name, it in how.items() if name != "layers"}
        self.encoder = Encoder(C, (image // patch) ** 2 + 1, how["layers"], blocks)
        self.heads = Sequential({"head": Linear(C, classes)})

    def forward(self, x: Any) -> Any:
        rows = np.swapaxes(self.conv_proj(x).reshape(x.shape[0], self.C, -1), 1, 2)
        token = np.broadcast_to(self.class_token, (x.shape[0], 1, self.C))
        return self.heads(self.encoder(np.concatenate([token, rows], axis=1))[:, 0])


def vit(
    classes: int = 1000,
    *,
    image: int = 224,
    patch: int = 16,
    C: int = 768,
    layers: int = 12,
    **blocks: Any,
) -> ViT:
    """A vision transformer for images (N, 3, image, image), by default ViT-B/16.

    Parameters
    ----------
    classes : int
        The result is (N, classes).
    image, patch : int
        Pixels of a side.
    C, layers : int
    **blocks
        ``heads``, ``hidden``, ``dropout`` and ``activation`` of `TransformerEncoderLayer`: 12,
        4 C, 0.0 and "gelu" by default.
    """
    usual: dict[str, Any] = {"heads": 12, "hidden": 4 * C, "dropout": 0.0, "activation": "gelu"}
    return ViT(image, patch, C, classes, {"layers": layers, **usual, **blocks})
