"""The mean of windows that are as many as asked for, and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.arrays import Array, Shape, aligned, require_shape, result_array
from dlprim.arguments.floats import holds_bits, widened
from dlprim.arguments.instead import instead
from dlprim.arguments.traced import Traced
from dlprim.functions.extents.image_arrays import (
    ImageShape,
    image_layout,
    image_operand,
    image_shape,
    image_size,
)
from dlprim.functions.extents.windows import Axis, Plane, resample
from dlprim.functions.rows.reductions import reduce_mean


@instead(input="x")
def adaptive_avg_pool2d(
    x: Any,
    output_size: Any,
    *,
    layout: str = "NCHW",
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """The means of P x Q windows that cover the image, whatever its size.

    Window i of P contains the rows from ``i * H // P`` to ``ceil((i + 1) * H / P)``, exclusive;
    where P does not divide H, neighbours overlap. Columns likewise.

    Parameters
    ----------
    x : array of float32 or bfloat16, (N, C, H, W)
        (N, H, W, C) with layout="NHWC". In the other order, images with eight or more channels are
        copied to and from packed form, unless output_size is 1.
    output_size : int or (height, width)
        P and Q; None keeps the extent of x.
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
        Summed in float32 and rounded once. The bits do not depend on the number of threads.

    Raises
    ------
    TypeError, ValueError
        x has the wrong dtype or shape, a name is unknown, a size is not an integer of at least 1,
        or `out` does not fit the result.

    Examples
    --------
    >>> x = np.ones((2, 16, 9, 7), np.float32)
    >>> y = dlprim.adaptive_avg_pool2d(x, (3, None))
    >>> y.shape
    (2, 16, 3, 7)
    >>> dx = dlprim.adaptive_avg_pool2d_backward(y, x.shape)
    """
    if isinstance(x, Traced):
        how = {"layout": layout, "out": out, "dtype": dtype}
        return x.called("adaptive_avg_pool2d", (x, output_size), how)  # type: ignore[no-any-return]
    order = image_layout(layout)
    src, shape = image_operand("x", x, order, holds_bits(dtype))
    due = shape.resized(image_size("output_size", output_size, (shape.h, shape.w)))
    dst = result_array(out, due.stored(order), {"x": src}, src.dtype)
    if order == "NCHW" and (due.h, due.w) == (1, 1):
        reduce_mean(src, (2, 3), True, out=dst, dtype=dtype)
    else:
        resample(src, dst, order, windows_of(shape, due))
    return dst


def adaptive_avg_pool2d_backward(
    dy: Any,
    x_shape: Shape,
    *,
    layout: str = "NCHW",
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """The gradient of `adaptive_avg_pool2d` with respect to x.

    Parameters
    ----------
    dy : array of float32 or bfloat16, (N, C, P, Q)
        (N, P, Q, C) with layout="NHWC".
    x_shape : tuple of int
        The shape of x, with axes in the order of dy.
    layout : "NCHW" or "NHWC"
    out : ndarray of the dtype of dy, of x_shape, optional
        Written and returned. Must be C-contiguous and share no memory with dy.
    dtype : None or "bfloat16"
        All as for `adaptive_avg_pool2d`.

    Returns
    -------
    ndarray of the dtype of dy, of x_shape

    Raises
    ------
    TypeError, ValueError
        As for `adaptive_avg_pool2d`, or x_shape is not the shape of such images.
    """
    order = image_layout(layout)
    shape = image_shape("x_shape", x_shape, order)
    diff, found = image_operand("dy", dy, order, holds_bits(dtype))
    due = shape.resized((found.h, found.w))
    require_shape("dy", diff, due.stored(order), "N and C of x_shape")
    dx = result_array(out, shape.stored(order), {"dy": diff}, diff.dtype)
    if order == "NCHW" and (due.h, due.w) == (1, 1):
        _spread(diff, dx, shape.h * shape.w)
    else:
        resample(diff, dx, order, windows_of(shape, due), backward=True)
    return dx


def windows_of(shape: ImageShape, due: ImageShape) -> Plane:
    """What the means of an image of another size are taken of."""
    return Plane(Axis("average", shape.h, due.h), Axis("average", shape.w, due.w))


def _spread(diff: Array, dx: Array, pixels: int) -> None:
    """One value for all pixels of an image."""
    values = widened(diff) / np.float32(pixels)
    if dx.dtype == np.float32:
        dx[...] = values
    else:
        rounded = aligned(diff.shape, np.uint16)
        _core.round_to_bfloat16(values, rounded)
        dx.view(np.uint16)[...] = rounded
