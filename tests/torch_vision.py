"""Models for images after their papers, narrow and shallow, put together from a few parts.

`torch_pixels` has those that give maps of pixels, and those of patches.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import nn

seq = nn.Sequential


class Sum(nn.Module):
    """Of what branches make of an image."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Any) -> Any:
        first, *rest = [it(x) for it in self.branches]
        for it in rest:
            first = first + it
        return first


class Cat(Sum):
    """Channels of all branches."""

    def forward(self, x: Any) -> Any:
        return torch.cat([it(x) for it in self.branches], 1)


class Call(nn.Module):
    """A function as a layer."""

    def __init__(self, function: Callable[..., Any], *how: Any) -> None:
        super().__init__()
        self.function, self.how = function, how

    def forward(self, x: Any) -> Any:
        return self.function(x, *self.how)


def unit(
    c: int, k: int, size: int = 3, stride: int = 1, groups: int = 1, act: Any = nn.ReLU
) -> nn.Sequential:
    """A convolution with its norm and activation."""
    conv = nn.Conv2d(c, k, size, stride, size // 2, groups=groups, bias=False)
    return seq(conv, nn.BatchNorm2d(k), *([act()] if act else []))


def head(c: int, classes: int = 5) -> nn.Sequential:
    return seq(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, classes))


def residual(body: nn.Module, c: int, k: int, stride: int = 1) -> nn.Sequential:
    same = c == k and stride == 1
    return seq(Sum(body, nn.Identity() if same else unit(c, k, 1, stride, act=None)), nn.ReLU())


def basic(c: int, k: int, stride: int = 1) -> nn.Sequential:
    return residual(seq(unit(c, k, 3, stride), unit(k, k, act=None)), c, k, stride)


def bottleneck(c: int, inner: int, k: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    ways = unit(c, inner, 1), unit(inner, inner, 3, stride, groups), unit(inner, k, 1, act=None)
    return residual(seq(*ways), c, k, stride)


def stem(k: int = 8) -> nn.Sequential:
    return seq(unit(3, k, 7, 2), nn.MaxPool2d(3, 2, 1))


# ---------------------------------------------------------------- chains


def alexnet() -> nn.Module:
    convs = [nn.Conv2d(3, 8, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2)]
    convs += [nn.Conv2d(8, 12, 5, padding=2), nn.ReLU(), nn.Conv2d(12, 8, 3, padding=1), nn.ReLU()]
    rest = [nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Dropout(0.5), nn.Linear(72, 16), nn.ReLU()]
    return seq(*convs, *rest, nn.Linear(16, 5))


def vgg() -> nn.Module:
    layers: list[nn.Module] = []
    for c, k in pairwise((3, 8, 8, 16)):
        layers += [nn.Conv2d(c, k, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    return seq(*layers, nn.Flatten(), nn.Linear(256, 16), nn.ReLU(True), nn.Linear(16, 5))


def resnet18() -> nn.Module:
    return seq(stem(), basic(8, 8), basic(8, 16, 2), basic(16, 16), head(16))


def resnet50() -> nn.Module:
    return seq(stem(), bottleneck(8, 4, 16), bottleneck(16, 8, 32, 2), head(32))


def resnext() -> nn.Module:
    return seq(stem(), bottleneck(8, 16, 32, 1, 4), bottleneck(32, 16, 32, 2, 4), head(32))


def wide_resnet() -> nn.Module:
    return seq(unit(3, 8), basic(8, 24, 2), nn.Dropout(0.1), basic(24, 24), head(24))


def preact_resnet() -> nn.Module:
    def block(c: int) -> nn.Module:
        parts = [(nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, c, 3, padding=1)) for _ in range(2)]
        return Sum(nn.Identity(), seq(*parts[0], *parts[1]))

    return seq(nn.Conv2d(3, 8, 3, 2, 1), block(8), block(8), nn.BatchNorm2d(8), nn.ReLU(), head(8))


def densenet() -> nn.Module:
    def layer(c: int) -> nn.Module:
        body = seq(nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, 8, 1, bias=False), unit(8, 4))
        return Cat(nn.Identity(), body)

    turn = seq(nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 1), nn.AvgPool2d(2))
    return seq(stem(), layer(8), layer(12), turn, layer(8), head(12))


def squeezenet() -> nn.Module:
    def fire(c: int, inner: int, k: int) -> nn.Module:
        wide = [seq(nn.Conv2d(inner, k, it, padding=it // 2), nn.ReLU()) for it in (1, 3)]
        return seq(nn.Conv2d(c, inner, 1), nn.ReLU(), Cat(*wide))

    pool = nn.MaxPool2d(3, 2, ceil_mode=True)
    last = nn.Conv2d(16, 5, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return seq(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), pool, fire(8, 4, 8), fire(16, 4, 8), *last)


def googlenet() -> nn.Module:
    def block(c: int) -> nn.Module:
        pooled = seq(nn.MaxPool2d(3, 1, 1), unit(c, 4, 1))
        return Cat(
            unit(c, 8, 1), seq(unit(c, 4, 1), unit(4, 8)), seq(unit(c, 4, 1), unit(4, 4, 5)), pooled
        )

    return seq(stem(), nn.LocalResponseNorm(3), block(8), block(24), nn.Dropout(0.2), head(24))


def inception() -> nn.Module:
    def long(c: int, k: int) -> nn.Module:
        layers = [nn.Conv2d(c, k, (1, 7), padding=(0, 3)), nn.Conv2d(k, k, (7, 1), padding=(3, 0))]
        return seq(*layers, nn.BatchNorm2d(k, eps=1e-3), nn.ReLU())

    pooled = seq(nn.AvgPool2d(3, 1, 1), unit(8, 4, 1))
    less = Cat(unit(20, 8, 3, 2), nn.MaxPool2d(3, 2, 1))
    return seq(unit(3, 8, 3, 2), Cat(unit(8, 8, 1), long(8, 8), pooled), less, head(28))


# ---------------------------------------------------------------- for phones


def inverted(c: int, inner: int, k: int, size: int = 3, stride: int = 1, **how: Any) -> nn.Module:
    """Widened, filtered channel by channel, perhaps weighed, and narrowed."""
    act, gate = how.get("act", nn.ReLU6), how.get("gate")
    layers = [unit(c, inner, 1, act=act), unit(inner, inner, size, stride, inner, act)]
    layers += [squeezed(inner, gate)] if gate else []
    body = seq(*layers, unit(inner, k, 1, act=None))
    return Sum(nn.Identity(), body) if c == k and stride == 1 else body


class squeezed(nn.Module):  # noqa: N801 - used as a function
    def __init__(self, c: int, gate: Any) -> None:
        super().__init__()
        self.body = seq(nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, 4, 1), nn.ReLU(), nn.Conv2d(4, c, 1))
        self.gate = gate()

    def forward(self, x: Any) -> Any:
        return x * self.gate(self.body(x))


def mobilenet_v1() -> nn.Module:
    pairs = [(8, 16, 1), (16, 16, 2), (16, 24, 1)]
    layers = [it for c, k, s in pairs for it in (unit(c, c, 3, s, c), unit(c, k, 1))]
    return seq(unit(3, 8, 3, 2), *layers, head(24))


def mobilenet_v2() -> nn.Module:
    return seq(unit(3, 8, 3, 2), inverted(8, 24, 8), inverted(8, 24, 12, stride=2), head(12))


def mobilenet_v3() -> nn.Module:
    how = {"act": nn.Hardswish, "gate": nn.Hardsigmoid}
    body = inverted(8, 24, 8, 5, **how), inverted(8, 24, 12, 3, 2, **how)
    return seq(unit(3, 8, 3, 2, act=nn.Hardswish), *body, head(12), nn.Hardswish())


def efficientnet() -> nn.Module:
    how = {"act": nn.SiLU, "gate": nn.Sigmoid}
    body = inverted(8, 16, 8, 5, **how), inverted(8, 32, 12, 3, 2, **how)
    return seq(unit(3, 8, 3, 2, act=nn.SiLU), *body, nn.Dropout(0.2), head(12))


def mnasnet() -> nn.Module:
    body = unit(8, 8, 3, 1, 8), inverted(8, 24, 12, 5, 2, act=nn.ReLU), inverted(12, 36, 12)
    return seq(unit(3, 8, 3, 2), *body, head(12))


def shuffled(x: Any) -> Any:
    n, c, h, w = x.shape
    return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


class ShuffleUnit(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.body = seq(unit(c, c, 1), unit(c, c, 3, 1, c, None), unit(c, c, 1))

    def forward(self, x: Any) -> Any:
        kept, other = x.chunk(2, 1)
        return shuffled(torch.cat([kept, self.body(other)], 1))


def shufflenet() -> nn.Module:
    return seq(stem(), ShuffleUnit(4), ShuffleUnit(4), unit(8, 16, 1), head(16))


def regnet() -> nn.Module:
    def block(c: int, k: int, stride: int) -> nn.Module:
        ways = unit(c, k, 1), unit(k, k, 3, stride, k // 8), squeezed(k, nn.Sigmoid)
        return residual(seq(*ways, unit(k, k, 1, act=None)), c, k, stride)

    return seq(unit(3, 8, 3, 2), block(8, 16, 2), block(16, 16, 1), head(16))


MODELS: list[Callable[[], nn.Module]] = [
    *(alexnet, vgg, resnet18, resnet50, resnext, wide_resnet, preact_resnet, densenet),
    *(squeezenet, googlenet, inception, mobilenet_v1, mobilenet_v2, mobilenet_v3, efficientnet),
    *(mnasnet, shufflenet, regnet),
]
