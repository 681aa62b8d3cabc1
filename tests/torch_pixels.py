"""Models for images whose results are maps of pixels, and models of patches: narrow and shallow."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from torch_peers import ViT
from torch_vision import Call, Cat, Sum, head, seq, unit

# ---------------------------------------------------------------- maps of pixels


def fcn() -> nn.Module:
    up = nn.ConvTranspose2d(5, 5, 4, 2, 1, groups=5, bias=False)
    return seq(unit(3, 8, 3, 2), unit(8, 16), nn.Conv2d(16, 5, 1), up, nn.LogSoftmax(1))


def deeplab() -> nn.Module:
    def atrous(rate: int) -> nn.Module:
        conv = nn.Conv2d(16, 8, 3, padding=rate, dilation=rate, bias=False)
        return seq(conv, nn.BatchNorm2d(8), nn.ReLU())

    def whole(x: Any) -> Any:
        mean = x.mean((2, 3), keepdim=True)
        return functional.interpolate(mean, x.shape[2:], mode="bilinear", align_corners=False)

    rates = Cat(unit(16, 8, 1), atrous(2), atrous(4), Call(whole))
    up = nn.Upsample(scale_factor=4, mode="bilinear", align_corners=False)
    return seq(unit(3, 8, 3, 2), unit(8, 16, 3, 2), rates, nn.Conv2d(40, 5, 1), up)


class Pyramid(nn.Module):
    """Features of three sizes, each with what is seen from above."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 8, 12, 16)
        self.down = nn.ModuleList([unit(c, k, 3, 2) for c, k in pairwise(widths)])
        self.side = nn.ModuleList([nn.Conv2d(c, 8, 1) for c in widths[1:]])
        self.out = nn.ModuleList([nn.Conv2d(8, 8, 3, padding=1) for _ in widths[1:]])

    def forward(self, x: Any) -> Any:
        sides = []
        for down, side in zip(self.down, self.side, strict=True):
            x = down(x)
            sides.append(side(x))
        found = [sides.pop()]
        while sides:
            found.append(sides.pop() + functional.interpolate(found[-1], scale_factor=2.0))
        return tuple(out(it) for out, it in zip(self.out, found[::-1], strict=True))


class UNet(nn.Module):
    """Whose way up is interpolated, and grows to the size of what is joined."""

    def __init__(self) -> None:
        super().__init__()
        self.high, self.low = unit(3, 8), seq(nn.MaxPool2d(2), unit(8, 16), unit(16, 8))
        self.out = seq(unit(16, 8), nn.Conv2d(8, 2, 1))

    def forward(self, x: Any) -> Any:
        high = self.high(x)
        low = functional.interpolate(
            self.low(high), high.shape[2:], mode="bilinear", align_corners=True
        )
        return self.out(torch.cat([high, functional.pad(low, (0, 0, 0, 0))], 1))


# ---------------------------------------------------------------- patches


def patches(c: int, size: int = 8) -> nn.Sequential:
    return seq(nn.Conv2d(3, c, size, size), nn.Flatten(2), Call(torch.transpose, 1, 2))


def perceptron(c: int, hidden: int) -> nn.Sequential:
    return seq(nn.Linear(c, hidden), nn.GELU(), nn.Linear(hidden, c))


def mlp_mixer() -> nn.Module:
    turn = Call(torch.transpose, 1, 2)
    places = Sum(nn.Identity(), seq(nn.LayerNorm(16), turn, perceptron(16, 8), turn))
    channels = Sum(nn.Identity(), seq(nn.LayerNorm(16), perceptron(16, 32)))
    return seq(
        patches(16), places, channels, nn.LayerNorm(16), Call(torch.mean, 1), nn.Linear(16, 5)
    )


class Windows(nn.Module):
    """Attention within windows, shifted or not, with a table of distances."""

    def __init__(self, c: int, window: int, shift: int) -> None:
        super().__init__()
        self.window, self.shift, self.heads = window, shift, 2
        self.norm, self.qkv, self.out = nn.LayerNorm(c), nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, self.heads))
        rows = torch.stack(torch.meshgrid(*2 * [torch.arange(window)], indexing="ij")).flatten(1)
        apart = (rows[:, :, None] - rows[:, None]) + window - 1
        self.register_buffer("places", apart[0] * (2 * window - 1) + apart[1])

    def forward(self, x: Any) -> Any:
        n, h, w, c = x.shape
        size = self.window
        y = torch.roll(self.norm(x), (-self.shift, -self.shift), (1, 2))
        y = y.view(n, h // size, size, w // size, size, c).transpose(2, 3).reshape(-1, size**2, c)
        q, k, v = self.qkv(y).view(len(y), size**2, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        bias = self.table[self.places.view(-1)].view(size**2, size**2, -1).permute(2, 0, 1)
        scores = (q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1) + bias[None]
        y = self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(len(y), size**2, c))
        y = y.view(n, h // size, w // size, size, size, c).transpose(2, 3).reshape(n, h, w, c)
        return x + torch.roll(y, (self.shift, self.shift), (1, 2))


def merged(x: Any) -> Any:
    return torch.cat([x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], -1)


def swin() -> nn.Module:
    more = Sum(nn.Identity(), seq(nn.LayerNorm(16), perceptron(16, 32)))
    less = Call(merged), nn.LayerNorm(64), nn.Linear(64, 16, bias=False)
    body = Windows(16, 4, 0), more, Windows(16, 4, 2), *less
    return seq(
        nn.Conv2d(3, 16, 4, 4), Call(torch.permute, (0, 2, 3, 1)), *body, Call(torch.mean, (1, 2))
    )


class Scaled(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.deep, self.body = nn.Conv2d(c, c, 7, padding=3, groups=c), perceptron(c, 4 * c)
        self.norm, self.scale = nn.LayerNorm(c), nn.Parameter(torch.full((c,), 0.1))

    def forward(self, x: Any) -> Any:
        y = self.body(self.norm(self.deep(x).permute(0, 2, 3, 1)))
        return x + (self.scale * y).permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    return seq(nn.Conv2d(3, 16, 4, 4), Scaled(16), nn.Conv2d(16, 24, 2, 2), Scaled(24), head(24))


def vit() -> nn.Module:
    return ViT(32, 8, 16, 2, 5)


MODELS = [fcn, deeplab, Pyramid, UNet, mlp_mixer, swin, convnext, vit]
