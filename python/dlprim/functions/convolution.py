"""Stateless convolution on plain layouts: PyTorch's shapes and defaults, arrays in and out."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy.typing as npt

from dlprim import schedule_store as store
from dlprim._core import PlainConv2d
from dlprim.arguments.arrays import Array, FloatArray, aligned, result_array
from dlprim.arguments.calls import KNOWN
from dlprim.arguments.floats import (
    bias_operand,
    float_operand,
    holds_bits,
    like,
    like_x,
    require_type,
    type_of,
)
from dlprim.arguments.instead import ARRAYS, instead
from dlprim.arguments.names import activation_name, kernel_activation, layout_name
from dlprim.functions import quantized
from dlprim.functions.activated import in_front, saved_by
from dlprim.functions.quantized import Steps, has_8_bits, require_none
from dlprim.primitives.conv_algorithm import new_core, require_accuracy, resolved
from dlprim.primitives.conv_arguments import Geometry, geometry

_LAYOUTS = {"NCHW": "blocked", "NHWC": "NHWC"}  # to those of the primitive
_PREPARED = 128  # geometries that are kept; a network has fewer


class Conv2dGradients(NamedTuple):
    """What `conv2d_backward` returns.

    Attributes
    ----------
    dx : ndarray of the dtype of x, the shape of x
    dw : ndarray of the dtype of x, (K, C/groups, R, S)
    db : ndarray of float32, (K,)
    """

    dx: Array
    dw: Array
    db: FloatArray


@instead(**ARRAYS)
def conv2d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    activation: str | None = None,
    residual: Any = None,
    layout: str = "NCHW",
    algorithm: str = "auto",
    out: Array | None = None,
    accuracy: str | None = None,
    dtype: npt.DTypeLike | None = None,
    x_scale: Any = None,
    x_zero_point: int = 0,
    w_scale: Any = None,
    y_scale: Any = None,
    y_zero_point: int = 0,
    y_dtype: npt.DTypeLike | None = None,
) -> Array:
    """A two-dimensional convolution: ``y = activation(x * w + bias + residual)``.

    As in PyTorch, this is a cross-correlation. With layout="NCHW", operands and result are copied
    to and from the packed form in every call; `Conv2d` avoids that.

    Parameters
    ----------
    x : array of float32, bfloat16, uint8 or int8, (N, C, H, W)
        (N, H, W, C) with layout="NHWC", and then used in place.
    w : array of the same dtype, or int8 for 8 bits, (K, C/groups, R, S)
        In either layout.
    bias : array of float32 or bfloat16, (K,), optional
        For 8-bit x of float32, or of int32, which is added to the sums before they are scaled.
    stride, padding, dilation, groups, activation, algorithm, accuracy
        As for `Conv2d`.
    residual : array of the same dtype as x, the shape of y, optional
    layout : "NCHW" or "NHWC"
        Of x, residual and y.
    out : ndarray of the same dtype as x, the shape of y, optional
        Written and returned. Must be C-contiguous and share no memory with an operand.
    dtype : None or "bfloat16"
        "bfloat16" treats uint16 arrays as the bits of bfloat16 values; the result is then uint16
        too.
    x_scale, w_scale : float; w_scale also array of float32, (K,)
        For x of uint8 or int8 and w of int8, which represent ``(q - zero_point) * scale``. Sums of
        their products are exact integers.
    x_zero_point : int
        A value of the dtype of x. The zero point of w is 0.
    y_scale : float, optional
        With it, the result is 8-bit, quantised as by `quantize`; without it, floating-point.
    y_zero_point : int
        A value of an 8-bit y_dtype.
    y_dtype : dtype, optional
        Of the result. With y_scale uint8 or int8, by default that of x; otherwise float32, bfloat16
        or, without any scale, int32: the exact sums.

    Returns
    -------
    ndarray of the same dtype as x, or of y_dtype, (N, K, P, Q) or (N, P, Q, K)
        The bits do not depend on the number of threads.

    Raises
    ------
    TypeError
        An argument is not an array, or has the wrong dtype.
    ValueError
        Shapes do not agree, the geometry is impossible, a name is unknown, or `out` does not fit
        the result.

    Notes
    -----
    algorithm="auto" may choose Winograd's algorithm for 3x3 filters with stride 1, dilation 1 and
    about 4 or more channels, where it is estimated to be faster (docs/winograd.md). Its transforms
    add and subtract neighbouring inputs, so one infinity or NaN in x becomes NaN over whole tiles,
    up to 8x8 results in every output channel, and finite inputs from about 1e36 on can overflow.
    ``algorithm="direct"``, or ``dlprim.set_conv_algorithm("direct")`` for the whole process, sums
    as in IEEE 754: an infinity reaches the 3x3 results that read it, as an infinity.
    `Conv2d.algorithms` shows the choice.

    The direct sum skips the zeros of padding: a weight that is infinite or NaN reaches only the
    results for which it is multiplied with a pixel of x. Winograd's algorithm spreads it to all
    results of its filter. For groups of up to 4 filters, "auto" may also multiply padded copies,
    and then gives NaN where such a weight meets a zero of padding, as PyTorch does.

    Sources: see `Conv2d`.
    """
    arrays = x, w, bias, residual
    others = (
        "conv2d", stride, padding, dilation, groups, activation, layout, algorithm, accuracy, dtype,
        x_scale, x_zero_point, w_scale, y_scale, y_zero_point, y_dtype,
    )  # fmt: skip
    conv: PlainConv2d | None = KNOWN.find(arrays, others)
    if conv is not None and out is None:
        return conv.forward(x, w, bias, residual, None)
    if conv is None:
        steps = stride, padding, dilation, groups
        quantized_steps = Steps(x_scale, x_zero_point, w_scale, y_scale, y_zero_point, y_dtype)
        if has_8_bits(x):
            how = steps, layout, (activation, residual, out)
            return _quantized(x, w, bias, quantized_steps, how)
        src, weights = _operands(x, w, dtype)
        require_none(quantized_steps, src.dtype)
        offset = bias_operand(bias, weights)
        epilogue = activation, offset is not None
        conv = _conv_of(src, weights, layout, steps, (algorithm, accuracy), epilogue)
        added = None if residual is None else _like_y("residual", residual, src, conv)
        KNOWN.keep(arrays, others, conv, (src, weights, offset, added))
        arrays = src, weights, offset, added
    if out is not None:
        operands = dict(zip(("x", "w", "bias", "residual"), arrays, strict=True))
        result_array(out, conv.result_shape, operands, arrays[0].dtype)
    return conv.forward(*arrays, out)


def _quantized(x: Any, w: Any, bias: Any, quantized_steps: Steps, how: Any) -> Array:
    steps, layout, (activation, residual, out) = how
    layout_name(layout, "NCHW", "NHWC")
    src, weights = quantized.operands_of(x, w, 4)
    n, c, *image = src.shape
    if layout == "NHWC":
        c, image = src.shape[3], list(src.shape[1:3])
    numbers = geometry((n, c, *image), weights.shape, *steps)
    to = quantized.requantization(src, weights, bias, quantized_steps)
    return quantized.conv2d((src, weights), numbers, layout, (activation, residual, out, to))


@instead(**ARRAYS)
def conv2d_backward(
    dy: Any,
    x: Any,
    w: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    layout: str = "NCHW",
    y: Any = None,
    z: Any = None,
    activation: str | None = None,
    algorithm: str = "auto",
    accuracy: str | None = None,
    dtype: npt.DTypeLike | None = None,
) -> Conv2dGradients:
    """Gradients of `conv2d` with respect to x, w and bias.

    Parameters
    ----------
    dy : array of the dtype of x, the shape of y
        Gradient of the loss with respect to the result of `conv2d`.
    x, w, stride, padding, dilation, groups, layout, algorithm, accuracy
        As passed to `conv2d`.
    y : array of the dtype of x, (N, K, P, Q) or (N, P, Q, K)
        The result of `conv2d`. Required exactly for relu, relu6, sigmoid, hardsigmoid or tanh.
    z : array of the dtype of x, the shape of y
        The argument of the activation, that is, the result of `conv2d` without it. Required exactly
        for gelu, gelu_tanh, swish or hardswish, whose derivative cannot be computed from the
        result.
    activation : None or str
        As passed to `conv2d`. With relu, dy passes where y is positive or NaN. Other activations
        cost a pass over dy.
    dtype : None or "bfloat16"
        As for `conv2d`; dx and dw are then uint16.

    Returns
    -------
    Conv2dGradients
        ``(dx, dw, db)``; db is float32.

    Raises
    ------
    TypeError, ValueError
        As for `conv2d`; ValueError if y or z is missing, or given but not needed.
    """
    steps = stride, padding, dilation, groups
    arrays = dy, x, w, y, z
    others = "conv2d_backward", steps, activation, layout, algorithm, accuracy, dtype
    known: PlainConv2d | None = KNOWN.find(arrays, others)
    if known is not None:
        return Conv2dGradients._make(known.backward(dy, x, w, y))
    src, weights = _operands(x, w, dtype)
    activation = kernel_activation(activation)
    needs, kept = saved_by(activation, y, z, "conv2d")
    conv = _conv_of(src, weights, layout, steps, (algorithm, accuracy), (None, False))
    diff_dst = _like_y("dy", dy, src, conv)
    saved = None if needs is None else _like_y(needs, kept, src, conv)
    if activation is not None and activation != "relu" and saved is not None:
        diff_dst, saved = in_front(activation, diff_dst, saved), None
    else:
        KNOWN.keep(arrays, others, conv, (diff_dst, src, weights, saved, None))
    return Conv2dGradients._make(conv.backward(diff_dst, src, weights, saved))


def conv2d_gradients(
    dy: Any, x: Any, w: Any, steps: tuple[Any, ...], layout: str, wanted: tuple[bool, bool]
) -> tuple[Array | None, Array | None, FloatArray | None]:
    """What `conv2d_backward` returns, of x, and of w and bias, where each is wanted.

    ``steps`` are stride, padding, dilation and groups.
    """
    src, weights = _operands(x, w, None)
    conv = _conv_of(src, weights, layout, steps, ("auto", None), (None, False))
    diff_dst = _like_y("dy", dy, src, conv)
    if all(wanted):
        return conv.backward(diff_dst, src, weights, None)
    if not wanted[0]:
        return None, *conv.backward_weights(diff_dst, src)
    dx = aligned(src.shape, src.dtype)
    conv.backward_data(diff_dst, weights, dx)
    return dx, None, None


@lru_cache(maxsize=_PREPARED)
def _prepared(algorithm: str, accuracy: str | None, numbers: Geometry, *others: Any) -> PlainConv2d:
    """With the schedules that are stored for a `Conv2d` of as many images as it runs at once."""
    extents = numbers.numbers()
    conv = new_core(PlainConv2d, algorithm, accuracy, tuple(extents.values()), *others)
    dtype, _, layout, *_ = others
    extents["N"] = conv.portion_images
    store.use_stored(conv, store.Problem("conv2d", extents, dtype, layout.lower()))
    return conv


def plain_conv(
    numbers: Geometry, dtype: str, bias: bool, activation: str | None = None
) -> PlainConv2d:
    """Of (N, C, H, W), with what a call of `conv2d` chooses by default."""
    how = resolved("auto"), require_accuracy(None)
    return _prepared(*how, numbers, dtype, dtype, "blocked", activation_name(activation), bias)


def _conv_of(
    src: Array,
    weights: Array,
    layout: str,
    steps: tuple[Any, ...],
    how: tuple[str, str | None],
    epilogue: tuple[str | None, bool],
) -> PlainConv2d:
    """The convolution of a call; steps are stride, padding, dilation and groups."""
    layout_name(layout, "NCHW", "NHWC")
    n, *extents = src.shape
    if layout == "NHWC":
        extents = [extents[2], *extents[:2]]
    numbers = geometry((n, *extents), weights.shape, *steps)
    activation, bias = epilogue
    kind = type_of(src)
    others = kind, kind, _LAYOUTS[layout], activation_name(activation), bias
    return _prepared(resolved(how[0]), require_accuracy(how[1]), numbers, *others)


def _operands(x: Any, w: Any, dtype: npt.DTypeLike | None) -> tuple[Array, Array]:
    src = float_operand("x", x, dtype is not None and holds_bits(dtype))
    weights = like("w", w, src)
    require_type("w", weights, src)
    for name, array in (("x", src), ("w", weights)):
        if array.ndim != 4:
            raise ValueError(f"{name} has shape {array.shape}, expected four dimensions")
    return src, weights


def _like_y(name: str, value: Any, src: Array, conv: PlainConv2d) -> Array:
    return like_x(name, value, src, conv.result_shape, "the result's from x and w")
