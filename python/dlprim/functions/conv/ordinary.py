"""Convolutions along one axis and three, as `conv2d` is along two."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from dlprim.arguments.arrays import Array, Shape, aligned, result_array
from dlprim.arguments.calls import KNOWN
from dlprim.arguments.floats import like_x, type_of
from dlprim.arguments.instead import ARRAYS, instead
from dlprim.functions.conv.operands import ConvGradients, offset_of, operands_of
from dlprim.functions.conv.passes import Passes, passes_of
from dlprim.functions.conv.windows import window


@instead(**ARRAYS)
def conv1d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """A convolution along one axis: ``y = x * w + bias``.

    As in PyTorch, this is a cross-correlation.

    Parameters
    ----------
    x : array of float32 or bfloat16, (N, C, W)
    w : array of the same dtype, (K, C/groups, S)
    bias : array of float32 or bfloat16, (K,), optional
    stride, dilation : int or (int,)
    padding : int, (int,), ((left, right),), "same" or "valid"
        Zeros around x. "same" makes y as long as x, for stride 1; "valid" is no padding.
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
        Sums are float32 and rounded once. The bits do not depend on the number of threads.

    Raises
    ------
    TypeError
        An argument is not an array, or has the wrong dtype.
    ValueError
        Shapes do not agree, the geometry is impossible, or `out` does not fit the result.

    Examples
    --------
    A causal convolution, which sees no later element, and its gradients:

    >>> x, w = np.ones((2, 8, 100), np.float32), np.ones((16, 8, 3), np.float32)
    >>> y = dlprim.conv1d(x, w, padding=((4, 0),), dilation=2)
    >>> y.shape
    (2, 16, 100)
    >>> dx, dw, db = dlprim.conv1d_backward(y, x, w, padding=((4, 0),), dilation=2)
    """
    return _forward(1, (x, w, bias), (stride, padding, dilation, groups), out, dtype)


@instead(**ARRAYS)
def conv3d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Array:
    """A convolution along three axes: ``y = x * w + bias``.

    As in PyTorch, this is a cross-correlation. 3x3 planes of a filter may use Winograd's algorithm,
    as in `conv2d`, whose notes on infinities then hold; `set_conv_algorithm` decides. Where
    products on a padded copy are expected to be faster, the zeros of padding are multiplied.

    Parameters
    ----------
    x : array of float32 or bfloat16, (N, C, D, H, W)
    w : array of the same dtype, (K, C/groups, T, R, S)
    bias : array of float32 or bfloat16, (K,), optional
    stride, dilation : int or (depth, height, width)
    padding : int, (depth, height, width), three pairs (before, after), "same" or "valid"
        Zeros around x. "same" makes y as large as x, for stride 1; "valid" is no padding.
    groups, dtype
        As for `conv1d`.
    out : ndarray of the same dtype as x, the shape of y, optional
        As for `conv1d`.

    Returns
    -------
    ndarray of the same dtype as x, (N, K, ...)
        Sums are float32 and rounded once. The bits do not depend on the number of threads.

    Raises
    ------
    TypeError, ValueError
        As for `conv1d`.

    Examples
    --------
    >>> x, w = np.ones((1, 3, 8, 20, 20), np.float32), np.ones((16, 3, 3, 5, 5), np.float32)
    >>> dlprim.conv3d(x, w, stride=(1, 2, 2), padding=(1, 2, 2)).shape
    (1, 16, 8, 10, 10)
    """
    return _forward(3, (x, w, bias), (stride, padding, dilation, groups), out, dtype)


@instead(**ARRAYS)
def conv1d_backward(
    dy: Any,
    x: Any,
    w: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    dtype: npt.DTypeLike | None = None,
) -> ConvGradients:
    """Gradients of `conv1d` with respect to x, w and bias.

    Parameters
    ----------
    dy : array of the dtype of x, the shape of y
        Gradient of the loss with respect to the result of `conv1d`.
    x, w, stride, padding, dilation, groups, dtype
        As passed to `conv1d`.

    Returns
    -------
    ConvGradients
        ``(dx, dw, db)``; db is float32.

    Raises
    ------
    TypeError, ValueError
        As for `conv1d`.
    """
    return _backward(1, (dy, x, w), (stride, padding, dilation, groups), dtype)


@instead(**ARRAYS)
def conv3d_backward(
    dy: Any,
    x: Any,
    w: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    dtype: npt.DTypeLike | None = None,
) -> ConvGradients:
    """Gradients of `conv3d` with respect to x, w and bias.

    For dw with many channels, the slices of x are copied next to each other, once for each slice of
    the filter.

    Parameters
    ----------
    dy : array of the dtype of x, the shape of y
        Gradient of the loss with respect to the result of `conv3d`.
    x, w, stride, padding, dilation, groups, dtype
        As passed to `conv3d`.

    Returns
    -------
    ConvGradients
        ``(dx, dw, db)``; db is float32.

    Raises
    ------
    TypeError, ValueError
        As for `conv1d`.
    """
    return _backward(3, (dy, x, w), (stride, padding, dilation, groups), dtype)


def _forward(
    axes: int, arrays: tuple[Any, Any, Any], steps: tuple[Any, ...], out: Any, dtype: Any
) -> Array:
    """Of x, w and bias; steps are stride, padding, dilation and groups."""
    others = "conv", axes, steps, dtype
    known: tuple[Passes, Shape] | None = KNOWN.find(arrays, others)
    if known is None:
        src, weights = operands_of(*arrays[:2], axes, dtype)
        what = window(src.shape, weights.shape, *steps)
        offset = offset_of(arrays[2], weights, what.w_shape[0])
        known, used = (passes_of(what, type_of(src)), what.y_shape), (src, weights, offset)
        KNOWN.keep(arrays, others, known, used)
        arrays = used
    passes, shape = known
    if out is None:
        result = aligned(shape, arrays[0].dtype)
    else:
        operands = dict(zip(("x", "w", "bias"), arrays, strict=True))
        result = result_array(out, shape, operands, arrays[0].dtype)
    passes.forward(*arrays, result)
    return result


def _backward(
    axes: int, arrays: tuple[Any, Any, Any], steps: tuple[Any, ...], dtype: Any
) -> ConvGradients:
    """Of dy, x and w."""
    others = "conv_backward", axes, steps, dtype
    passes: Passes | None = KNOWN.find(arrays, others)
    if passes is None:
        src, weights = operands_of(*arrays[1:], axes, dtype)
        what = window(src.shape, weights.shape, *steps)
        diff_dst = like_x("dy", arrays[0], src, what.y_shape, "the result's from x and w")
        passes, used = passes_of(what, type_of(src)), (diff_dst, src, weights)
        KNOWN.keep(arrays, others, passes, used)
        arrays = used
    return ConvGradients._make(passes.backward(*arrays))
