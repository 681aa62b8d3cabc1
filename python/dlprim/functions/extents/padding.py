"""Arrays with more, or less, at both ends of their last axes, and the gradient in front of that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.arrays import Array, FloatArray, Shape, contiguous, result_array
from dlprim.arguments.floats import (
    bits_of,
    holds_bits,
    plain_view,
    to_bfloat16,
    widened,
)
from dlprim.arguments.instead import instead
from dlprim.arguments.names import one_of_names
from dlprim.arguments.scalars import held_integer, shown

Part: TypeAlias = tuple[slice, ...]

MODES = ("constant", "reflect", "replicate", "circular")


class Border(NamedTuple):
    """What is added to one axis, or taken away where it is negative."""

    axis: int
    before: int
    behind: int


@instead(input="x")
def pad(
    x: Any,
    pad: Sequence[int],
    mode: str = "constant",
    value: float = 0.0,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """x with borders around its last axes.

    Parameters
    ----------
    x : array of float32 or bfloat16, any shape
        Need not be contiguous.
    pad : sequence of int
        Pairs (before, after), starting with the last axis: (left, right, top, bottom) for images.
        Negative numbers crop, only with mode="constant".
    mode : "constant", "reflect", "replicate" or "circular"
        Borders contain value; x mirrored at its first and last element, without repeating them;
        copies of these elements; or x from its other end.
    value : float
        For "constant", rounded to the dtype of x; may be infinite or NaN.
    out : ndarray of the dtype of x, the shape of the result, optional
        Written and returned. Must be C-contiguous and share no memory with x.
    dtype : None or "bfloat16"
        "bfloat16" treats uint16 arrays as the bits of bfloat16 values; the result is then uint16
        too.

    Returns
    -------
    ndarray of the dtype of x
        Always a copy.

    Raises
    ------
    TypeError, ValueError
        x has the wrong dtype, mode is unknown, value is not a number or is given for another mode,
        pad does not hold pairs of integers for axes of x, nothing would be left, an axis is too
        short to be mirrored or continued, or `out` does not fit the result.

    Examples
    --------
    >>> x = np.ones((2, 3, 5, 6), np.float32)
    >>> y = dlprim.pad(x, (1, 2, 0, 3), "reflect")
    >>> y.shape
    (2, 3, 8, 9)
    >>> dx = dlprim.pad_backward(y, (1, 2, 0, 3), "reflect")
    >>> dlprim.pad(x, (-1, 1), value=np.inf).shape
    (2, 3, 5, 6)
    """
    src = plain_view("x", x, holds_bits(dtype))
    kind = one_of_names("mode", mode, MODES)
    filling = _filling(value, kind, src)
    borders = borders_of(pad, src.ndim)
    shape = padded_shape(src.shape, borders, kind)
    dst = result_array(out, shape, {"x": src}, src.dtype)
    write_padded(bits_of(src), bits_of(dst), borders, kind, filling)
    return dst


def pad_backward(
    dy: Any,
    pad: Sequence[int],
    mode: str = "constant",
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """The gradient of `pad` with respect to x.

    Parameters
    ----------
    dy : array of float32 or bfloat16, the shape of the result of `pad`
        Need not be contiguous.
    pad : sequence of int
    mode : "constant", "reflect", "replicate" or "circular"
        As passed to `pad`.
    out : ndarray of the dtype of dy, the shape of x, optional
        Written and returned. Must be C-contiguous and share no memory with dy.
    dtype : None or "bfloat16"
        As for `pad`.

    Returns
    -------
    ndarray of the dtype of dy, the shape of x
        Summed in float32 and rounded once.

    Raises
    ------
    TypeError, ValueError
        As for `pad`, or dy is too short for such borders.
    """
    diff = plain_view("dy", dy, holds_bits(dtype))
    kind = one_of_names("mode", mode, MODES)
    borders = borders_of(pad, diff.ndim, "dy")
    shape = shape_before(diff.shape, borders, kind)
    dx = result_array(out, shape, {"dy": diff}, diff.dtype)
    write_gradient(diff, dx, borders, kind)
    return dx


def borders_of(pad: Any, ndim: int, name: str = "x") -> list[Border]:
    """The argument pad, of an array of so many axes."""
    if not isinstance(pad, Sequence | np.ndarray) or isinstance(pad, str | bytes | bytearray):
        raise TypeError(
            f"pad is {shown(pad)}, expected a sequence of integers, a pair for each axis"
        )
    if len(pad) % 2 or len(pad) > 2 * ndim:
        raise ValueError(
            f"pad holds {len(pad)} numbers, expected a pair for each of the last axes of {name}, "
            f"which has {ndim}"
        )
    numbers = [held_integer("pad", it) for it in pad]
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return [Border(ndim - 1 - place, *pair) for place, pair in enumerate(pairs)]


def padded_shape(shape: Shape, borders: list[Border], mode: str, name: str = "x") -> Shape:
    """Of the result, after checking that each axis has what its borders need."""
    extents = list(shape)
    for axis, before, behind in borders:
        n = extents[axis]
        extents[axis] = n + before + behind
        if extents[axis] < 0 or n + min(before, 0) < 0 or n + min(behind, 0) < 0:
            raise ValueError(
                f"pad takes {before} and {behind} from axis {axis} of {name}, which has {n} "
                "elements, expected at most that many"
            )
        _require_enough(Border(axis, before, behind), n, mode, name)
    return tuple(extents)


def shape_before(shape: Shape, borders: list[Border], mode: str) -> Shape:
    """Of what was padded to an array of a shape."""
    extents = list(shape)
    for axis, before, behind in borders:
        n = extents[axis] - before - behind
        if n < 0 or extents[axis] < max(before, 0) + max(behind, 0):
            raise ValueError(
                f"dy has shape {shape}, expected at least {before} + {behind} elements along axis "
                f"{axis}, as pad says"
            )
        extents[axis] = n
        _require_enough(Border(axis, before, behind), n, mode, "what dy is of")
    return tuple(extents)


def _require_enough(border: Border, n: int, mode: str, name: str) -> None:
    """Of what a border is made of."""
    axis, before, behind = border
    if mode == "constant":
        return
    if min(before, behind) < 0:
        raise ValueError(
            f"pad holds {min(before, behind)} and mode is {mode!r}, expected at least 0: only "
            "mode='constant' takes elements away"
        )
    most = max(before, behind)
    fewest = {"reflect": most + 1 if most else 0, "replicate": min(most, 1), "circular": most}[mode]
    if n < fewest:
        raise ValueError(
            f"axis {axis} of {name} has {n} elements, expected at least {fewest} for {mode!r} and "
            f"a border of {most}"
        )


def filling_number(value: Any, mode: str) -> FloatArray:
    """The argument value as a number of float32."""
    try:
        number = float("") if isinstance(value, str | bytes | bytearray | bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"value is {shown(value)}, expected a number") from None
    if mode != "constant" and number != 0:
        raise ValueError(f"value is {value} and mode is {mode!r}, expected mode='constant' for it")
    with np.errstate(over="ignore"):
        single = np.array(number, np.float32)
    if np.isinf(single) and abs(number) != np.inf:
        raise ValueError(f"value is {value}, which float32 cannot hold")
    return single


def _filling(value: Any, mode: str, src: Array) -> Array:
    """The argument value as an element of ``src``, in its bits."""
    single = filling_number(value, mode)
    return single if src.dtype == np.float32 else to_bfloat16(single).view(np.uint16)


def write_padded(src: Array, dst: Array, borders: list[Border], mode: str, filling: Array) -> None:
    """All of ``dst``: the middle, and then axis by axis what is beside it."""
    inner, outer = _middle(src.ndim, borders)
    dst[inner] = src[outer]
    for border, within in _stages(inner, borders):
        lines = dst[within]
        for to, source in _copies(border, dst.shape[border.axis], mode):
            lines[_along(border, to)] = filling if source is None else lines[_along(border, source)]


def write_gradient(diff: Array, dx: Array, borders: list[Border], mode: str) -> None:
    """All of ``dx``: what was copied to a border comes back from there, the last axis first."""
    inner, outer = _middle(diff.ndim, borders)
    if mode == "constant":
        if dx[outer].size < dx.size:
            bits_of(dx)[...] = 0
        bits_of(dx)[outer] = bits_of(diff)[inner]
        return
    is_wide = dx.dtype == np.float32
    sums = np.array(diff, np.float32) if is_wide else widened(contiguous(diff))
    with np.errstate(over="ignore", invalid="ignore"):  # of gradients that are not finite
        for border, within in reversed(_stages(inner, borders)):
            lines = sums[within]
            for to, source in _copies(border, sums.shape[border.axis], mode):
                added = lines[_along(border, to)]
                if mode == "replicate":
                    added = added.sum(border.axis, keepdims=True)
                lines[_along(border, source)] += added
    if is_wide:
        dx[...] = sums[inner]
    else:
        _core.round_to_bfloat16(contiguous(sums[inner]), dx)


def _middle(ndim: int, borders: list[Border]) -> tuple[Part, Part]:
    """What x and its padded form have in common, in the padded form and in x."""
    inner, outer = [slice(None)] * ndim, [slice(None)] * ndim
    for axis, before, behind in borders:
        inner[axis] = slice(max(before, 0), -behind if behind > 0 else None)
        outer[axis] = slice(max(-before, 0), behind if behind < 0 else None)
    return tuple(inner), tuple(outer)


def _stages(inner: Part, borders: list[Border]) -> list[tuple[Border, Part]]:
    """For each axis the part in which its borders are made: whole along it and those before."""
    within, found = list(inner), []
    for border in borders:
        within[border.axis] = slice(None)
        found.append((border, tuple(within)))
    return found


def _copies(border: Border, due: int, mode: str) -> list[tuple[slice, slice | None]]:
    """Borders along an axis of ``due`` elements and where they come from; None for a constant."""
    _, before, behind = border
    end = due - behind
    if mode == "constant":
        first, last = None, None
    elif mode == "reflect":
        stop = end - 2 - behind
        first = slice(2 * before, before, -1)
        last = slice(end - 2, stop if stop >= 0 else None, -1)
    elif mode == "replicate":
        first, last = slice(before, before + 1), slice(end - 1, end)
    else:
        first, last = slice(end - before, end), slice(before, before + behind)
    both = [(before, slice(0, before), first), (behind, slice(end, due), last)]
    return [(to, source) for count, to, source in both if count > 0]


def _along(border: Border, part: slice | None) -> Part:
    assert part is not None
    return (slice(None),) * border.axis + (part,)
