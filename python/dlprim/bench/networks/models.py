"""PyTorch's side of training: the same ResNet-50 and language model as in `dlprim.nn`.

Names of parameters are those of torchvision's ResNet-50 and of torch.nn, so that state dicts of
both sides are the same. Imported where PyTorch is installed only.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn

_EXPANSION = 4


class Bottleneck(nn.Module):
    """Three convolutions and a shortcut; the stride is the 3x3 convolution's."""

    def __init__(self, channels: int, inner: int, stride: int) -> None:
        super().__init__()
        out = _EXPANSION * inner
        self.conv1 = nn.Conv2d(channels, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x: Any) -> Any:
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += shortcut
        return self.relu(y)


class ResNet(nn.Module):
    """ResNet-50 with blocks (3, 4, 6, 3) and width 64."""

    def __init__(self, blocks: Sequence[int], width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        channels = width
        for stage, count in enumerate(blocks):
            inner = width << stage
            made = []
            for block in range(count):
                made.append(Bottleneck(channels, inner, 2 if stage > 0 and block == 0 else 1))
                channels = _EXPANSION * inner
            setattr(self, f"layer{stage + 1}", nn.Sequential(*made))
        self._stages = len(blocks)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: Any) -> Any:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in range(self._stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))


class LanguageModel(nn.Module):
    """Embedding, LSTM or GRU layers and a linear decoder on (T, N) characters."""

    def __init__(self, cell: str, characters: int, embedded: int, hidden: int, layers: int) -> None:
        super().__init__()
        kinds = {"lstm": nn.LSTM, "gru": nn.GRU}
        self.encoder = nn.Embedding(characters, embedded)
        self.rnn = kinds[cell](embedded, hidden, layers)
        self.decoder = nn.Linear(hidden, characters)

    def forward(self, x: Any) -> Any:
        y, _ = self.rnn(self.encoder(x))
        return self.decoder(y).flatten(0, 1)


def perceptron(widths: Sequence[int]) -> Any:
    """Linear layers with relu between them."""
    layers: list[Any] = []
    for c, k in pairwise(widths):
        layers += [nn.Linear(c, k), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
