"""Plain images in either order of their axes, checked: (N, C, H, W) and (N, H, W, C)."""

from __future__ import annotations

from operator import index
from typing import Any, NamedTuple

from dlprim.arguments.arrays import Array, Shape
from dlprim.arguments.floats import (
    plain_operand,
)
from dlprim.arguments.names import layout_name
from dlprim.arguments.scalars import integer, refuse_array, refuse_flag, shown

MOST = 1 << 24  # pixels along an axis


class ImageShape(NamedTuple):
    """Extents of images, whatever the order of their axes is."""

    n: int
    c: int
    h: int
    w: int

    def stored(self, layout: str) -> Shape:
        """As an array of the layout has them."""
        n, c, h, w = self
        return (n, h, w, c) if layout == "NHWC" else (n, c, h, w)

    def resized(self, size: tuple[int, int]) -> ImageShape:
        """With another height and width."""
        return self._replace(h=size[0], w=size[1])


def image_layout(layout: Any) -> str:
    """Returned as it is; ValueError for the argument layout where it is no order of axes."""
    return layout_name(layout, "NCHW", "NHWC")


def image_operand(name: str, value: Any, layout: str, bits: bool) -> tuple[Array, ImageShape]:
    """An array of images, C-contiguous, and what its axes are."""
    array = plain_operand(name, value, bits)
    return array, _extents(array.shape, f"{name} has shape", layout)


def image_shape(name: str, value: Any, layout: str) -> ImageShape:
    """The argument of that name, the shape of an array of images."""
    refuse_array(name, value, _axes(layout))
    try:
        shape = tuple(index(refuse_flag(extent)) for extent in value)
    except TypeError:
        raise TypeError(f"{name} is {shown(value)}, expected integers {_axes(layout)}") from None
    return _extents(shape, f"{name} is", layout)


def image_size(name: str, value: Any, otherwise: tuple[int, int] | None = None) -> tuple[int, int]:
    """An extent for both axes or (height, width); None stands for those of ``otherwise``."""
    pair = value if isinstance(value, tuple | list) else (value, value)
    if len(pair) != 2:
        raise ValueError(f"{name} is {value!r}, expected an integer or a pair (height, width)")
    found = []
    for place, it in enumerate(pair):
        if it is None and otherwise is not None:
            found.append(otherwise[place])
        else:
            label = f"{name}[{place}]" if pair is value else name
            found.append(integer(label, it, 1, MOST))
    height, width = found
    return height, width


def _extents(shape: Shape, what: str, layout: str) -> ImageShape:
    if len(shape) != 4:
        raise ValueError(f"{what} {shape}, expected {_axes(layout)}")
    n, *others = shape
    c, h, w = (others[2], *others[:2]) if layout == "NHWC" else others
    if n < 0 or min(others) < 1 or max(h, w) >= MOST:
        raise ValueError(
            f"{what} {shape}, expected {_axes(layout)} with C, H and W of at least 1 and H and W "
            f"below {MOST}"
        )
    return ImageShape(n, c, h, w)


def _axes(layout: str) -> str:
    return "(N, H, W, C)" if layout == "NHWC" else "(N, C, H, W)"
