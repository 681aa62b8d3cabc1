"""Borders around images as layers."""

from __future__ import annotations

from typing import Any, ClassVar

import dlprim
from dlprim.arguments.scalars import integer
from dlprim.nn.module import Module


class Pad2d(Module):
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

    def arguments(self) -> dict[str, Any]:
        sides = self.padding
        return {"padding": sides[0] if len(set(sides)) == 1 else sides}

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
