"""Stateless functions on plain layouts: PyTorch's shapes and defaults, arrays in and out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlprim import _core as core
from dlprim.arguments.arrays import Array, FloatArray, result_array, taken
from dlprim.arguments.floats import (
    bias_operand,
    float_operand,
    holds_bits,
    like,
    like_x,
    require_type,
)
from dlprim.arguments.instead import ARRAYS, instead
from dlprim.arguments.names import activation_name, kernel_activation
from dlprim.functions import quantized, quantized_weights
from dlprim.functions.activated import saved_by
from dlprim.functions.quantized import Steps, has_8_bits, require_none
from dlprim.functions.quantized_weights import QuantizedWeights, require_channels

_MOST_CHANNELS = 1 << 24  # the kernel's bound on leading dimensions
_Y = "leading axes of x, K from w"


class LinearGradients(NamedTuple):
    """What `linear_backward` returns.

    Attributes
    ----------
    dx : ndarray of the dtype of x, (..., C)
    dw : ndarray of the dtype of x, (K, C)
    db : ndarray of float32, (K,)
    """

    dx: Array
    dw: Array
    db: FloatArray


@instead(**ARRAYS)
def linear(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    activation: str | None = None,
    out: Array | None = None,
    dtype: npt.DTypeLike | None = None,
    x_scale: Any = None,
    x_zero_point: int = 0,
    w_scale: Any = None,
    y_scale: Any = None,
    y_zero_point: int = 0,
    y_dtype: npt.DTypeLike | None = None,
) -> Array:
    """A fully connected layer: ``y = activation(x @ w.T + bias)``.

    Parameters
    ----------
    x : array of float32, bfloat16, uint8 or int8, (..., C)
    w : array of the same dtype, or int8 for 8 bits, (K, C)
        Or, for a floating-point x, what `quantize_weights` returns.
    bias : array of float32 or bfloat16, (K,), optional
        For 8-bit x of float32, or of int32, which is added to the sums before they are scaled.
    activation : None or str
        "relu", "relu6", "sigmoid", "hardsigmoid", "tanh", "gelu", "gelu_tanh", "swish" (also called
        "silu") or "hardswish", applied before the only store of the result.
    out : ndarray of the dtype of x, (..., K), optional
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
    ndarray of the dtype of x, or of y_dtype, (..., K)
        The bits do not depend on the number of threads.

    Raises
    ------
    TypeError
        An argument is not an array, or has the wrong dtype.
    ValueError
        Shapes do not agree, the activation is unknown, or `out` does not fit the result.

    Notes
    -----
    Nothing is kept between calls; `Linear` packs weights once. Sources: see `Linear`.
    """
    has_steps = not (
        x_scale is w_scale is y_scale is y_dtype is None and x_zero_point == y_zero_point == 0
    )
    if activation is not None:
        activation = activation_name(activation)
    if dtype is None and not has_steps:
        if type(w) is QuantizedWeights:
            return quantized_weights.linear(w, x, bias, activation, out, False)
        y: Array | None = core.linear(x, w, bias, activation, out, False)
        if y is not None:
            return y
    steps = Steps(x_scale, x_zero_point, w_scale, y_scale, y_zero_point, y_dtype)
    if type(w) is QuantizedWeights:
        require_none(steps, getattr(x, "dtype", None))
        return quantized_weights.linear(w, x, bias, activation, out, holds_bits(dtype))
    if has_8_bits(x):
        exact = quantized.operands_of(x, w, None)
        to = quantized.requantization(*exact, bias, steps)
        return quantized.linear(exact, activation, out, to)
    if has_steps:
        require_none(steps, getattr(x, "dtype", None))
    src, weights = _operands(x, w, holds_bits(dtype))
    offset = None if bias is None else _base(bias_operand(bias, weights))
    shape = (*src.shape[:-1], weights.shape[0])
    dst = result_array(out, shape, {"x": src, "w": weights, "bias": offset}, src.dtype)
    result: Array = taken(core.linear(src, weights, offset, activation, dst, True))
    return result


def linear_backward(
    dy: Any,
    x: Any,
    w: Any,
    *,
    y: Any = None,
    z: Any = None,
    activation: str | None = None,
    dtype: npt.DTypeLike | None = None,
) -> LinearGradients:
    """Gradients of `linear` with respect to x, w and bias.

    Parameters
    ----------
    dy : array of the dtype of x, (..., K)
        Gradient of the loss with respect to the result of `linear`.
    x : array of float32 or bfloat16, (..., C)
    w : array of the same dtype, (K, C)
    y : array of the dtype of x, (..., K)
        The result of `linear`. Required exactly for relu, relu6, sigmoid, hardsigmoid or tanh.
    z : array of the dtype of x, (..., K)
        The argument of the activation, ``linear(x, w, bias)``. Required exactly for gelu,
        gelu_tanh, swish or hardswish, whose derivative cannot be computed from the result.
    activation : None or str
        As passed to `linear`.
    dtype : None or "bfloat16"
        As for `linear`; dx and dw are then uint16.

    Returns
    -------
    LinearGradients
        ``(dx, dw, db)``; db is float32.

    Raises
    ------
    TypeError, ValueError
        As for `linear`; ValueError if y or z is missing, or given but not needed.
    """
    activation = kernel_activation(activation)
    needs, kept = saved_by(activation, y, z, "linear")
    if dtype is None:
        gradients = core.linear_backward(dy, x, w, kept, activation, False)
        if gradients is not None:
            return tuple.__new__(LinearGradients, gradients)  # in half its constructor's time
    src, weights = _operands(x, w, holds_bits(dtype))
    shape = (*src.shape[:-1], weights.shape[0])
    diff_dst = _base(like_x("dy", dy, src, shape, _Y))
    saved = None
    if needs is not None:
        saved = _base(like_x(needs, kept, src, shape, _Y))
    found = taken(core.linear_backward(diff_dst, src, weights, saved, activation, True))
    return LinearGradients(*found)


def _operands(x: Any, w: Any, bits: bool) -> tuple[Array, Array]:
    src = float_operand("x", x, bits)
    weights = like("w", w, src)
    require_type("w", weights, src)
    if weights.ndim != 2:
        raise ValueError(f"w has shape {weights.shape}, expected two dimensions (K, C)")
    require_channels(src, weights.shape)
    if max(weights.shape) > _MOST_CHANNELS:
        raise ValueError(f"w has shape {weights.shape}, expected at most 2^24 channels on an axis")
    return _base(src), _base(weights)


def _base(array: Any) -> Any:
    """The same memory as an ndarray: the core takes no subclass, such as a memory map, for one."""
    return array if type(array) is np.ndarray else array.view(np.ndarray)
