"""Networks whose results are images or boxes: UNet, a detector's head, a decoder, a segmenter."""

from __future__ import annotations

from typing import Any

import torch
from image_classics import conv_norm
from torch import nn


class UNet(nn.Module):
    """Down, up by a transposed convolution, up by interpolation, each with what was before."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(conv_norm(3, 8), conv_norm(8, 8))
        self.second = nn.Sequential(nn.MaxPool2d(2), conv_norm(8, 16))
        self.third = nn.Sequential(nn.MaxPool2d(2), conv_norm(16, 16))
        self.up = nn.ConvTranspose2d(16, 16, 2, stride=2)
        self.joined = conv_norm(32, 8)
        self.last = nn.Conv2d(16, 2, 1)

    def forward(self, x: Any) -> Any:
        first = self.first(x)
        second = self.second(first)
        joined = self.joined(torch.cat([self.up(self.third(second)), second], 1))
        wide = nn.functional.interpolate(
            joined, scale_factor=2, mode="bilinear", align_corners=True
        )
        return self.last(torch.cat([wide, first], 1))


class Detector(nn.Module):
    """A head of the YOLO family: two scales, boxes decoded on a grid, scores of classes."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_norm(3, 8, stride=2), conv_norm(8, 16, stride=2))
        self.body = nn.Sequential(*conv_norm(16, 16, stride=2)[:2], nn.SiLU())
        self.spread = nn.ModuleList([nn.MaxPool2d(size, 1, size // 2) for size in (5, 9)])
        self.reduced = nn.Conv2d(48, 16, 1)
        self.fine = nn.Conv2d(32, 4 + classes, 1)
        self.coarse = nn.Conv2d(16, 4 + classes, 1)

    def decoded(self, x: Any, stride: int) -> Any:
        n, c, h, w = x.shape
        rows = torch.arange(h, dtype=x.dtype)[:, None].expand(h, w)
        columns = torch.arange(w, dtype=x.dtype)[None].expand(h, w)
        grid = torch.stack([columns, rows], -1).reshape(1, h * w, 2)
        x = x.reshape(n, c, h * w).permute(0, 2, 1)
        centre = (x[..., :2].sigmoid() * 2 - 0.5 + grid) * stride
        size = x[..., 2:4].clamp(-4, 4).exp() * stride
        return torch.cat([centre - size / 2, centre + size / 2, x[..., 4:].sigmoid()], -1)

    def forward(self, x: Any) -> Any:
        fine = self.stem(x)
        coarse = self.body(fine)
        coarse = self.reduced(torch.cat([coarse, *(pool(coarse) for pool in self.spread)], 1))
        wide = nn.functional.interpolate(coarse, scale_factor=2, mode="nearest")
        boxes = [
            self.decoded(self.fine(torch.cat([fine, wide], 1)), 4),
            self.decoded(self.coarse(coarse), 8),
        ]
        return torch.cat(boxes, 1)


def decoder() -> nn.Module:
    """A vector to an image."""
    return nn.Sequential(
        nn.Linear(6, 8 * 4 * 4),
        nn.Unflatten(1, (8, 4, 4)),
        nn.ConvTranspose2d(8, 8, 4, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.LeakyReLU(0.2),
        nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1),
        nn.ReLU(),
        nn.ReflectionPad2d(1),
        nn.Conv2d(4, 3, 3),
        nn.Tanh(),
    )


class Segmenter(nn.Module):
    """DeepLab's: dilated convolutions side by side, the image's mean, interpolation to a size."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_norm(3, 12, stride=2), nn.Conv2d(12, 12, 3, 2, 1))
        self.norm = nn.GroupNorm(3, 12)
        self.branches = nn.ModuleList(
            [conv_norm(12, 8, 3, padding=rate, dilation=rate) for rate in (1, 2, 4)]
        )
        self.whole = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(12, 8, 1), nn.ReLU())
        self.act = nn.PReLU(32)
        self.last = nn.Conv2d(32, 4, 1)

    def forward(self, x: Any) -> Any:
        inner = nn.functional.elu(self.norm(self.stem(x)))
        whole = nn.functional.interpolate(
            self.whole(inner), size=inner.shape[2:], mode="bilinear", align_corners=False
        )
        joined = torch.cat([branch(inner) for branch in self.branches] + [whole], 1)
        scores = nn.functional.interpolate(
            self.last(self.act(joined)), size=x.shape[2:], mode="bilinear", align_corners=False
        )
        return scores.argmax(1), torch.log_softmax(scores, 1)
