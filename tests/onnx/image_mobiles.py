"""Image networks for small machines: depthwise convolutions, gates and shuffles of channels."""

from __future__ import annotations

from typing import Any

import torch
from image_classics import conv_norm
from torch import nn


class Gate(nn.Module):
    """Squeeze and excitation: channels scaled by what their means say."""

    def __init__(self, channels: int, gate: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, channels // 4, 1),
            nn.ReLU(),
            nn.Conv2d(channels // 4, channels, 1),
            gate,
        )

    def forward(self, x: Any) -> Any:
        return x * self.body(x)


class Inverted(nn.Module):
    """Narrow, wide, depthwise, narrow, with a shortcut where shapes allow."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, activation: nn.Module, gate: Any = None
    ) -> None:
        super().__init__()
        wide = 4 * inputs
        layers = [*conv_norm(inputs, wide, 1)[:2], activation]
        layers += [*conv_norm(wide, wide, stride=stride, groups=wide)[:2], activation]
        if gate is not None:
            layers.append(Gate(wide, gate))
        self.body = nn.Sequential(*layers, *conv_norm(wide, outputs, 1)[:2])
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Any) -> Any:
        return x + self.body(x) if self.shortcut else self.body(x)


def inverted_net(activation: nn.Module, gate: nn.Module | None = None) -> nn.Module:
    return nn.Sequential(
        *conv_norm(3, 8, stride=2)[:2],
        activation,
        Inverted(8, 8, 1, activation, gate),
        Inverted(8, 12, 2, activation, gate),
        Inverted(12, 12, 1, activation, gate),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, 10),
    )


def mobilenet_v2() -> nn.Module:
    return inverted_net(nn.ReLU6())


def mobilenet_v3() -> nn.Module:
    return inverted_net(nn.Hardswish(), nn.Hardsigmoid())


def efficientnet() -> nn.Module:
    return inverted_net(nn.SiLU(), nn.Sigmoid())


class Shuffled(nn.Module):
    """Half of the channels pass, the other half is convolved, and then they interleave."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.body = nn.Sequential(
            conv_norm(half, half, 1),
            conv_norm(half, half, groups=half)[:2],
            conv_norm(half, half, 1),
        )

    def forward(self, x: Any) -> Any:
        kept, changed = x.chunk(2, 1)
        joined = torch.cat([kept, self.body(changed)], 1)
        n, c, h, w = joined.shape
        return joined.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def shufflenet() -> nn.Module:
    return nn.Sequential(
        conv_norm(3, 16, stride=2), nn.MaxPool2d(3, 2, 1), Shuffled(16), Shuffled(16)
    )
