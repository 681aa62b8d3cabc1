"""What a convolution along any number of axes is, from the forms in which callers may state it.

The sentences are those of `conv2d`; what the axes have in common is said once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from operator import index
from typing import Any, NamedTuple, TypeAlias

from dlprim.arguments.arrays import Shape
from dlprim.arguments.scalars import held_integer, refuse_flag, shown

Sides: TypeAlias = tuple[int, int]
_AXES = {1: "a tuple of one", 2: "two of them", 3: "three of them"}


class Window(NamedTuple):
    """A convolution of x (N, C, ...) with w (K, C/groups, ...): an entry for each axis."""

    x_shape: Shape
    w_shape: Shape
    stride: Shape
    padding: tuple[Sides, ...]  # in front, behind
    dilation: Shape
    groups: int

    @property
    def y_shape(self) -> Shape:
        """(N, K, ...)."""
        axes = zip(
            self.x_shape[2:], self.w_shape[2:], self.stride, self.padding, self.dilation,
            strict=True,
        )  # fmt: skip
        results = ((x + sum(p) - d * (r - 1) - 1) // s + 1 for x, r, s, p, d in axes)
        return (self.x_shape[0], self.w_shape[0], *results)

    def flat(self) -> Window:
        """The same along two axes where of three two neighbours can be one, else itself.

        The filter goes along neither of them: it has one tap, one step and no padding there.
        """
        steps = zip(self.w_shape[2:], self.stride, self.padding, strict=True)
        still = [each == (1, 1, (0, 0)) for each in steps]
        if len(still) < 3 or not (still[1] and (still[0] or still[2])):
            return self
        left = 2 if still[0] and not still[2] else 0  # the axis that stays by itself
        n, c, *x = self.x_shape
        extents = (x[0], x[1] * x[2]) if left == 0 else (x[0] * x[1], x[2])
        places = (0, 1) if left == 0 else (1, 2)
        taps, stride, dilation = (
            tuple(of[place] for place in places)
            for of in (self.w_shape[2:], self.stride, self.dilation)
        )
        sides = tuple(self.padding[place] for place in places)
        w_shape = (*self.w_shape[:2], *taps)
        return Window((n, c, *extents), w_shape, stride, sides, dilation, self.groups)


def window(
    x_shape: Shape, w_shape: Shape, stride: Any, padding: Any, dilation: Any, groups: Any
) -> Window:
    """Of an ordinary convolution; TypeError or ValueError for what is none."""
    axes = len(x_shape) - 2
    strides, dilations = steps("stride", stride, axes, 1), steps("dilation", dilation, axes, 1)
    if isinstance(padding, str):
        sides = _same_padding(padding, strides, dilations, w_shape[2:])
    else:
        sides = _sides(padding, axes)
    count = group_count(groups, w_shape)
    if w_shape[1] * count != x_shape[1]:
        raise ValueError(
            f"w has shape {w_shape} and groups is {count}, which takes {w_shape[1]} * {count} = "
            f"{w_shape[1] * count} input channels, but x has C = {x_shape[1]}"
        )
    found = Window(x_shape, w_shape, strides, sides, dilations, count)
    for axis, extent in enumerate(found.y_shape[2:]):
        if extent < 1:
            covered = dilations[axis] * (w_shape[axis + 2] - 1) + 1
            raise ValueError(
                f"w covers {covered} elements along axis {axis + 2} of x, which has "
                f"{x_shape[axis + 2]} and a padding of {sum(sides[axis])}"
            )
    return found


def steps(name: str, value: Any, axes: int, least: int) -> Shape:
    """An integer, which then holds for every axis, or one for each."""
    found = tuple(held_integer(name, it) for it in _entries(name, value, axes, ""))
    if min(found) < least:
        raise ValueError(f"{name} is {shown(value)}, expected integers of at least {least}")
    return found


def group_count(groups: Any, w_shape: Shape) -> int:
    """The argument groups, which divides the first extent of w."""
    count = held_integer("groups", groups)
    if count < 1:
        raise ValueError(f"groups is {count}, expected at least 1")
    if w_shape[0] % count:
        raise ValueError(f"groups is {count}, which does not divide {w_shape[0]}, the first of w")
    return count


def _sides(padding: Any, axes: int) -> tuple[Sides, ...]:
    found = []
    for entry in _entries(
        "padding", padding, axes, ", pairs (in front, behind), 'same' or 'valid'"
    ):
        front, behind = _entries("padding", entry, 2, "")
        sides = held_integer("padding", front), held_integer("padding", behind)
        if min(sides) < 0:
            raise ValueError(f"padding is {shown(padding)}, expected integers of at least 0")
        found.append(sides)
    return tuple(found)


def _same_padding(padding: str, stride: Shape, dilation: Shape, taps: Shape) -> tuple[Sides, ...]:
    """As much as makes the result as large as x, the odd one behind, or none, as PyTorch has it."""
    if padding == "valid":
        return ((0, 0),) * len(taps)
    if padding != "same":
        raise ValueError(f"padding is {padding!r}, expected integers, 'same' or 'valid'")
    if set(stride) != {1}:
        raise ValueError(f"padding is 'same' and stride is {stride}, expected a stride of 1")
    totals = [step * (extent - 1) for step, extent in zip(dilation, taps, strict=True)]
    return tuple((total // 2, total - total // 2) for total in totals)


def _entries(name: str, value: Any, count: int, others: str) -> Sequence[Any]:
    """The entries of ``value``, or ``value`` for every axis when it is an integer."""
    with suppress(TypeError):
        return (index(refuse_flag(value)),) * count
    expected = f"expected an integer or {_AXES[count]}{others}"
    try:
        entries = tuple(value)
    except TypeError:
        raise TypeError(f"{name} is {shown(value)}, {expected}") from None
    if len(entries) != count:
        raise ValueError(f"{name} is {shown(value)}, {expected}")
    return entries
