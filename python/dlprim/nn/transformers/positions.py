"""Where elements of a sequence stand: learned, as waves, or as angles that queries are turned by.

Sources: arXiv 1706.03762, section 3.5, and arXiv 2104.09864.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.arguments.scalars import integer, real
from dlprim.nn.initial import generator_or_own, normal
from dlprim.nn.layer import Layer
from dlprim.nn.parameter import Parameter


class LearnedPositions(Layer):
    """Adds to (..., T, C) a row for each of the first T places.

    Parameters
    ----------
    length : int
        How many places there are.
    C : int
    scale : float
        Standard deviation of the rows at first.
    """

    def __init__(self, length: int, C: int, *, scale: float = 0.02) -> None:
        super().__init__()
        self.length, self.C = integer("length", length, 1), integer("C", C, 1)
        self.scale = real("scale", scale, 0)
        self.weight = Parameter(normal((length, C), generator_or_own(None), scale))

    def forward(self, x: Any) -> Any:
        if x.shape[-2] > self.length:
            raise ValueError(f"x has shape {x.shape}, expected at most {self.length} places")
        return x + self.weight[: x.shape[-2]]


class SinusoidalPositions(Layer):
    """Adds to (..., T, C) sines and cosines of the place, of C / 2 wave lengths.

    Parameters
    ----------
    C : int
        Even.
    base : float
        Of the wave lengths, which grow from 2 pi to ``2 pi base``.
    """

    def __init__(self, C: int, *, base: float = 10000.0) -> None:
        super().__init__()
        self.C, self.base = _even(C), real("base", base, 1)

    def forward(self, x: Any) -> Any:
        angles = _angles(x.shape[-2], self.C, self.base)
        waves = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
        return x + waves.reshape(x.shape[-2], self.C).astype(np.float32)


class RotaryPositions(Layer):
    """Turns pairs of elements of (..., T, C) by angles that grow with the place.

    The pairs are the elements of the first half with those of the second, as Llama has them.

    Parameters
    ----------
    C : int
        Even: channels of a head.
    base : float
    """

    def __init__(self, C: int, *, base: float = 10000.0) -> None:
        super().__init__()
        self.C, self.base = _even(C), real("base", base, 1)

    def forward(self, x: Any) -> Any:
        angles = _angles(x.shape[-2], self.C, self.base)
        cos, sin = (f(angles).astype(np.float32) for f in (np.cos, np.sin))
        one, two = np.split(x, 2, axis=-1)
        return np.concatenate([one * cos - two * sin, two * cos + one * sin], axis=-1)


def _even(C: Any) -> int:
    if integer("C", C, 2) % 2:
        raise ValueError(f"C is {C}, expected an even number")
    return int(C)


def _angles(length: int, C: int, base: float) -> Any:
    """(T, C / 2), in float64."""
    return np.arange(length)[:, None] * base ** (-np.arange(0, C, 2) / C)
