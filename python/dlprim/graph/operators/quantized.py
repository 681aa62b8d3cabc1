"""Products of 8-bit integers with exact sums, ended in one step as the kernels' epilogues end them.

    value = float32(sum (x - x_zero_point) * w) * scale[k] + bias[k] + residual * residual_scale
    result = min(max(value, lowest), highest)                       float32 or bfloat16
    result = round_half_even(the same) + y_zero_point               uint8 or int8

Every step is rounded to float32. ``scale``, ``bias`` and the bounds are in units of the result's
step, the bounds in front of the zero point, so that relu, clips and saturation are one pair of
numbers. Operands: x (uint8 or int8), w (int8), scale (K,), bias (K,) or None, and a residual of
the result's type and shape or None. In front of a residual ``inner``, if it is not None, rounds
the sum to 8 bits of its own, (lowest, highest, scale, shift), bounds in the steps of those:

    value = round_half_even(min(max(value, lowest), highest)) * scale + shift

An LSTM layer in one direction has the products with its input done: ``gates`` (T, N, 4 K), with
biases, in ONNX's order i, o, f, c. Each step quantises the hidden state, all samples in one range,
``q = uint8(h / s + z)``, and adds ``float32(sum (q - z) * r) * s * scale``. Operands: gates, r
(K, 4 K) of int8, scale (4 K,), the states h and c (N, K) or None. ``reverse``: from the end.

Attention is ``round(softmax(scale * round(q @ k.T) + mask)) @ v``, where a byte b stands for
``(b - zero_point) * scale``. Attributes: ``steps``, the (scale, zero_point, dtype) of q, k, v and
of the weights that the softmax makes, which are rounded; ``scores`` and ``y`` those of the first
product and the result, which are not rounded where that is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlprim.arguments.floats import dtype_named
from dlprim.graph.expressions import Expression, number, operand, sigmoid
from dlprim.graph.graph import Array, Value
from dlprim.graph.operators.attention import infer_attention, softmax_of_scores
from dlprim.graph.operators.convolutions import CONVOLUTIONS
from dlprim.graph.operators.elements import NO_GRADIENT, converted
from dlprim.graph.operators.operator import Arrays, Attributes, Operator, Result, Values, there
from dlprim.graph.operators.products import PRODUCTS

# Of which a sum of products cannot leave 32 bits, however large they are.
MOST_SUMMANDS = (2**31 - 1) // (255 * 128)


# What sums are made by.
_EXACT = {**CONVOLUTIONS, **PRODUCTS}


def _infer(operator: str, axis: int) -> Any:
    """Of the float operator with this name, whose results have channels along an axis."""

    def infer(values: Values, attributes: Attributes) -> list[Result]:
        x, w, scale, bias, residual = values
        dtype = dtype_named(attributes["dtype"])
        shape = _EXACT[operator].infer([x, w], attributes)[0][0]
        if there(x).dtype.name not in ("uint8", "int8") or there(w).dtype.name != "int8":
            raise ValueError(f"x and w are {x!r} and {w!r}, expected uint8 or int8, and int8")
        for name, value in (("scale", scale), ("bias", bias)):
            if value is not None and (value.shape, value.dtype.name) != (
                (shape[axis],),
                "float32",
            ):
                raise ValueError(f"{name} is {value!r}, expected float32[{shape[axis]}]")
        if attributes["inner"] is not None and residual is None:
            raise ValueError("inner is there without a residual")
        if residual is not None and (residual.shape, residual.dtype) != (shape, dtype):
            raise ValueError(f"the residual is {residual!r}, expected {dtype}{list(shape)}")
        lowest, highest = limits(attributes["dtype"], attributes["y_zero_point"])
        if not lowest <= attributes["lowest"] <= attributes["highest"] <= highest:
            raise ValueError(
                f"the bounds are {attributes['lowest']} and {attributes['highest']}, expected them "
                f"in order and within {lowest} to {highest}"
            )
        return [(shape, dtype)]

    return infer


def limits(dtype: str, zero_point: int) -> tuple[float, float]:
    """The bounds that saturation alone makes."""
    if dtype not in ("uint8", "int8"):
        return -math.inf, math.inf
    whole = np.iinfo(dtype)
    return float(whole.min - zero_point), float(whole.max - zero_point)


def _compute(operator: str, axis: int) -> Any:
    def compute(arrays: Arrays, attributes: Attributes) -> list[Any]:
        x, w, *rest = arrays
        # Whole numbers below 2^53 are exact in float64, and NumPy multiplies those faster.
        lifted = x.astype(np.float64) - attributes["x_zero_point"]
        named = {**attributes, "dtype": "float64"}
        sums = _EXACT[operator].compute([lifted, w.astype(np.float64)], named)[0]
        return [_ended(sums, rest, attributes, axis)]

    return compute


def _ended(sums: Array, operands: Sequence[Any], attributes: Attributes, axis: int) -> Array:
    scale, bias, residual = operands
    channels = [1] * sums.ndim
    channels[axis] = -1
    dtype = dtype_named(attributes["dtype"])
    with np.errstate(all="ignore"):
        value = sums.astype(np.float32) * scale.reshape(channels)
        if bias is not None:
            value = value + bias.reshape(channels)
        if attributes["inner"] is not None:
            value = _rounded(value, *attributes["inner"])
        if residual is not None:
            factor = np.float32(attributes["residual_scale"])
            value = value + residual.astype(np.float32) * factor
        bounds = np.float32(attributes["lowest"]), np.float32(attributes["highest"])
        if dtype.kind in "iu":
            value = np.where(value > bounds[0], value, bounds[0])  # NaN too
            value = np.rint(np.minimum(value, bounds[1])) + np.float32(attributes["y_zero_point"])
        else:
            value = np.clip(value, *bounds)
        return converted(value, dtype)


def _rounded(value: Array, *inner: float) -> Any:
    lowest, highest, scale, shift = (np.float32(it) for it in inner)
    kept = np.minimum(np.where(value > lowest, value, lowest), highest)  # NaN too
    return np.rint(kept) * scale + shift


# ---------------------------------------------------------------- attention


def _infer_attention(values: Values, attributes: Attributes) -> list[Result]:
    """As `attention`, of bytes."""
    for value, (_, _, dtype) in zip(values[:3], attributes["steps"], strict=False):
        if there(value).dtype.name != dtype or dtype not in ("uint8", "int8"):
            raise ValueError(f"{value!r} is expected to be {dtype}, uint8 or int8")
    shape = infer_attention(values, attributes)[0][0]
    y = attributes["y"]
    return [(shape, np.dtype(np.float32 if y is None else y[2]))]


def _compute_attention(arrays: Arrays, attributes: Attributes) -> list[Any]:
    q, k, v, mask = (*arrays, None)[:4]
    steps = attributes["steps"]
    lifted = [
        it.astype(np.float64) - zero for it, (_, zero, _) in zip((q, k, v), steps, strict=False)
    ]
    lifted[1:] = [np.repeat(it, q.shape[1] // max(1, k.shape[1]), axis=1) for it in lifted[1:]]
    scales = [scale for scale, _, _ in steps]
    with np.errstate(all="ignore"):
        products = lifted[0] @ lifted[1].swapaxes(-1, -2)
        weights = softmax_of_scores(
            _rounded_floats(products, scales[0] * scales[1], attributes["scores"]), mask, attributes
        )
        scale, zero, dtype = steps[3]
        counts = _steps_of(weights.astype(np.float32), np.float32(scale), (zero, dtype))
        sums = (counts.astype(np.float64) - zero) @ lifted[2]
        if attributes["y"] is None:
            return [sums.astype(np.float32) * np.float32(scales[3] * scales[2])]
        step, *to = attributes["y"]
        return [
            _steps_of(sums.astype(np.float32) * np.float32(scales[3] * scales[2] / step), 1, to)
        ]


def _rounded_floats(products: Array, scale: float, steps: Any) -> Array:
    """Sums of products as the numbers that they stand for, rounded where there are steps."""
    if steps is None:
        return np.asarray(products * np.float32(scale))
    step, zero, dtype = steps
    counts = _steps_of(products.astype(np.float32) * np.float32(scale / step), 1, (zero, dtype))
    return np.asarray((counts.astype(np.float64) - zero) * np.float32(step))


def _steps_of(x: Array, step: Any, to: Sequence[Any]) -> Array:
    """The numbers in 8 bits."""
    zero, dtype = to
    lowest, highest = limits(dtype, zero)
    steps = np.rint(x / step)
    kept = np.minimum(np.where(steps > lowest, steps, lowest), highest)  # NaN too
    return np.asarray((kept + zero).astype(dtype))


# ---------------------------------------------------------------- LSTM

Emit = Callable[..., Sequence[Value]]  # of an operator, its inputs and its attributes by name


def in_bytes(emit: Emit, x: Value) -> tuple[Value, Value, Value]:
    """x in uint8, the scale and the zero point: from its least to its greatest element and 0.

    Of zeros the scale is 0.
    """
    axes, zero = tuple(range(len(x.shape))), number(0.0)
    low, high = (
        emit("reduce", [x], function=it, axes=axes, keepdims=False)[0] for it in ("min", "max")
    )
    least, most = ("minimum", operand(0), zero), ("maximum", operand(1), zero)
    width = ("divide", ("subtract", most, least), number(255.0))
    (scale,) = emit("map", [low, high], expression=width, dtype=x.dtype.name)
    shift: Expression = ("divide", ("negate", least), operand(1))
    shift = ("where", ("equal", operand(1), zero), zero, shift)
    inside = ("minimum", ("fmax", ("round", shift), zero), number(255.0))
    (zero_point,) = emit("map", [low, scale], expression=inside, dtype="uint8")
    (q,) = emit("quantize", [x, scale, zero_point], axis=0, dtype="uint8")
    return q, scale, zero_point


def _infer_lstm(values: Values, attributes: Attributes) -> list[Result]:
    gates, r, columns = (there(value) for value in values[:3])
    hidden = r.shape[0]
    if len(gates.shape) != 3 or r.shape[1:] != gates.shape[2:] or r.shape[1] != 4 * hidden:
        raise ValueError(f"gates and r are {gates!r} and {r!r}, expected (T, N, 4 K) and (K, 4 K)")
    if r.dtype != np.int8 or (columns.shape, columns.dtype) != (r.shape[1:], gates.dtype):
        raise ValueError(f"r and scale are {r!r} and {columns!r}, expected int8 and {gates.dtype}")
    steps, samples, _ = gates.shape
    return [((steps, samples, hidden), gates.dtype)] + [((samples, hidden), gates.dtype)] * 2


def _compute_lstm(arrays: Arrays, attributes: Attributes) -> list[Any]:
    gates, r, scale, *given = arrays
    steps, samples, hidden = gates.shape[0], gates.shape[1], r.shape[0]
    h, c = (np.zeros((samples, hidden)) if it is None else it for it in (*given, None, None)[:2])
    y = np.zeros((steps, samples, hidden), np.float32)
    for step in range(steps)[:: -1 if attributes["reverse"] else 1]:
        span = max(0, h.max(initial=0)) - min(0, h.min(initial=0))
        width = np.float32(span / 255) or np.float32(1)
        zero = np.clip(np.rint(-min(0, h.min(initial=0)) / width), 0, 255)
        q = np.clip(np.rint(h / width) + zero, 0, 255) - zero
        summed = gates[step] + (q @ r.astype(np.float64)) * (width * scale)
        i, o, f, g = np.split(summed, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = y[step] = (sigmoid(o) * np.tanh(c)).astype(np.float32)
    return [y, h.astype(np.float32), np.asarray(c, np.float32)]


QUANTIZED = {
    "quantized_lstm": Operator("recur", _infer_lstm, _compute_lstm, NO_GRADIENT),
    "quantized_attention": Operator("contract", _infer_attention, _compute_attention, NO_GRADIENT),
    "quantized_convolution": Operator(
        "contract", _infer("convolution", 1), _compute("convolution", 1), NO_GRADIENT
    ),
    "quantized_matmul": Operator(
        "contract", _infer("matmul", -1), _compute("matmul", -1), NO_GRADIENT
    ),
}
