"""The arguments that say what a convolution is, in the forms in which callers may state them."""

from __future__ import annotations

from contextlib import suppress
from operator import index
from typing import Any, NamedTuple, TypeAlias

from dlprim.arguments.scalars import held_integer, refuse_array, refuse_flag, shown

_PADDINGS = (
    "expected an integer, a pair (height, width), ((top, bottom), (left, right)), 'same' or 'valid'"
)

Pair: TypeAlias = tuple[int, int]
Extents: TypeAlias = tuple[int, int, int, int]


_NAMES = (
    "N", "C", "H", "W", "K", "R", "S", "stride_h", "stride_w",
    "pad_top", "pad_bottom", "pad_left", "pad_right", "dilation_h", "dilation_w", "groups",
)  # fmt: skip


class Geometry(NamedTuple):
    """What a convolution is, in the one form of every argument that `Conv2d` begins with."""

    x_shape: Extents
    w_shape: Extents
    stride: Pair
    padding: tuple[Pair, Pair]  # (top, bottom), (left, right)
    dilation: Pair
    groups: int

    def numbers(self) -> dict[str, int]:
        """By name, in the order in which the core takes them."""
        k, _, r, s = self.w_shape
        sums = (*self.stride, *self.padding[0], *self.padding[1], *self.dilation)
        return dict(zip(_NAMES, (*self.x_shape, k, r, s, *sums, self.groups), strict=True))


def geometry(
    x_shape: Any, w_shape: Any, stride: Any, padding: Any, dilation: Any, groups: Any
) -> Geometry:
    """The arguments of `Conv2d` and `conv2d` in one form.

    TypeError where something is no integer; ValueError where a shape has not four extents, a pair
    not two entries, or the shapes do not agree. What does not depend on the form, such as a filter
    that is larger than the image, is refused by the core.
    """
    x_extents = _extents("x_shape", x_shape, "(N, C, H, W)")
    w_extents = _extents("w_shape", w_shape, "(K, C/groups, R, S)")
    c, group_c = x_extents[1], w_extents[1]
    count = held_integer("groups", groups)
    if count < 1:
        raise ValueError(f"groups is {count}, expected at least 1")
    if group_c * count != c:
        raise ValueError(
            f"w has shape {w_extents} and groups is {count}, which takes "
            f"{group_c} * {count} = {group_c * count} input channels, but x has C = {c}"
        )
    strides, dilations = _integers("stride", stride, 1), _integers("dilation", dilation, 1)
    if isinstance(padding, str):
        top_bottom, left_right = _same_padding(padding, strides, dilations, w_extents[2:])
    else:
        height, width = _two("padding", padding, _PADDINGS)
        top_bottom, left_right = _integers("padding", height, 0), _integers("padding", width, 0)
    return Geometry(x_extents, w_extents, strides, (top_bottom, left_right), dilations, count)


def _same_padding(
    padding: str, stride: Pair, dilation: Pair, taps: tuple[int, ...]
) -> tuple[Pair, Pair]:
    """As much as makes the result as large as x, the odd one behind, or none, as PyTorch has it."""
    if padding == "valid":
        return (0, 0), (0, 0)
    if padding != "same":
        raise ValueError(f"padding is {padding!r}, {_PADDINGS}")
    if stride != (1, 1):
        raise ValueError(f"padding is 'same' and stride is {stride}, expected a stride of 1")
    total_h, total_w = (step * (extent - 1) for step, extent in zip(dilation, taps, strict=True))
    return (total_h // 2, total_h - total_h // 2), (total_w // 2, total_w - total_w // 2)


def _extents(name: str, shape: Any, axes: str) -> Extents:
    refuse_array(name, shape, axes)
    try:
        extents = tuple(shape)
    except TypeError:
        raise TypeError(
            f"{name} is of type {type(shape).__name__}, expected four integers {axes}"
        ) from None
    if len(extents) != 4:
        raise ValueError(f"{name} is {extents}, expected four integers {axes}")
    one, two, three, four = (held_integer(name, it) for it in extents)
    return one, two, three, four


def _integers(name: str, value: Any, least: int) -> Pair:
    """An integer, which then holds for both directions, or a pair of them."""
    one, two = _two(name, value, "expected an integer or a pair of integers")
    first, second = held_integer(name, one), held_integer(name, two)
    if first < least or second < least:
        raise ValueError(f"{name} is {shown(value)}, expected integers of at least {least}")
    return first, second


def _two(name: str, value: Any, expected: str) -> tuple[Any, Any]:
    """The two entries of ``value``, or ``value`` twice when it is an integer."""
    with suppress(TypeError):
        return (index(refuse_flag(value)),) * 2
    try:
        entries = tuple(value)
    except TypeError:
        raise TypeError(f"{name} is {shown(value)}, {expected}") from None
    if len(entries) != 2:
        raise ValueError(f"{name} is {shown(value)}, {expected}")
    return entries[0], entries[1]
