"""Images of another size as layers: borders around them, means of windows, interpolation."""

from __future__ import annotations

from typing import Any, ClassVar

import dlprim
from dlprim.arguments.scalars import integer
from dlprim.functions.extents.image_arrays import image_size
from dlprim.functions.extents.interpolation import rule_of
from dlprim.nn.layer import Layer, fixed


class Pad2d(Layer):
    """What layers of borders share; the last two axes of x are height and width.

    Attributes
    ----------
    mode : str
        Of the class: that of `dlprim.pad`.
    """

    mode: ClassVar[str] = "constant"

    def __init__(self, padding: int | tuple[int, int, int, int]) -> None:
        super().__init__()
        least = -(2**31) if self.mode == "constant" else 0
        self.padding = _sides(padding, least)

    def forward(self, x: Any) -> Any:
        return dlprim.pad(x, self.padding, self.mode)


class ZeroPad2d(Pad2d):
    """Zeros around images; see `dlprim.pad`.

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
    """Images mirrored at their rim; see `dlprim.pad`.

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
    """The outermost pixels around images; see `dlprim.pad`.

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
    """Images continued from their other end; see `dlprim.pad`.

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


class AdaptiveAvgPool2d(Layer):
    """The means of P x Q windows that cover the image; see `dlprim.adaptive_avg_pool2d`.

    Parameters
    ----------
    output_size : int or (height, width)
        P and Q; None for that of the image.

    Raises
    ------
    TypeError, ValueError
        output_size is neither.
    """

    output_size = fixed()

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        image_size("output_size", output_size, (1, 1))
        is_pair = isinstance(output_size, tuple | list)
        self._keep(output_size=tuple(output_size) if is_pair else output_size)

    def forward(self, x: Any) -> Any:
        return dlprim.adaptive_avg_pool2d(x, self.output_size)


class Upsample(Layer):
    """Images of another height and width, smaller ones too; see `dlprim.interpolate`.

    Parameters
    ----------
    size : int or (height, width), optional
        Given exactly where scale_factor is not.
    scale_factor : float or (height, width), optional
    mode : "nearest" or "bilinear"
    align_corners : bool
        For "bilinear".

    Raises
    ------
    TypeError, ValueError
        A number is out of range, both or neither of size and scale_factor are given, mode is
        unknown, or align_corners is given for "nearest".
    """

    size, scale_factor, mode, align_corners = fixed(), fixed(), fixed(), fixed()

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool = False,
    ) -> None:
        super().__init__()
        rule_of(size, scale_factor, mode, align_corners)  # which refuses what it does not take
        size = tuple(size) if isinstance(size, list) else size
        scale_factor = tuple(scale_factor) if isinstance(scale_factor, list) else scale_factor
        self._keep(size=size, scale_factor=scale_factor, mode=mode, align_corners=align_corners)

    def forward(self, x: Any) -> Any:
        how = (self.size, self.scale_factor, self.mode, self.align_corners)
        return dlprim.interpolate(x, *how)
