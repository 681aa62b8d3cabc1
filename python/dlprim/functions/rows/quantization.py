"""Numbers in 8 bits and back, and scales and zero points for them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, overload

import numpy as np
import numpy.typing as npt

from dlprim.arguments.arrays import Array, FloatArray, array_of, contiguous, result_array, viewed
from dlprim.arguments.floats import (
    dtype_named,
    plain_operand,
    require_plain,
    widened,
)
from dlprim.arguments.names import dtype_name, float_type_name
from dlprim.arguments.scalars import flag, integer, real, shown
from dlprim.functions.rows.row_programs import run_of

_LIMITS = {"uint8": (0, 255), "int8": (-128, 127)}
_NARROW = 64  # elements of a row below which columns take less time


class _Quantizable(Protocol):
    """A model of `dlprim.onnx.load`, which is known here by what it can do."""

    def _quantized(self, calibration: Any, **settings: Any) -> Any: ...


Model = TypeVar("Model", bound=_Quantizable)
# One number for all, or an array of one for each channel.
Number: TypeAlias = float | int | npt.NDArray[Any]


class QuantizationParameters(NamedTuple):
    """What `quantization_parameters` returns.

    Attributes
    ----------
    scale : float, or ndarray of float32, (C,)
    zero_point : int, or ndarray of the 8-bit dtype, (C,)
    """

    scale: float | FloatArray
    zero_point: int | npt.NDArray[Any]


@overload
def quantize(x: Model, scale: Any = None, *, calibration: Any = None, **settings: Any) -> Model: ...


@overload
def quantize(
    x: Any,
    scale: Any,
    zero_point: Any = 0,
    dtype: npt.DTypeLike = "uint8",
    axis: int | None = None,
    *,
    out: Array | None = None,
) -> Array: ...


def quantize(
    x: Any,
    scale: Any = None,
    zero_point: Any = 0,
    dtype: npt.DTypeLike = "uint8",
    axis: int | None = None,
    *,
    out: Array | None = None,
    **settings: Any,
) -> Any:
    """``round(x / scale) + zero_point`` in 8 bits, like ONNX's QuantizeLinear.

    For a model from `dlprim.onnx.load`, quantise by calibration instead: ``quantize(model,
    calibration=[...])``, with the settings of `dlprim.onnx.quantize`.

    Parameters
    ----------
    x : array of float32 or bfloat16, any shape
    scale : float, or array of float32, (C,)
        Above 0 in float32. With an axis, one for each of its C elements.
    zero_point : int, or array of integers, (C,)
        The value that represents 0, in the range of dtype; an integer holds for all channels.
    dtype : "uint8" or "int8"
        Of the result.
    axis : int, optional
        The axis of x with the channels; without it, scale and zero_point are numbers.
    out : ndarray of dtype, the shape of x, optional
        Written and returned. Must be C-contiguous and share no memory with an operand.

    Returns
    -------
    ndarray of dtype, the shape of x
        Halves are rounded to even before the zero point is added. Values out of range, infinities
        included, become the highest or lowest value of dtype; NaN becomes the lowest.

    Raises
    ------
    TypeError, ValueError
        An array has the wrong dtype or shape, dtype does not have 8 bits, scale is not a finite
        number above 0, zero_point is not a value of dtype, x has no such axis, or `out` does not
        fit the result.
    """
    if settings or hasattr(type(x), "_quantized"):
        return _quantized_model(x, scale, settings)
    src = plain_operand("x", x)
    kind = _kind("dtype", dtype)
    channels = _Channels.of("x", src, axis)
    parameters = channels.scale(scale), channels.zero_point(zero_point, kind)
    dst = result_array(out, src.shape, {"x": src, **_arrays(scale, zero_point)}, kind)
    channels.run(f"quantize_{kind}", src.dtype, (src, *parameters, dst))
    return dst


def _quantized_model(x: Any, calibration: Any, settings: dict[str, Any]) -> Any:
    if not hasattr(type(x), "_quantized"):
        raise TypeError(
            f"quantize takes {', '.join(settings)} for a model of dlprim.onnx.load, and x is of "
            f"type {type(x).__name__}"
        )
    if calibration is None:
        calibration = settings.pop("calibration", ())
    return x._quantized(calibration, **settings)


def dequantize(
    q: Any,
    scale: Any,
    zero_point: Any = 0,
    axis: int | None = None,
    dtype: npt.DTypeLike = "float32",
    *,
    out: Array | None = None,
) -> Array:
    """``(q - zero_point) * scale``, like ONNX's DequantizeLinear.

    Parameters
    ----------
    q : array of uint8 or int8, any shape
    scale : float, or array of float32, (C,)
    zero_point : int, or array of integers, (C,)
        A value of the dtype of q.
    axis : int, optional
        All as for `quantize`, with an axis of q.
    dtype : "float32" or "bfloat16"
        Of the result.
    out : ndarray of dtype, the shape of q, optional
        Written and returned. Must be C-contiguous and share no memory with an operand.

    Returns
    -------
    ndarray of dtype, the shape of q
        The difference is exact; the product is rounded to float32, and then to bfloat16 if
        requested.

    Raises
    ------
    TypeError, ValueError
        As for `quantize`, q does not have 8 bits, or dtype is unknown.
    """
    array = viewed("q", q, "uint8 or int8")
    kind = array.dtype.name
    if kind not in _LIMITS:
        raise TypeError(f"q has dtype {array.dtype}, expected uint8 or int8")
    src = contiguous(array)
    require_plain("q", src)
    target = dtype_named(float_type_name(dtype))
    channels = _Channels.of("q", src, axis)
    parameters = channels.scale(scale), channels.zero_point(zero_point, kind)
    dst = result_array(out, src.shape, {"q": src, **_arrays(scale, zero_point)}, target)
    channels.run(f"dequantize_{kind}", target, (src, *parameters, dst))
    return dst


def quantization_parameters(
    x: Any,
    dtype: npt.DTypeLike = "uint8",
    axis: int | None = None,
    *,
    symmetric: bool = False,
) -> QuantizationParameters:
    """A scale and a zero point for which all of x fits into 8 bits and 0 is exact.

    Parameters
    ----------
    x : array of float32 or bfloat16
        Finite and not empty. Only its minimum and maximum matter. If you know these:
        ``np.float32([low, high])``, or with an axis, arrays of them, stacked.
    dtype : "uint8" or "int8"
    axis : int, optional
        The axis of x with channels, which have their own parameters.
    symmetric : bool
        The zero point is 0 for int8 and 128 for uint8, with 127 steps on either side. Otherwise the
        range of dtype goes from the minimum of x and 0 to the maximum of x and 0.

    Returns
    -------
    QuantizationParameters
        ``(scale, zero_point)`` as `quantize` and `dequantize` take them. The scale is 1 if x is 0
        everywhere.

    Raises
    ------
    TypeError, ValueError
        x has the wrong dtype, is empty or not finite, or has no such axis, dtype does not have 8
        bits, or symmetric is not a bool.
    """
    src = plain_operand("x", x)
    kind = _kind("dtype", dtype)
    is_symmetric = flag("symmetric", symmetric)
    channels = _Channels.of("x", src, axis)
    if not src.size:
        raise ValueError(f"x has shape {src.shape}, expected at least one element")
    values = widened(src).view(np.ndarray).reshape(channels.outer, channels.number, channels.inner)
    least = np.minimum(values.min((0, 2)), 0).astype(np.float64)
    most = np.maximum(values.max((0, 2)), 0).astype(np.float64)
    if not np.isfinite(most - least).all():
        raise ValueError("x holds NaN or an infinity, expected finite numbers")
    low, high = _LIMITS[kind]
    if is_symmetric:
        span, steps = np.maximum(-least, most), 127
    else:
        span, steps = most - least, high - low
    tiny = float(np.finfo(np.float32).tiny)
    scale = np.where(span > 0, np.maximum(span / steps, tiny), 1).astype(np.float32)
    if is_symmetric:
        zero = np.full(scale.shape, high - 127)
    else:
        zero = np.clip(np.rint(low - least / scale), low, high)
    if axis is None:
        return QuantizationParameters(float(scale[0]), int(zero[0]))
    return QuantizationParameters(scale, zero.astype(kind))


class _Channels(NamedTuple):
    """An array as (outer, channels, inner); one channel where there is no axis."""

    outer: int
    number: int
    inner: int
    name: str
    axis: int | None

    @classmethod
    def of(cls, name: str, array: Array, axis: Any) -> _Channels:
        if axis is None:
            return cls(1, 1, array.size, name, None)
        if array.ndim == 0:
            raise ValueError(f"{name} has no axis, expected one, as axis is {axis}")
        place = integer("axis", axis, -array.ndim, array.ndim) % array.ndim
        shape = array.shape
        outer, inner = math.prod(shape[:place]), math.prod(shape[place + 1 :])
        return cls(outer, shape[place], inner, name, place)

    def scale(self, value: Any) -> float | FloatArray:
        """The argument scale, checked."""
        if self.axis is None:
            self._refuse_channels("scale", value)
            number = np.float32(_bounded(real("scale", value)))
            if not (0 < number < np.inf):
                raise ValueError(f"scale is {value}, expected a finite float32 above 0")
            return float(number)
        array = array_of("scale", value)
        self._require_channels("scale", array)
        if not ((array > 0) & (array < np.inf)).all():
            raise ValueError("scale holds a number that is not finite or not above 0")
        return array

    def zero_point(self, value: Any, kind: str) -> float | FloatArray:
        """The argument zero_point, checked, as float32."""
        low, high = _LIMITS[kind]
        if self.axis is None or not getattr(value, "shape", ()):
            self._refuse_channels("zero_point", value)
            number = float(_within("zero_point", value, low, high))
            return number if self.axis is None else np.full(self.number, number, np.float32)
        array = viewed("zero_point", value, "integers")
        if array.dtype.kind not in "iu":
            raise TypeError(f"zero_point has dtype {array.dtype}, expected {kind}")
        self._require_channels("zero_point", array)
        if ((array < low) | (array > high)).any():
            raise ValueError(f"zero_point holds a value that {kind} cannot hold")
        return array.astype(np.float32)

    def run(self, name: str, dtype: np.dtype[Any], operands: tuple[Any, ...]) -> None:
        """The program, on (tensor, scale, zero, result)."""
        outer, count, inner = self[:3]
        tensor, scale, zero, result = operands
        if self.axis is None:
            run_of(dtype, name, 1, inner, operands)
        elif inner < _NARROW:
            wide = (np.repeat(it, inner) for it in (scale, zero))
            run_of(dtype, f"{name}_by_column", outer, count * inner, (tensor, *wide, result))
        else:
            long = (np.tile(it, outer) for it in (scale, zero))
            run_of(dtype, f"{name}_by_row", outer * count, inner, (tensor, *long, result))

    def _refuse_channels(self, name: str, value: Any) -> None:
        if getattr(value, "shape", ()):
            raise TypeError(
                f"{name} is {shown(value)}, expected a number, or the axis that it is of"
            )

    def _require_channels(self, name: str, array: Array) -> None:
        if array.shape != (self.number,):
            raise ValueError(
                f"{name} has shape {array.shape}, expected ({self.number},) as axis {self.axis} of "
                f"{self.name} has"
            )


def _arrays(scale: Any, zero_point: Any) -> dict[str, Array]:
    """Those that are arrays, which a result must not overlap."""
    both = {"scale": scale, "zero_point": zero_point}
    return {name: it for name, it in both.items() if isinstance(it, np.ndarray)}


def _bounded(number: float) -> float:
    """As float32 holds it: too large a number is infinite."""
    return number if abs(number) <= float(np.finfo(np.float32).max) else math.inf


def _within(name: str, value: Any, low: int, high: int) -> int:
    number = integer(name, value, -(2**63))
    if not low <= number <= high:
        raise ValueError(f"{name} is {number}, expected an integer from {low} to {high}")
    return number


def _kind(argument: str, dtype: npt.DTypeLike) -> str:
    """The name of an 8-bit dtype."""
    name = dtype_name(argument, dtype)
    if name not in _LIMITS:
        raise TypeError(f"{argument} is {name}, expected uint8 or int8")
    return name
