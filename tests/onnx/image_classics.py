"""Image networks of the plain kind, small, as people write them in PyTorch: exported in tests.

Each class has the shape of a known network, a few channels wide, because an importer meets its
patterns of operators there and not its number of layers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def conv_norm(inputs: int, outputs: int, size: Any = 3, **options: Any) -> nn.Sequential:
    if "padding" not in options:
        options["padding"] = size // 2
    options["bias"] = False
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, **options), nn.BatchNorm2d(outputs), nn.ReLU()
    )


class Residual(nn.Module):
    """A basic block, or with ``groups`` a bottleneck with a shortcut of its own."""

    def __init__(self, inputs: int, outputs: int, stride: int, groups: int = 0) -> None:
        super().__init__()
        if groups:
            inner = outputs // 2
            body = [
                conv_norm(inputs, inner, 1),
                conv_norm(inner, inner, stride=stride, groups=groups),
                conv_norm(inner, outputs, 1)[:2],
            ]
        else:
            body = [conv_norm(inputs, outputs, stride=stride), conv_norm(outputs, outputs)[:2]]
        self.body = nn.Sequential(*body)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = conv_norm(inputs, outputs, 1, stride=stride)[:2]

    def forward(self, x: Any) -> Any:
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    """ResNet-18 with ``groups`` 0, ResNet-50 with 1, ResNeXt with more."""

    def __init__(self, groups: int = 0, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            conv_norm(3, width, 7, stride=2), nn.MaxPool2d(3, stride=2, padding=1)
        )
        self.stages = nn.Sequential(
            Residual(width, width, 1, groups),
            Residual(width, width * 2, 2, groups),
            Residual(width * 2, width * 2, 1, groups),
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.last = nn.Linear(width * 2, 10)

    def forward(self, x: Any) -> Any:
        return self.last(torch.flatten(self.pool(self.stages(self.stem(x))), 1))


def vgg() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(256, 32),
        nn.ReLU(),
        nn.Dropout(),
        nn.Linear(32, 10),
    )


class Dense(nn.Module):
    """A layer of DenseNet: normalisation before the convolution, which thus stays."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(),
            nn.Conv2d(inputs, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, x: Any) -> Any:
        return torch.cat([x, self.body(x)], 1)


def densenet() -> nn.Module:
    transition = (nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 1), nn.AvgPool2d(2))
    return nn.Sequential(
        conv_norm(3, 8),
        Dense(8, 4),
        Dense(12, 4),
        *transition,
        Dense(8, 4),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, 10),
    )


class Inception(nn.Module):
    """Four branches side by side, two of them with convolutions of one axis."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv_norm(3, 12, stride=2)
        self.one = conv_norm(12, 8, 1)
        self.three = nn.Sequential(conv_norm(12, 4, 1), conv_norm(4, 8))
        self.long = nn.Sequential(
            conv_norm(12, 4, 1),
            conv_norm(4, 4, (1, 7), padding=(0, 3)),
            conv_norm(4, 8, (7, 1), padding=(3, 0)),
        )
        self.pooled = nn.Sequential(nn.AvgPool2d(3, 1, 1), conv_norm(12, 4, 1))
        self.ceiled = nn.AvgPool2d(3, 2, ceil_mode=True, count_include_pad=False)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        joined = torch.cat([self.one(x), self.three(x), self.long(x), self.pooled(x)], 1)
        return self.ceiled(joined)


class Fire(nn.Module):
    """What SqueezeNet is made of."""

    def __init__(self, inputs: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeezed, 1)
        self.one = nn.Conv2d(squeezed, expanded, 1)
        self.three = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.squeeze(x))
        return torch.cat([torch.relu(self.one(x)), torch.relu(self.three(x))], 1)


def squeezenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        Fire(16, 4, 8),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        Fire(16, 4, 8),
        nn.Conv2d(16, 10, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
