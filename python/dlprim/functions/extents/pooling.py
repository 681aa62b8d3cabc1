"""Maxima and means of windows of plain arrays along one, two and three axes, and their gradients.

They are those of packed images: a signal is an image of one row, and windows of a volume are
windows of its slices and then of the slices' results.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dlprim import _core
from dlprim.arguments.arrays import Array, Shape, aligned, result_array
from dlprim.arguments.floats import holds_bits, like_x, plain_operand, type_of, widened
from dlprim.arguments.instead import instead
from dlprim.arguments.scalars import flag
from dlprim.functions.conv.windows import steps
from dlprim.primitives.pooling import AvgPool2d, MaxPool2d

_SHAPES = {1: "(N, C, W)", 2: "(N, C, H, W)", 3: "(N, C, D, H, W)"}
_PREPARED = 128  # geometries that are kept; a network has fewer

_ALONE = 1, 1, 0  # kernel, stride and padding of an axis that is left as it is

Pair = tuple[int, int]


class _Stage(NamedTuple):
    """Windows of images."""

    shape: Shape
    kernel: Pair
    stride: Pair
    padding: Pair


class _Windows(NamedTuple):
    stages: tuple[_Stage, ...]
    y_shape: Shape


@lru_cache(maxsize=_PREPARED)
def _pool(stage: _Stage, dtype: str, kind: str) -> Any:
    if kind == "max":
        return MaxPool2d(*stage, dtype=dtype)
    return AvgPool2d(*stage, dtype=dtype, count_include_pad=kind == "average_padded")


def _windows(shape: Shape, kernel: Any, stride: Any, padding: Any) -> _Windows:
    """TypeError or ValueError where the arguments are none of so many axes."""
    axes = len(shape) - 2
    taps = steps("kernel", kernel, axes, 1)
    strides = taps if stride is None else steps("stride", stride, axes, 1)
    sides = steps("padding", padding, axes, 0)
    due = []
    for axis in range(axes):
        extent, around = shape[axis + 2], 2 * sides[axis]
        if around > taps[axis]:
            raise ValueError(f"padding is {padding!r}, expected at most half of kernel = {kernel}")
        if taps[axis] > extent + around:
            raise ValueError(
                f"kernel covers {taps[axis]} elements along axis {axis + 2} of x, which has "
                f"{extent} and a padding of {around}"
            )
        due.append((extent + around - taps[axis]) // strides[axis] + 1)
    n, c, *extents = shape
    how = taps, strides, sides
    if axes == 1:
        rows = [(it, of[0]) for it, of in zip(_ALONE, how, strict=True)]
        stages: tuple[_Stage, ...] = (_Stage((n, c, 1, *extents), *rows),)
    else:
        flat = [(of[-2], of[-1]) for of in how]
        depth = extents[0] if axes == 3 else 1
        stages = (_Stage((n, c * depth, *extents[-2:]), *flat),)
        if axes == 3:
            along = [(of[0], it) for it, of in zip(_ALONE, how, strict=True)]
            stages += (_Stage((n, c, depth, due[1] * due[2]), *along),)
    return _Windows(stages, (n, c, *due))


def _forward(
    kind: str, axes: int, x: Any, window: tuple[Any, Any, Any], out: Any, dtype: Any
) -> Array:
    src = _operand(x, axes, dtype)
    what = _windows(src.shape, *window)
    result = result_array(out, what.y_shape, {"x": src}, src.dtype)
    images = _unrounded(kind, src, what)
    for stage in what.stages:
        pool = _pool(stage, type_of(images), kind)
        packed = pool.forward(pool.activations.pack(images.reshape(stage.shape)))
        is_result = stage is what.stages[-1] and images.dtype == src.dtype
        last = result.reshape(pool.y_shape) if is_result else None
        images = pool.dst_activations.unpack(packed, last)
    if images.dtype != src.dtype:
        _core.round_to_bfloat16(images.reshape(result.shape), result)
    return result


def _backward(
    kind: str, axes: int, arrays: tuple[Any, Any], window: tuple[Any, Any, Any], dtype: Any
) -> Array:
    """Of dy and x."""
    src = _operand(arrays[1], axes, dtype)
    what = _windows(src.shape, *window)
    diff = like_x("dy", arrays[0], src, what.y_shape, "the result's from x")
    images, passed = _unrounded(kind, src, what), []
    diff = _unrounded(kind, diff, what)
    for stage in what.stages:
        pool, indices = _pool(stage, type_of(images), kind), None
        if kind == "max":
            indices = pool.new_indices()
            packed = pool.activations.pack(images.reshape(stage.shape))
            images = pool.dst_activations.unpack(pool.forward(packed, indices=indices))
        passed.append((pool, indices))
    for pool, indices in reversed(passed):
        packed = pool.dst_activations.pack(diff.reshape(pool.y_shape))
        given = (packed,) if indices is None else (packed, indices)
        diff = pool.activations.unpack(pool.backward(*given))
    return _rounded(diff, src.dtype).reshape(src.shape)


def _unrounded(kind: str, array: Array, what: _Windows) -> Array:
    """In float32 where means are made of means."""
    return widened(array) if kind != "max" and len(what.stages) > 1 else array


def _rounded(images: Array, dtype: np.dtype[Any]) -> Array:
    if images.dtype == dtype:
        return images
    result = aligned(images.shape, dtype)
    _core.round_to_bfloat16(images, result)
    return result


def _operand(x: Any, axes: int, dtype: npt.DTypeLike | None) -> Array:
    src = plain_operand("x", x, dtype is not None and holds_bits(dtype))
    if src.ndim != axes + 2:
        raise ValueError(f"x has shape {src.shape}, expected {axes + 2} dimensions {_SHAPES[axes]}")
    return src


def _average(counts_padding: Any) -> str:
    return "average_padded" if flag("count_include_pad", counts_padding) else "average"


_VALUE = """{what} of each window, like PyTorch's function of this name.

Parameters
----------
x : array of float32 or bfloat16, {shape}
kernel : int or {entries}
    Extents of a window.{most}
stride : int or {entries}, optional
    The kernel by default.
padding : int or {entries}
    On each side, at most half of the kernel.
{counted}out : ndarray of the dtype of x, the shape of the result, optional
    Written and returned. Must be C-contiguous and share no memory with x.
dtype : None or "bfloat16"
    "bfloat16" treats uint16 arrays as the bits of bfloat16 values; the result is then uint16 too.

Returns
-------
ndarray of the dtype of x
    {result} Extents are rounded down.

Raises
------
TypeError, ValueError
    x has the wrong dtype or shape, the geometry is impossible, or `out` does not fit the result.
"""

_SLOPE = """The gradient of `{name}` with respect to x.

Parameters
----------
dy : array of the dtype of x, the shape of the result
    Gradient of the loss with respect to the result of `{name}`.
x : array of float32 or bfloat16, {shape}
kernel, stride, padding{also}
    As passed to `{name}`.
dtype : None or "bfloat16"
    As for `{name}`.

Returns
-------
ndarray of the dtype and shape of x
    {gradient}

Raises
------
TypeError, ValueError
    As for `{name}`.
"""


class Pool(Protocol):
    """Maxima of windows."""

    def __call__(
        self,
        x: Any,
        kernel: Any,
        stride: Any = None,
        padding: Any = 0,
        *,
        out: Array | None = None,
        dtype: npt.DTypeLike | None = None,
    ) -> Array: ...


class PoolBackward(Protocol):
    """Their gradient."""

    def __call__(
        self,
        dy: Any,
        x: Any,
        kernel: Any,
        stride: Any = None,
        padding: Any = 0,
        *,
        dtype: npt.DTypeLike | None = None,
    ) -> Array: ...


class Average(Protocol):
    """Means of windows."""

    def __call__(
        self,
        x: Any,
        kernel: Any,
        stride: Any = None,
        padding: Any = 0,
        *,
        count_include_pad: bool = True,
        out: Array | None = None,
        dtype: npt.DTypeLike | None = None,
    ) -> Array: ...


class AverageBackward(Protocol):
    """Their gradient."""

    def __call__(
        self,
        dy: Any,
        x: Any,
        kernel: Any,
        stride: Any = None,
        padding: Any = 0,
        *,
        count_include_pad: bool = True,
        dtype: npt.DTypeLike | None = None,
    ) -> Array: ...


def _maxima(axes: int) -> tuple[Pool, PoolBackward]:
    @instead(input="x", kernel_size="kernel", ceil_mode="none: extents are rounded down")
    def pool(
        x: Any,
        kernel: Any,
        stride: Any = None,
        padding: Any = 0,
        *,
        out: Array | None = None,
        dtype: npt.DTypeLike | None = None,
    ) -> Array:
        return _forward("max", axes, x, (kernel, stride, padding), out, dtype)

    def backward(
        dy: Any,
        x: Any,
        kernel: Any,
        stride: Any = None,
        padding: Any = 0,
        *,
        dtype: npt.DTypeLike | None = None,
    ) -> Array:
        return _backward("max", axes, (dy, x), (kernel, stride, padding), dtype)

    _name(pool, backward, f"max_pool{axes}d", axes)
    return pool, backward


def _means(axes: int) -> tuple[Average, AverageBackward]:
    @instead(input="x", kernel_size="kernel", ceil_mode="none: extents are rounded down")
    def pool(
        x: Any,
        kernel: Any,
        stride: Any = None,
        padding: Any = 0,
        *,
        count_include_pad: bool = True,
        out: Array | None = None,
        dtype: npt.DTypeLike | None = None,
    ) -> Array:
        kind = _average(count_include_pad)
        return _forward(kind, axes, x, (kernel, stride, padding), out, dtype)

    def backward(
        dy: Any,
        x: Any,
        kernel: Any,
        stride: Any = None,
        padding: Any = 0,
        *,
        count_include_pad: bool = True,
        dtype: npt.DTypeLike | None = None,
    ) -> Array:
        kind = _average(count_include_pad)
        return _backward(kind, axes, (dy, x), (kernel, stride, padding), dtype)

    _name(pool, backward, f"avg_pool{axes}d", axes)
    return pool, backward


def _name(pool: Any, backward: Any, name: str, axes: int) -> None:
    """What `help` and messages say of a function and its gradient."""
    is_max = name.startswith("max")
    words: dict[str, str] = {
        "name": name,
        "shape": _SHAPES[axes],
        "entries": {1: "(width,)", 2: "(height, width)", 3: "(depth, height, width)"}[axes],
        "what": "The largest element" if is_max else "The mean",
        "most": " At most 256 elements of a plane." if is_max else "",
        "counted": ""
        if is_max
        else "count_include_pad : bool\n    Zeros of the padding count as elements.\n",
        "also": "" if is_max else ", count_include_pad",
        "result": "NaN counts as largest, padding as smallest."
        if is_max
        else "Summed in float32; the same bits for any number of threads.",
        "gradient": "The gradient of a window goes to its largest element, the first of equal ones."
        if is_max
        else "The gradient of a window is divided evenly among its elements.",
    }
    for function, text, own in ((pool, _VALUE, name), (backward, _SLOPE, f"{name}_backward")):
        for each in (function, getattr(function, "__wrapped__", function)):
            each.__name__ = each.__qualname__ = own
        function.__doc__ = text.format(**words)


max_pool1d, max_pool1d_backward = _maxima(1)
max_pool2d, max_pool2d_backward = _maxima(2)
max_pool3d, max_pool3d_backward = _maxima(3)
avg_pool1d, avg_pool1d_backward = _means(1)
avg_pool2d, avg_pool2d_backward = _means(2)
avg_pool3d, avg_pool3d_backward = _means(3)
