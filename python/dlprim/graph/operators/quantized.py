"""Products of 8-bit integers with exact sums, ended in one step as the kernels' epilogues end them.

    value = float32(sum (x - x_zero_point) * w) * scale[k] + bias[k] + residual * residual_scale
    result = min(max(value, lowest), highest)                       float32 or bfloat16
    result = round_half_even(the same) + y_zero_point               uint8 or int8

Every step is rounded to float32. ``scale``, ``bias`` and the bounds are in units of the result's
step, the bounds in front of the zero point, so that relu, clips and saturation are one pair of
numbers. Operands: x (uint8 or int8), w (int8), scale (K,), bias (K,) or None, and a residual of
the result's type and shape or None.

Attention is ``round(softmax(scale * round(q @ k.T) + mask)) @ v``, where a byte b stands for
``(b - zero_point) * scale``. Attributes: ``steps``, the (scale, zero_point, dtype) of q, k, v and
of the weights that the softmax makes, which are rounded; ``scores`` and ``y`` those of the first
product and the result, which are not rounded where that is None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dlprim.arguments.floats import dtype_named
from dlprim.graph.graph import Array
from dlprim.graph.operators.elements import converted
from dlprim.graph.operators.operator import Arrays, Attributes, Operator, Result, Values, there
from dlprim.graph.operators.products import PRODUCTS, softmax_of_scores

# Of which a sum of products cannot leave 32 bits, however large they are.
MOST_SUMMANDS = (2**31 - 1) // (255 * 128)


def _infer(operator: str, axis: int) -> Any:
    """Of the float operator with this name, whose results have channels along an axis."""

    def infer(values: Values, attributes: Attributes) -> list[Result]:
        x, w, scale, bias, residual = values
        dtype = dtype_named(attributes["dtype"])
        shape = PRODUCTS[operator].infer([x, w], attributes)[0][0]
        if there(x).dtype.name not in ("uint8", "int8") or there(w).dtype.name != "int8":
            raise ValueError(f"x and w are {x!r} and {w!r}, expected uint8 or int8, and int8")
        for name, value in (("scale", scale), ("bias", bias)):
            if value is not None and (value.shape, value.dtype.name) != (
                (shape[axis],),
                "float32",
            ):
                raise ValueError(f"{name} is {value!r}, expected float32[{shape[axis]}]")
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
        sums = PRODUCTS[operator].compute([lifted, w.astype(np.float64)], named)[0]
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


# ---------------------------------------------------------------- attention


def _infer_attention(values: Values, attributes: Attributes) -> list[Result]:
    """As `attention`, of bytes."""
    for value, (_, _, dtype) in zip(values[:3], attributes["steps"], strict=False):
        if there(value).dtype.name != dtype or dtype not in ("uint8", "int8"):
            raise ValueError(f"{value!r} is expected to be {dtype}, uint8 or int8")
    shape = PRODUCTS["attention"].infer(values, attributes)[0][0]
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


QUANTIZED = {
    "quantized_attention": Operator("contract", _infer_attention, _compute_attention),
    "quantized_convolution": Operator(
        "contract", _infer("convolution", 1), _compute("convolution", 1)
    ),
    "quantized_matmul": Operator("contract", _infer("matmul", -1), _compute("matmul", -1)),
}
