"""Transposed convolutions along one, two and three axes, with PyTorch's arguments."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from dlprim.arguments.arrays import Array
from dlprim.arguments.instead import ARRAYS, instead
from dlprim.functions.conv.exchanged import backward, forward
from dlprim.functions.conv.operands import ConvGradients


@instead(**ARRAYS)
def conv_transpose1d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """A transposed convolution along one axis: the gradient of x in `conv1d`, as a layer.

    Parameters
    ----------
    x : array of float32 or bfloat16, (N, C, W)
    w : array of the same dtype, (C, K/groups, S)
    bias : array of float32 or bfloat16, (K,), optional
        In bfloat16 it is added to the rounded sum.
    stride, dilation : int or (int,)
    padding : int or (int,)
        Elements removed from both sides of the result.
    output_padding : int or (int,)
        Elements added at the end of the result; less than the stride or the dilation.
    groups : int
        Divides C and K; the output channels of a group depend on its input channels.
    out : ndarray of the same dtype as x, (N, K, Q), optional
        Written and returned. Must be C-contiguous and share no memory with an operand.
    dtype : None or "bfloat16"
        "bfloat16" treats uint16 arrays as the bits of bfloat16 values; the result is then uint16
        too.

    Returns
    -------
    ndarray of the same dtype as x, (N, K, Q)
        Q is ``(W - 1) * stride - 2 * padding + dilation * (S - 1) + output_padding + 1``. The bits
        do not depend on the number of threads.

    Raises
    ------
    TypeError
        An argument is not an array, or has the wrong dtype.
    ValueError
        Shapes do not agree, the geometry is impossible, or `out` does not fit the result.
    """
    arguments = stride, padding, output_padding, groups, dilation
    return forward(1, (x, w, bias), arguments, out, dtype)


@instead(**ARRAYS)
def conv_transpose1d_backward(
    dy: Any,
    x: Any,
    w: Any,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    *,
    dtype: npt.DTypeLike | None = None,
) -> ConvGradients:
    """Gradients of `conv_transpose1d` with respect to x, w and bias.

    Parameters
    ----------
    dy : array of the dtype of x, the shape of y
        Gradient of the loss with respect to the result of `conv_transpose1d`.
    x, w, stride, padding, output_padding, groups, dilation, dtype
        As passed to `conv_transpose1d`.

    Returns
    -------
    ConvGradients
        ``(dx, dw, db)``; db is float32.

    Raises
    ------
    TypeError, ValueError
        As for `conv_transpose1d`.
    """
    arguments = stride, padding, output_padding, groups, dilation
    return backward(1, (dy, x, w), arguments, dtype)


@instead(**ARRAYS)
def conv_transpose2d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """A transposed convolution along two axes: the gradient of x in `conv2d`, as a layer.

    Parameters
    ----------
    x : array of float32 or bfloat16, (N, C, H, W)
    w : array of the same dtype, (C, K/groups, R, S)
    stride, padding, output_padding, dilation : int or (height, width)
    out : ndarray of the same dtype as x, (N, K, P, Q), optional
    bias, groups, dtype
        All as for `conv_transpose1d`.

    Returns
    -------
    ndarray of the same dtype as x, (N, K, P, Q)

    Raises
    ------
    TypeError, ValueError
        As for `conv_transpose1d`.

    Examples
    --------
    >>> x, w = np.ones((2, 32, 7, 7), np.float32), np.ones((32, 16, 4, 4), np.float32)
    >>> y = dlprim.conv_transpose2d(x, w, stride=2, padding=1)
    >>> y.shape
    (2, 16, 14, 14)
    >>> dx, dw, db = dlprim.conv_transpose2d_backward(y, x, w, stride=2, padding=1)
    """
    arguments = stride, padding, output_padding, groups, dilation
    return forward(2, (x, w, bias), arguments, out, dtype)


@instead(**ARRAYS)
def conv_transpose2d_backward(
    dy: Any,
    x: Any,
    w: Any,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    *,
    dtype: npt.DTypeLike | None = None,
) -> ConvGradients:
    """Gradients of `conv_transpose2d` with respect to x, w and bias.

    Parameters
    ----------
    dy : array of the dtype of x, the shape of y
        Gradient of the loss with respect to the result of `conv_transpose2d`.
    x, w, stride, padding, output_padding, groups, dilation, dtype
        As passed to `conv_transpose2d`.

    Returns
    -------
    ConvGradients
        ``(dx, dw, db)``; db is float32.

    Raises
    ------
    TypeError, ValueError
        As for `conv_transpose1d`.
    """
    arguments = stride, padding, output_padding, groups, dilation
    return backward(2, (dy, x, w), arguments, dtype)


@instead(**ARRAYS)
def conv_transpose3d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """A transposed convolution along three axes: the gradient of x in `conv3d`, as a layer.

    Parameters
    ----------
    x : array of float32 or bfloat16, (N, C, D, H, W)
    w : array of the same dtype, (C, K/groups, T, R, S)
    stride, padding, output_padding, dilation : int or (depth, height, width)
    out : ndarray of the same dtype as x, (N, K, ...), optional
    bias, groups, dtype
        All as for `conv_transpose1d`.

    Returns
    -------
    ndarray of the same dtype as x, (N, K, ...)

    Raises
    ------
    TypeError, ValueError
        As for `conv_transpose1d`.
    """
    arguments = stride, padding, output_padding, groups, dilation
    return forward(3, (x, w, bias), arguments, out, dtype)


@instead(**ARRAYS)
def conv_transpose3d_backward(
    dy: Any,
    x: Any,
    w: Any,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    *,
    dtype: npt.DTypeLike | None = None,
) -> ConvGradients:
    """Gradients of `conv_transpose3d` with respect to x, w and bias.

    Parameters
    ----------
    dy : array of the dtype of x, the shape of y
        Gradient of the loss with respect to the result of `conv_transpose3d`.
    x, w, stride, padding, output_padding, groups, dilation, dtype
        As passed to `conv_transpose3d`.

    Returns
    -------
    ConvGradients
        ``(dx, dw, db)``; db is float32.

    Raises
    ------
    TypeError, ValueError
        As for `conv_transpose1d`.
    """
    arguments = stride, padding, output_padding, groups, dilation
    return backward(3, (dy, x, w), arguments, dtype)
