"""The arguments that say what a convolution is, in the forms in which callers may state them."""

from operator import index
from typing import Any, NamedTuple, TypeAlias

from dlprim.arguments.scalars import held_integer

_PADDINGS = "expected an integer, a pair (height, width), ((top, bottom), (left, right)) or 'same'"

Pair: TypeAlias = tuple[int, int]


class Geometry(NamedTuple):
    """Every number of a convolution, in the order in which the core takes them."""

    N: int
    C: int
    H: int
    W: int
    K: int
    R: int
    S: int
    stride_h: int
    stride_w: int
    pad_top: int
    pad_bottom: int
    pad_left: int
    pad_right: int
    dilation_h: int
    dilation_w: int
    groups: int

    @property
    def x_shape(self) -> tuple[int, int, int, int]:
        return self.N, self.C, self.H, self.W

    @property
    def w_shape(self) -> tuple[int, int, int, int]:
        return self.K, self.C // self.groups, self.R, self.S

    @property
    def stride(self) -> Pair:
        return self.stride_h, self.stride_w

    @property
    def padding(self) -> tuple[Pair, Pair]:
        return (self.pad_top, self.pad_bottom), (self.pad_left, self.pad_right)

    @property
    def dilation(self) -> Pair:
        return self.dilation_h, self.dilation_w


def geometry(
    x_shape: Any, w_shape: Any, stride: Any, padding: Any, dilation: Any, groups: Any
) -> Geometry:
    """The numbers behind the arguments of `Conv2d` and `conv2d`, whose forms they have.

    What does not depend on the form, such as a filter that is larger than the image, is refused
    by the core.

    Raises
    ------
    TypeError
        Something is no integer.
    ValueError
        A shape has not four extents, a pair not two entries, or the shapes do not agree.
    """
    n, c, h, w = _extents("x", x_shape, "(N, C, H, W)")
    k, group_c, r, s = _extents("w", w_shape, "(K, C/groups, R, S)")
    count = held_integer("groups", groups)
    if count < 1:
        raise ValueError(f"groups is {count}, expected at least 1")
    if group_c * count != c:
        raise ValueError(
            f"w has shape {(k, group_c, r, s)} and groups is {count}, which takes "
            f"{group_c} * {count} = {group_c * count} input channels, but x has C = {c}"
        )
    strides, dilations = _integers("stride", stride), _integers("dilation", dilation)
    if isinstance(padding, str):
        top_bottom, left_right = _same_padding(padding, strides, dilations, (r, s))
    else:
        height, width = _two("padding", padding, _PADDINGS)
        top_bottom, left_right = _integers("padding", height), _integers("padding", width)
    return Geometry(n, c, h, w, k, r, s, *strides, *top_bottom, *left_right, *dilations, count)


def _same_padding(padding: str, stride: Pair, dilation: Pair, extents: Pair) -> tuple[Pair, Pair]:
    """As much as makes the result as large as x, the odd one behind, as PyTorch has it."""
    if padding != "same":
        raise ValueError(f"padding is {padding!r}, {_PADDINGS}")
    if stride != (1, 1):
        raise ValueError(f"padding is 'same' and stride is {stride}, expected a stride of 1")
    total_h, total_w = (step * (extent - 1) for step, extent in zip(dilation, extents, strict=True))
    return (total_h // 2, total_h - total_h // 2), (total_w // 2, total_w - total_w // 2)


def _extents(name: str, shape: Any, axes: str) -> tuple[int, ...]:
    try:
        extents = tuple(shape)
    except TypeError:
        raise TypeError(
            f"the shape of {name} is of type {type(shape).__name__}, expected four integers {axes}"
        ) from None
    if len(extents) != 4:
        raise ValueError(f"{name} has shape {extents}, expected four dimensions {axes}")
    return tuple(held_integer(f"the shape of {name}", extent) for extent in extents)


def _integers(name: str, value: Any) -> Pair:
    """An integer, which then holds for both directions, or a pair of them."""
    first, second = _two(name, value, "expected an integer or a pair of integers")
    return held_integer(name, first), held_integer(name, second)


def _two(name: str, value: Any, expected: str) -> tuple[Any, Any]:
    """The two entries of ``value``, or ``value`` twice when it is an integer."""
    try:
        return (index(value),) * 2
    except TypeError:
        pass
    try:
        entries = tuple(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, {expected}") from None
    if len(entries) != 2:
        raise ValueError(f"{name} is {value!r}, {expected}")
    return entries[0], entries[1]
