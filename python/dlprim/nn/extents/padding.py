"""Borders around images as layers, on plain arrays and packed ones."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

import dlprim
from dlprim.arguments.floats import bits_of
from dlprim.arguments.scalars import integer
from dlprim.functions.extents.padding import (
    Border,
    padded_shape,
    write_gradient,
    write_padded,
)
from dlprim.nn.context import Images, array_of
from dlprim.nn.module import Array, Module, Ready
from dlprim.nn.passes import backward_pass, forward_pass, label


class Pad2d(Module):
    """What layers of borders share; the last two axes of plain arrays are height and width.

    Attributes
    ----------
    mode : str
        Of the class: that of `dlprim.pad`.
    """

    keeps_input = False
    of_passes = ("_kept",)
    mode: ClassVar[str] = "constant"

    def __init__(self, padding: int | tuple[int, int, int, int]) -> None:
        super().__init__()
        least = -(2**31) if self.mode == "constant" else 0
        self.padding = _sides(padding, least)
        self._kept: Any = ()  # shape of the latest input

    def arguments(self) -> dict[str, Any]:
        sides = self.padding
        return {"padding": sides[0] if len(set(sides)) == 1 else sides}

    def traced(self, x: Any) -> Any:
        return dlprim.pad(x, self.padding, self.mode)

    @forward_pass
    def forward(self, x: Any, training: bool | None = None) -> Any:
        with self.context.timed(self.name, "forward" if training else "inference"):
            y = self._padded(x) if isinstance(x, Images) else self._padded_plain(x)
        if training:
            self._kept = tuple(x.shape)
        return y

    @backward_pass
    def backward(self, dy: Any, ready: Ready | None = None) -> Any:
        kept, self._kept, buffers = self._kept, (), self.context.buffers
        with self.context.timed(self.name, "backward"):
            if isinstance(dy, Images):
                borders = self._borders(dy)
                shape = list(dy.array.shape)
                for axis, before, behind in borders:
                    shape[axis] -= before + behind
                out = buffers.take(tuple(shape), dy.array.dtype)
                write_gradient(dy.array, out, borders, self.mode)
                dx: Any = Images(out, kept, dy.groups)
            else:
                dx = dlprim.pad_backward(dy, self.padding, self.mode, dtype=self.context.bits)
        buffers.give(array_of(dy))
        return dx

    def _padded_plain(self, x: Array) -> Array:
        return dlprim.pad(x, self.padding, self.mode, dtype=self.context.bits)

    def _padded(self, x: Images) -> Images:
        left, right, top, bottom = self.padding
        plain = [Border(3, left, right), Border(2, top, bottom)]
        shape = padded_shape(x.shape, plain, self.mode, f"x of {label(self)}")
        if 0 in shape[1:]:
            raise ValueError(f"padding of {label(self)} leaves nothing of x of shape {x.shape}")
        borders = self._borders(x)
        packed = padded_shape(x.array.shape, borders, self.mode)
        dst = self.context.buffers.take(packed, x.array.dtype)
        write_padded(bits_of(x.array), bits_of(dst), borders, self.mode, np.zeros((), np.uint16))
        n, c, h, w = shape
        return Images(dst, (n, c, h, w), x.groups)

    def _borders(self, x: Images) -> list[Border]:
        """Of the packed array."""
        left, right, top, bottom = self.padding
        height = 1 if x.array.ndim == 4 else 2
        return [Border(height + 1, left, right), Border(height, top, bottom)]


class ZeroPad2d(Pad2d):
    """Zeros around images, on plain arrays and `Images`; see `dlprim.pad`.

    Parameters
    ----------
    padding : int or (left, right, top, bottom)
        Negative numbers take away.

    Raises
    ------
    TypeError, ValueError
        padding is neither.
    """


class ReflectionPad2d(Pad2d):
    """Images mirrored at their rim, on plain arrays and `Images`; see `dlprim.pad`.

    Parameters
    ----------
    padding : int or (left, right, top, bottom)
        At least 0.

    Raises
    ------
    TypeError, ValueError
        padding is neither.
    """

    mode = "reflect"


class ReplicationPad2d(Pad2d):
    """The outermost pixels around images, on plain arrays and `Images`; see `dlprim.pad`.

    Parameters
    ----------
    padding : int or (left, right, top, bottom)
        At least 0.

    Raises
    ------
    TypeError, ValueError
        padding is neither.
    """

    mode = "replicate"


class CircularPad2d(Pad2d):
    """Images continued from their other end, on plain arrays and `Images`; see `dlprim.pad`.

    Parameters
    ----------
    padding : int or (left, right, top, bottom)
        At least 0.

    Raises
    ------
    TypeError, ValueError
        padding is neither.
    """

    mode = "circular"


def _sides(padding: Any, least: int) -> tuple[int, int, int, int]:
    if not isinstance(padding, tuple | list):
        number = integer("padding", padding, least, 2**31)
        return (number,) * 4
    if len(padding) != 4:
        raise ValueError(
            f"padding is {padding!r}, expected an integer or (left, right, top, bottom)"
        )
    places = enumerate(padding)
    left, right, top, bottom = (integer(f"padding[{i}]", it, least, 2**31) for i, it in places)
    return left, right, top, bottom
