"""Models as torchvision and the papers have them, small, written with torch.nn."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import nn


class Block(nn.Module):
    """A residual block of two or three convolutions, by torchvision's names."""

    def __init__(self, sizes: list[tuple[int, int, int, int]]) -> None:
        super().__init__()
        self.count = len(sizes)
        for place, (c, k, kernel, stride) in enumerate(sizes, 1):
            conv = nn.Conv2d(c, k, kernel, stride, kernel // 2, bias=False)
            setattr(self, f"conv{place}", conv)
            setattr(self, f"bn{place}", nn.BatchNorm2d(k))
        C, K, stride = sizes[0][0], sizes[-1][1], max(it[3] for it in sizes)
        self.downsample = None
        if stride > 1 or C != K:
            self.downsample = nn.Sequential(
                nn.Conv2d(C, K, 1, stride, bias=False), nn.BatchNorm2d(K)
            )

    def forward(self, x: Any) -> Any:
        y = x
        for place in range(1, self.count + 1):
            y = getattr(self, f"bn{place}")(getattr(self, f"conv{place}")(y))
            if place < self.count:
                y = torch.relu(y)
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, blocks: tuple[int, ...], width: int, classes: int, deep: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1, C = nn.BatchNorm2d(width), width
        self.count = len(blocks)
        for stage, count in enumerate(blocks):
            inner, made = width << stage, []
            K = 4 * inner if deep else inner
            for place in range(count):
                stride = 2 if stage and place == 0 else 1
                pair = [(C, inner, 3, stride), (inner, K, 3, 1)]
                three = [(C, inner, 1, 1), (inner, inner, 3, stride), (inner, K, 1, 1)]
                made.append(Block(three if deep else pair))
                C = K
            setattr(self, f"layer{stage + 1}", nn.Sequential(*made))
        self.fc = nn.Linear(C, classes)

    def forward(self, x: Any) -> Any:
        x = nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for stage in range(self.count):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(x.mean((2, 3)))


def vgg16(classes: int, hidden: int) -> Any:
    layers: list[Any] = []
    C = 3
    for K in (64, 64, 0, 128, 128, 0, *[256] * 3, 0, *[512] * 3, 0, *[512] * 3, 0):
        layers += [nn.Conv2d(C, K, 3, padding=1), nn.ReLU()] if K else [nn.MaxPool2d(2)]
        C = K or C
    model = nn.Module()
    model.features = nn.Sequential(*layers)
    sizes = (512 * 49, hidden, hidden, classes)
    head = [nn.Linear(*it) for it in pairwise(sizes)]
    parts = (head[0], nn.ReLU(), nn.Dropout(0.0), head[1], nn.ReLU(), nn.Dropout(0.0), head[2])
    model.classifier = nn.Sequential(*parts)

    def forward(x: Any) -> Any:
        x = nn.functional.adaptive_avg_pool2d(model.features(x), 7)
        return model.classifier(x.flatten(1))

    model.forward = forward
    return model


class Inverted(nn.Module):
    def __init__(self, C: int, K: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = C * expansion
        layers = [] if expansion == 1 else [normed(C, inner, 1, 1, 1)]
        layers += [normed(inner, inner, 3, stride, inner), nn.Conv2d(inner, K, 1, bias=False)]
        self.conv = nn.Sequential(*layers, nn.BatchNorm2d(K))
        self.adds = stride == 1 and C == K

    def forward(self, x: Any) -> Any:
        return x + self.conv(x) if self.adds else self.conv(x)


def normed(C: int, K: int, kernel: int, stride: int, groups: int) -> Any:
    conv = nn.Conv2d(C, K, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(K), nn.ReLU6())


class MobileNet(nn.Module):
    """Of width 1/4, whose multiples of 8 are written out."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        layers, C = [normed(3, 8, 3, 2, 1)], 8
        for t, K, n, s in (
            (1, 8, 1, 1), (6, 8, 2, 2), (6, 8, 3, 2), (6, 16, 4, 2), (6, 24, 3, 1), (6, 40, 3, 2),
            (6, 80, 1, 1),
        ):  # fmt: skip
            for place in range(n):
                layers.append(Inverted(C, K, s if place == 0 else 1, t))
                C = K
        self.features = nn.Sequential(*layers, normed(C, 1280, 1, 1, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.0), nn.Linear(1280, classes))

    def forward(self, x: Any) -> Any:
        return self.classifier(self.features(x).mean((2, 3)))


class UNet(nn.Module):
    def __init__(self, C: int, classes: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        ways = list(pairwise(widths))
        self.downs = nn.ModuleList([twice(*it) for it in ((C, widths[0]), *ways)])
        self.ups = nn.ModuleList([nn.ConvTranspose2d(b, a, 2, 2) for a, b in ways[::-1]])
        self.merges = nn.ModuleList([twice(2 * a, a) for a, b in ways[::-1]])
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x: Any) -> Any:
        x, kept = self.downs[0](x), []
        for down in self.downs[1:]:
            kept.append(x)
            x = down(nn.functional.max_pool2d(x, 2))
        for up, merge in zip(self.ups, self.merges, strict=True):
            x = merge(torch.cat([kept.pop(), up(x)], 1))
        return self.head(x)


def twice(C: int, K: int) -> Any:
    layers = []
    for channels in (C, K):
        conv = nn.Conv2d(channels, K, 3, padding=1, bias=False)
        layers += [conv, nn.BatchNorm2d(K), nn.ReLU()]
    return nn.Sequential(*layers)


class VisionBlock(nn.Module):
    def __init__(self, C: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(C, 1e-6), nn.LayerNorm(C, 1e-6)
        self.self_attention = nn.MultiheadAttention(C, heads, batch_first=True)
        drops = nn.Dropout(0.0), nn.Dropout(0.0)
        self.mlp = nn.Sequential(
            nn.Linear(C, hidden), nn.GELU(), drops[0], nn.Linear(hidden, C), drops[1]
        )

    def forward(self, x: Any) -> Any:
        y = self.ln_1(x)
        x = x + self.self_attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class ViT(nn.Module):
    def __init__(self, image: int, patch: int, C: int, heads: int, classes: int) -> None:
        super().__init__()
        self.class_token = nn.Parameter(torch.randn(1, 1, C))
        self.conv_proj = nn.Conv2d(3, C, patch, patch)
        self.encoder = nn.Module()
        self.encoder.pos_embedding = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, C))
        blocks = {f"encoder_layer_{place}": VisionBlock(C, heads, 4 * C) for place in range(2)}
        self.encoder.layers = nn.Sequential()
        for name, it in blocks.items():
            self.encoder.layers.add_module(name, it)
        self.encoder.ln = nn.LayerNorm(C, 1e-6)
        self.heads = nn.Sequential()
        self.heads.add_module("head", nn.Linear(C, classes))

    def forward(self, x: Any) -> Any:
        x = self.conv_proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1)
        x = self.encoder.layers(x + self.encoder.pos_embedding)
        return self.heads(self.encoder.ln(x)[:, 0])


class Text(nn.Module):
    """What GPT and BERT share: rows of tables, and blocks of torch.nn."""

    def __init__(self, V: int, length: int, C: int, **how: Any) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(V, C), nn.Embedding(length, C)
        how |= {"dropout": 0.0, "activation": "gelu", "batch_first": True}
        made = [nn.TransformerEncoderLayer(C, 2, 4 * C, **how) for _ in range(2)]
        self.layers = nn.ModuleList(made)
        self.norm = nn.LayerNorm(C, how.get("layer_norm_eps", 1e-5))

    def placed(self, x: Any) -> Any:
        return self.tokens(x) + self.positions.weight[: x.shape[1]]


class GPT(Text):
    def __init__(self, V: int, length: int, C: int) -> None:
        super().__init__(V, length, C, norm_first=True)

    def forward(self, x: Any) -> Any:
        h, hidden = self.placed(x), torch.ones(2 * [x.shape[1]], dtype=torch.bool).triu(1)
        for layer in self.layers:
            h = layer(h, src_mask=hidden)
        return self.norm(h) @ self.tokens.weight.T


class BERT(Text):
    def __init__(self, V: int, length: int, C: int, classes: int) -> None:
        super().__init__(V, length, C, layer_norm_eps=1e-12)
        self.segments = nn.Embedding(2, C)
        self.pooler, self.head = nn.Linear(C, C), nn.Linear(C, classes)

    def forward(self, x: Any, segments: Any, mask: Any) -> Any:
        h = self.norm(self.placed(x) + self.segments(segments))
        for layer in self.layers:
            h = layer(h, src_key_padding_mask=mask == 0)
        return self.head(torch.tanh(self.pooler(h[:, 0])))
