"""The convolutions that tests run over: some with a reason each, and random ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Pair = tuple[int, int]


class Conv(NamedTuple):
    N: int
    C: int
    H: int
    W: int
    K: int
    R: int
    S: int
    stride: Pair = (1, 1)
    padding: tuple[Pair, Pair] = ((0, 0), (0, 0))
    dilation: Pair = (1, 1)
    groups: int = 1

    def __str__(self) -> str:
        sides = ".".join(str(side) for pair in self.padding for side in pair)
        return (
            f"{self.N}x{self.C}x{self.H}x{self.W}-{self.K}x{self.R}x{self.S}"
            f"-s{self.stride[0]}.{self.stride[1]}-p{sides}"
            f"-d{self.dilation[0]}.{self.dilation[1]}-g{self.groups}"
        )

    @property
    def x_shape(self) -> tuple[int, int, int, int]:
        return self.N, self.C, self.H, self.W

    @property
    def w_shape(self) -> tuple[int, int, int, int]:
        return self.K, self.C // self.groups, self.R, self.S

    @property
    def y_shape(self) -> tuple[int, int, int, int]:
        span_h = self.H + sum(self.padding[0]) - (self.R - 1) * self.dilation[0] - 1
        span_w = self.W + sum(self.padding[1]) - (self.S - 1) * self.dilation[1] - 1
        return self.N, self.K, span_h // self.stride[0] + 1, span_w // self.stride[1] + 1

    @property
    def keywords(self) -> dict[str, Any]:
        """What dlprim takes besides the shapes."""
        return {
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
            "groups": self.groups,
        }

    @property
    def products(self) -> int:
        n, k, p, q = self.y_shape
        return n * k * p * q * self.C // self.groups * self.R * self.S


def padded(rows: int, columns: int) -> tuple[Pair, Pair]:
    return (rows, rows), (columns, columns)


FIXED = [
    # One of everything, one image of nothing, and no image at all.
    Conv(1, 1, 1, 1, 1, 1, 1),
    Conv(1, 1, 1, 1, 1, 3, 3, padding=padded(1, 1)),
    Conv(0, 3, 5, 5, 4, 3, 3, padding=padded(1, 1)),
    Conv(0, 70, 5, 5, 130, 1, 1),
    # Layers of ResNet-50 in small: the first, 1x1, 1x1 with stride, 3x3, the last 3x3.
    Conv(2, 3, 30, 30, 64, 7, 7, (2, 2), padded(3, 3)),
    Conv(2, 64, 14, 14, 128, 1, 1),
    Conv(2, 64, 14, 14, 128, 1, 1, (2, 2)),
    Conv(2, 64, 14, 14, 64, 3, 3, (1, 1), padded(1, 1)),
    Conv(2, 64, 14, 14, 64, 3, 3, (2, 2), padded(1, 1)),
    Conv(3, 128, 7, 7, 96, 3, 3, (1, 1), padded(1, 1)),
    # One below, at and above a vector and a block of channels.
    Conv(1, 15, 6, 6, 17, 3, 3, padding=padded(1, 1)),
    Conv(1, 16, 6, 6, 16, 3, 3),
    Conv(1, 17, 6, 6, 15, 3, 3, padding=padded(2, 2)),
    Conv(1, 63, 5, 5, 65, 3, 3, padding=padded(1, 1)),
    Conv(1, 64, 5, 5, 64, 1, 3, padding=padded(0, 1)),
    Conv(1, 65, 5, 5, 63, 3, 1, padding=padded(1, 0)),
    Conv(1, 130, 4, 4, 127, 2, 2),
    # A padding wider than the filter, on one side only, or on every side another one.
    Conv(1, 5, 4, 4, 6, 2, 2, padding=padded(5, 4)),
    Conv(1, 5, 4, 4, 6, 3, 3, padding=((0, 3), (4, 0))),
    Conv(1, 17, 7, 6, 9, 3, 3, (2, 2), ((0, 1), (2, 3))),
    Conv(1, 2, 1, 1, 3, 5, 5, padding=((4, 0), (0, 4))),
    # Every tap of some results, or of whole rows, lies in the padding.
    Conv(1, 3, 2, 2, 4, 1, 1, padding=padded(3, 3)),
    Conv(1, 3, 3, 3, 4, 3, 3, (3, 4), padded(6, 6)),
    # Strides beyond the filter, where most of the input has no gradient, and unequal ones.
    Conv(2, 7, 11, 13, 5, 2, 2, (4, 5)),
    Conv(2, 7, 11, 13, 5, 3, 1, (1, 3), padded(1, 0)),
    Conv(1, 4, 9, 9, 4, 3, 3, (9, 9)),
    # Images of 1 MB and more, whose pixels a strided filter of one tap gathers: ragged blocks of
    # weights to sum in parts and to share, groups; and padded, where it does not.
    Conv(3, 70, 33, 40, 130, 1, 1, (2, 2)),
    Conv(2, 270, 22, 23, 280, 1, 1, (1, 3)),
    Conv(3, 102, 31, 32, 54, 1, 1, (3, 2), groups=3),
    Conv(3, 70, 33, 40, 33, 1, 1, (2, 2), padded(1, 1)),
    # Dilation, with gaps as large as the image.
    Conv(1, 8, 12, 12, 8, 3, 3, (1, 1), padded(2, 2), (2, 2)),
    Conv(1, 5, 9, 20, 7, 1, 5, (1, 1), padded(0, 8), (1, 4)),
    Conv(1, 5, 3, 3, 7, 3, 3, (2, 1), padded(7, 7), (7, 7)),
    # One dimension only, wide.
    Conv(1, 15, 1, 300, 15, 1, 51, (1, 1), padded(0, 200), (1, 8)),
    Conv(1, 20, 1, 70, 16, 1, 3),
    Conv(1, 20, 70, 1, 16, 3, 1),
    # Groups: depthwise with and without a multiplier, one channel to many, blocks within a group.
    Conv(2, 33, 9, 9, 33, 3, 3, (1, 1), padded(1, 1), groups=33),
    Conv(1, 130, 7, 7, 130, 3, 3, (2, 2), padded(1, 1), groups=130),
    Conv(1, 64, 12, 12, 64, 5, 5, (1, 1), padded(4, 4), (2, 2), groups=64),
    Conv(2, 6, 6, 6, 18, 3, 3, (1, 1), padded(1, 1), groups=6),
    Conv(2, 18, 6, 6, 6, 3, 3, (1, 1), padded(1, 1), groups=6),
    Conv(1, 32, 6, 6, 64, 3, 3, (1, 1), padded(1, 1), groups=4),
    Conv(1, 34, 5, 5, 38, 3, 3, (2, 1), ((1, 0), (0, 1)), groups=2),
    Conv(1, 140, 4, 4, 132, 1, 1, groups=2),
]

_CHANNELS = (1, 2, 3, 5, 7, 11, 13, 15, 16, 17, 19, 23, 31, 32, 33, 37, 47, 48, 49)
_MANY_CHANNELS = (63, 64, 65, 67, 80, 96, 97, 100, 112, 113, 127, 128, 129, 130)
_EXTENTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 14, 15, 16, 17, 19, 23, 28, 31)
_FILTERS = (1, 1, 2, 3, 3, 3, 4, 5, 7)
_MOST_PRODUCTS = 1_500_000


class _Draw:
    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def one_of(self, values: tuple[int, ...]) -> int:
        return int(self.random.choice(values))

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def upto(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def channels(self) -> tuple[int, int, int]:
        """C, K and groups."""
        if self.chance(0.12):
            channels = self.one_of(_CHANNELS + _MANY_CHANNELS)
            return channels, channels, channels
        if self.chance(0.18):
            groups = self.upto(2, 6)
            return groups * self.upto(1, 24), groups * self.upto(1, 24), groups
        values = _CHANNELS if self.chance(0.6) else _CHANNELS + 2 * _MANY_CHANNELS
        return self.one_of(values), self.one_of(values), 1

    def sides(self, extent: int) -> Pair:
        most = extent + 2 if self.chance(0.15) else extent // 2
        first = self.upto(0, most)
        return first, self.upto(0, most) if self.chance(0.3) else first

    def step(self, extent: int) -> int:
        return self.upto(1, extent + 2) if self.chance(0.25) else self.one_of((1, 1, 1, 2))

    def conv(self) -> Conv:
        c, k, groups = self.channels()
        r, s = self.one_of(_FILTERS), self.one_of(_FILTERS)
        if self.chance(0.5):
            s = r
        return Conv(
            self.upto(1, 3), c, self.one_of(_EXTENTS), self.one_of(_EXTENTS), k, r, s,
            (self.step(r), self.step(s)),
            (self.sides(r), self.sides(s)),
            (self.one_of((1, 1, 1, 2, 3)), self.one_of((1, 1, 1, 2, 3))),
            groups,
        )  # fmt: skip


def random_convs(count: int, seed: int) -> list[Conv]:
    """The same for the same seed; small enough that a float64 oracle takes a millisecond or so."""
    draw = _Draw(seed)
    found: list[Conv] = []
    while len(found) < count:
        conv = draw.conv()
        if min(conv.y_shape) >= 1 and conv.products <= _MOST_PRODUCTS:
            found.append(conv)
    return found
