"""Images of another size: the nearest pixel, or a mean of the four around, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from dlprim.arguments.arrays import Array, Shape, require_shape, result_array
from dlprim.arguments.floats import holds_bits
from dlprim.arguments.instead import instead
from dlprim.arguments.names import one_of_names
from dlprim.arguments.scalars import flag, real
from dlprim.functions.extents.image_arrays import (
    MOST,
    image_layout,
    image_operand,
    image_shape,
    image_size,
)
from dlprim.functions.extents.windows import Axis, Plane, resample


@instead(input="x")
def interpolate(
    x: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
    *,
    layout: str = "NCHW",
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """Images resized to another height and width, with PyTorch's sampling positions.

    Parameters
    ----------
    x : array of float32 or bfloat16, (N, C, H, W)
        (N, H, W, C) with layout="NHWC". In the other order, with "bilinear", images with eight or
        more channels are copied to and from packed form.
    size : int or (height, width), optional
        P and Q. Either size or scale_factor is required.
    scale_factor : float or (height, width), optional
        P is ``floor(H * scale_factor)``. As in PyTorch, coordinates follow the factor, not the
        rounded size, unless the extent stays the same or, for "nearest", doubles.
    mode : "nearest" or "bilinear"
        "nearest": the pixel at ``floor(p * H / P)``. "bilinear": a mean of the two rows and columns
        around ``(p + 1 / 2) * H / P - 1 / 2``, or those at the border where this is outside.
    align_corners : bool
        For "bilinear": the outermost pixels coincide, with rows at ``p * (H - 1) / (P - 1)``.
    layout : "NCHW" or "NHWC"
        Of x and the result.
    out : ndarray of the dtype of x, the shape of the result, optional
        Written and returned. Must be C-contiguous and share no memory with x.
    dtype : None or "bfloat16"
        "bfloat16" treats uint16 arrays as the bits of bfloat16 values; the result is then uint16
        too.

    Returns
    -------
    ndarray of the dtype of x, (N, C, P, Q) or (N, P, Q, C)
        Summed in float32 and rounded once. The bits do not depend on the number of threads. Pixels
        with weight 0 are not read, so that infinities in them have no effect.

    Raises
    ------
    TypeError, ValueError
        x has the wrong dtype or shape, a name is unknown, a size or factor is invalid or gives an
        empty result, both or neither are given, align_corners is given for "nearest", or `out` does
        not fit the result.

    Examples
    --------
    >>> x = np.ones((2, 16, 9, 7), np.float32)
    >>> y = dlprim.interpolate(x, scale_factor=2, mode="bilinear")
    >>> y.shape
    (2, 16, 18, 14)
    >>> dx = dlprim.interpolate_backward(y, x.shape, 2, "bilinear")
    >>> dlprim.interpolate(x, (4, 4)).shape
    (2, 16, 4, 4)
    """
    rule = rule_of(size, scale_factor, mode, align_corners)
    order = image_layout(layout)
    src, shape = image_operand("x", x, order, holds_bits(dtype))
    plane = rule((shape.h, shape.w))
    due = shape.resized((plane.rows.dst, plane.columns.dst))
    dst = result_array(out, due.stored(order), {"x": src}, src.dtype)
    resample(src, dst, order, plane)
    return dst


def interpolate_backward(
    dy: Any,
    x_shape: Shape,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
    *,
    layout: str = "NCHW",
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """The gradient of `interpolate` with respect to x.

    Parameters
    ----------
    dy : array of float32 or bfloat16, (N, C, P, Q)
        (N, P, Q, C) with layout="NHWC".
    x_shape : tuple of int
        The shape of x, with axes in the order of dy.
    scale_factor : float or (height, width), optional
        As passed to `interpolate`. If size was passed instead, the shape of dy contains it.
    mode : "nearest" or "bilinear"
    align_corners : bool
    layout : "NCHW" or "NHWC"
    out : ndarray of the dtype of dy, of x_shape, optional
        Written and returned. Must be C-contiguous and share no memory with dy.
    dtype : None or "bfloat16"
        All as for `interpolate`.

    Returns
    -------
    ndarray of the dtype of dy, of x_shape

    Raises
    ------
    TypeError, ValueError
        As for `interpolate`, or x_shape is not the shape of such images or does not lead to the
        shape of dy.
    """
    order = image_layout(layout)
    shape = image_shape("x_shape", x_shape, order)
    diff, found = image_operand("dy", dy, order, holds_bits(dtype))
    size = (found.h, found.w) if scale_factor is None else None
    plane = rule_of(size, scale_factor, mode, align_corners)((shape.h, shape.w))
    due = shape.resized((plane.rows.dst, plane.columns.dst))
    require_shape("dy", diff, due.stored(order), "x_shape, and scale_factor where it is given")
    dx = result_array(out, shape.stored(order), {"dy": diff}, diff.dtype)
    resample(diff, dx, order, plane, backward=True)
    return dx


def rule_of(
    size: Any, scale_factor: Any, mode: Any, align_corners: Any
) -> Callable[[tuple[int, int]], Plane]:
    """From the height and width of an image to where its pixels go; all arguments are checked."""
    kind = "linear"
    if one_of_names("mode", mode, ("nearest", "bilinear")) == "nearest":
        kind = mode
    if flag("align_corners", align_corners):
        if kind == "nearest":
            raise ValueError("align_corners is True and mode is 'nearest', expected 'bilinear'")
        kind = "corners"
    if (size is None) == (scale_factor is None):
        which = "neither size nor scale_factor is" if size is None else "size and scale_factor are"
        raise ValueError(f"{which} given, expected one of them")
    if size is not None:
        fixed = image_size("size", size)
        return lambda extents: Plane(*(_axis(kind, *it) for it in zip(extents, fixed, strict=True)))
    factors = _factors(scale_factor)
    return lambda extents: Plane(
        *(_axis(kind, n, _scaled(n, it), it) for n, it in zip(extents, factors, strict=True))
    )


def _axis(kind: str, src: int, dst: int, factor: float | None = None) -> Axis:
    if kind == "corners":
        return Axis(kind, src, dst, (src - 1) / (dst - 1) if dst > 1 else 0.0)
    # As in PyTorch, where an extent stays as it is and where every nearest pixel becomes two.
    is_whole = dst == src or (kind == "nearest" and dst == 2 * src)
    return Axis(kind, src, dst, src / dst if factor is None or is_whole else 1 / factor)


def _factors(value: Any) -> tuple[float, float]:
    """The argument scale_factor, for height and width."""
    pair = value if isinstance(value, tuple | list) else (value, value)
    if len(pair) != 2:
        raise ValueError(f"scale_factor is {value!r}, expected a number or a pair (height, width)")
    for place, it in enumerate(pair):
        label = f"scale_factor[{place}]" if pair is value else "scale_factor"
        if real(label, it) <= 0:
            raise ValueError(f"{label} is {it}, expected a finite number above 0")
    return float(pair[0]), float(pair[1])


def _scaled(extent: int, factor: float) -> int:
    found = extent * factor
    if not 1 <= found < MOST:
        raise ValueError(
            f"scale_factor is {factor:g}, which makes {found:g} of an extent of {extent}, expected "
            f"at least 1 and below {MOST}"
        )
    return math.floor(found)
