"""Resize and Upsample: along each axis a few elements with weights, worked out ahead.

Sizes, scales and regions have to be known, as shapes are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import number, operand
from dlprim.graph.extents import derived
from dlprim.graph.graph import Array, Value
from dlprim.graph.operators.operator import axis_within
from dlprim.graph.room import require_room
from dlprim.onnx.registry import RefusedError, operator

_MODES = ("nearest", "linear", "cubic")
_NEAREST: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
_COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
_POLICIES = ("stretch", "not_larger", "not_smaller")

# Of an axis, for each of which places and weights are kept.
MOST_RESULTS = 1 << 24
# Of a place and its weight, with what they are worked out from.
_TABLE_BYTES = 64


class _Manner(NamedTuple):
    """What the attributes say, the same for every axis."""

    mode: str
    coordinates: str = "asymmetric"
    nearest: str = "floor"
    antialias: int = 0
    slope: float = -0.75
    excludes_outside: int = 0
    extrapolation: float = 0.0
    policy: str = "stretch"

    def checked(self) -> _Manner:
        rows = (
            ("mode", self.mode, _MODES),
            ("coordinate_transformation_mode", self.coordinates, _COORDINATES),
            ("nearest_mode", self.nearest, tuple(_NEAREST)),
            ("keep_aspect_ratio_policy", self.policy, _POLICIES),
        )
        for name, given, known in rows:
            if given not in known:
                raise RefusedError(f"{name} is {given!r}, expected one of {', '.join(known)}")
        if self.antialias and self.mode == "nearest":
            raise RefusedError("antialias is 1 for mode 'nearest', expected 'linear' or 'cubic'")
        return self


class _Axis(NamedTuple):
    """One axis: how many elements it has and will have, and what lies between."""

    extent: int
    results: int
    scale: float
    region: tuple[float, float] = (0.0, 1.0)


# ---------------------------------------------------------------- places and weights


def _places_between(axis: _Axis, coordinates: str) -> Array:
    """Where the elements of the result lie between those of the input."""
    places = np.arange(axis.results, dtype=np.float64)
    # A length that need be no whole number, as ONNX's own cases have it, but is one where the
    # scale is a rounded quotient.
    length = axis.scale * axis.extent
    if math.isclose(length, round(length), rel_tol=1e-6):
        length = round(length)
    last = axis.extent - 1
    if coordinates == "align_corners":
        return places * 0 if length == 1 else places * last / (length - 1)
    if coordinates == "asymmetric":
        return places * axis.extent / length
    if coordinates == "tf_half_pixel_for_nn":
        return (places + 0.5) * axis.extent / length
    if coordinates == "tf_crop_and_resize":
        start, end = axis.region
        if length == 1:
            return places * 0 + (start + end) * last / 2
        return start * last + places * (end - start) * last / (length - 1)
    if coordinates == "pytorch_half_pixel" and axis.results == 1:
        return places * 0
    if coordinates == "half_pixel_symmetric":
        around = (places + 0.5 - axis.results / 2) * axis.extent / length
        return around + axis.extent / 2 - 0.5
    return (places + 0.5) * axis.extent / length - 0.5


def _share(distance: Array, manner: _Manner) -> Array:
    """The weight of an element this far away."""
    x = np.abs(distance)
    if manner.mode == "linear":
        return np.asarray(np.clip(1 - x, 0, 1))
    a = manner.slope
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.asarray(np.where(x <= 1, near, np.where(x < 2, far, 0)))


def _taps(axis: _Axis, centers: Array, manner: _Manner, most: int) -> tuple[Array, Array]:
    """Places and weights (count, taps) of the elements around; the edge goes on outside."""
    shrinks = min(axis.scale, 1.0) if manner.antialias else 1.0
    reach = 1 if manner.mode == "linear" else 2
    first = math.floor(-reach / shrinks) + 1
    count = centers.size * (1 - 2 * first + 1)
    require_room("a table of places and weights", count * _TABLE_BYTES, most)
    left = np.ceil(centers)[:, None] - 1
    places = left + np.arange(first, 2 - first)
    weights = _share((places - centers[:, None]) * shrinks, manner)
    if manner.excludes_outside:
        weights = np.where((places < 0) | (places >= axis.extent), 0, weights)
    total = weights.sum(axis=1, keepdims=True)
    weights = weights / np.where(total == 0, 1, total)
    return np.clip(places, 0, axis.extent - 1).astype(np.int64), weights


def _table(axis: _Axis, manner: _Manner, most: int) -> tuple[Array, Array, Array]:
    """Places and weights of what is read for each result, and whether that lies outside."""
    centers = _places_between(axis, manner.coordinates)
    is_outside = (centers < 0) | (centers > axis.extent - 1)
    if manner.mode != "nearest":
        return *_taps(axis, centers, manner, most), is_outside
    nearest = _NEAREST[manner.nearest](centers)
    places = np.clip(nearest, 0, axis.extent - 1).astype(np.int64)[:, None]
    return places, np.ones(places.shape), is_outside


def _resized(build: Builder, x: Value, at: int, axis: _Axis, manner: _Manner) -> Value:
    require_room("a table of places", axis.results * _TABLE_BYTES, build.max_bytes)
    places, weights, is_outside = derived(_table, axis, manner, build.max_bytes)
    if manner.mode == "nearest" and x.dtype != np.float32:
        y = build.gather(x, build.constant(places[:, 0]), at)
    else:
        taps = [build.constant(places), build.constant(weights.astype(x.dtype))]
        y = build.emit("resample", [x, *taps], axis=at)[0]
    if manner.coordinates != "tf_crop_and_resize":
        return y
    if not is_outside.any():
        return y
    mask = build.constant(is_outside.reshape(-1, *[1] * (len(x.shape) - at - 1)))
    filled = ("where", operand(1), number(manner.extrapolation), operand(0))
    return build.map(filled, y, mask)


def _turn(at: int, axis: _Axis) -> tuple[bool, int]:
    """Axes that shrink come first; of those that grow the last one, along which columns of few
    rows are dearest."""
    grows = axis.results > axis.extent
    return grows, -at if grows else at


def _resize(build: Builder, x: Value, axes: dict[int, _Axis], manner: _Manner) -> Value:
    """In float32 at least, from which integers are rounded and saturated."""
    dtype = x.dtype
    is_exact = manner.mode == "nearest" or dtype in (np.float32, np.float64)
    y = x if is_exact else build.cast(x, np.float32)
    for at in sorted(axes, key=lambda at: _turn(at, axes[at])):
        axis = axes[at]
        if manner.coordinates == "tf_crop_and_resize":
            is_same = axis.region == (0.0, 1.0) and axis.results == axis.extent
        else:
            is_same = axis.scale == 1 and axis.results == axis.extent
        if is_same:
            continue
        if not (axis.extent and 0 < axis.scale < math.inf) and axis.results:
            raise RefusedError(f"axis {at} of {axis.extent} cannot be resized to {axis.results}")
        if axis.results > MOST_RESULTS:
            raise RefusedError(f"axis {at} would have {axis.results}, expected at most 2^24")
        y = _resized(build, y, at, axis, manner)
    if np.issubdtype(dtype, np.integer) and not is_exact:
        limits = np.iinfo(dtype)
        limited = ("minimum", ("round", operand(0)), number(limits.max))
        return build.map(("maximum", limited, number(limits.min)), y, dtype=dtype)
    return build.cast(y, dtype)


# ---------------------------------------------------------------- what the inputs say


def _known(build: Builder, value: Value | None) -> list[Any]:
    """The numbers of an input that may be left out or empty."""
    return [] if value is None or not value.size else build.array(value).reshape(-1).tolist()


def _one_each(name: str, values: list[Any], count: int) -> None:
    if len(values) != count:
        raise RefusedError(f"{name} is {values}, expected {count} numbers")


def _from_scales(x: Value, axes: list[int], scales: list[float]) -> dict[int, _Axis]:
    _one_each("scales", scales, len(axes))
    if not all(0 < scale < math.inf for scale in scales):
        raise RefusedError(f"scales is {scales}, expected finite numbers above 0")
    rows = {}
    for at, scale in zip(axes, scales, strict=True):
        rows[at] = _Axis(x.shape[at], derived(_scaled, x.shape[at], scale), scale)
    return rows


def _scaled(extent: int, scale: float) -> int:
    return int(min(np.floor(np.float32(extent) * np.float32(scale)), MOST_RESULTS + 1))


def _from_sizes(x: Value, axes: list[int], sizes: list[int], policy: str) -> dict[int, _Axis]:
    _one_each("sizes", sizes, len(axes))
    if any(size < 0 for size in sizes):
        raise RefusedError(f"sizes is {sizes}, expected numbers from 0 on")
    extents = [max(1, x.shape[at]) for at in axes]
    scales = [size / extent for size, extent in zip(sizes, extents, strict=True)]
    if policy != "stretch":
        scale = min(scales) if policy == "not_larger" else max(scales)
        scales = [scale] * len(axes)
        sizes = [math.floor(scale * extent + 0.5) for extent in extents]
    zipped = zip(axes, sizes, scales, strict=True)
    return {at: _Axis(x.shape[at], size, scale) for at, size, scale in zipped}


def _resize_node(
    build: Builder,
    x: Value,
    inputs: tuple[Value | None, Value | None, Value | None],
    given_axes: tuple[int, ...] | None,
    manner: _Manner,
) -> Value:
    manner = manner.checked()
    rank = len(x.shape)
    axes = list(range(rank)) if given_axes is None else [axis_within(it, rank) for it in given_axes]
    if len(set(axes)) != len(axes):
        raise RefusedError(f"axes is {axes}, expected each at most once")
    roi, scales, sizes = inputs
    factors, counts = _known(build, scales), _known(build, sizes)
    if bool(factors) == bool(counts):
        raise RefusedError("both or neither of scales and sizes are there, expected one of them")
    if factors:
        rows = _from_scales(x, axes, factors)
    else:
        rows = _from_sizes(x, axes, counts, manner.policy)
    if manner.coordinates == "tf_crop_and_resize":
        region = _known(build, roi)
        _one_each("roi", region, 2 * len(axes))
        starts, ends = region[: len(axes)], region[len(axes) :]
        zipped = zip(axes, starts, ends, strict=True)
        rows = {at: rows[at]._replace(region=(start, end)) for at, start, end in zipped}
    return _resize(build, x, rows, manner)


# ---------------------------------------------------------------- the operators


@operator("Upsample", since=7)
def upsample_by_attribute(
    build: Builder, x: Value, *, mode: str = "nearest", scales: tuple[float, ...]
) -> Value:
    factors = build.constant(np.array(scales, np.float32))
    return _resize_node(build, x, (None, factors, None), None, _Manner(mode))


@operator("Resize", since=10)
@operator("Upsample", since=9)
def upsample(build: Builder, x: Value, scales: Value, *, mode: str = "nearest") -> Value:
    return _resize_node(build, x, (None, scales, None), None, _Manner(mode))


@operator("Resize", since=11)
def resize(
    build: Builder,
    x: Value,
    roi: Value | None = None,
    scales: Value | None = None,
    sizes: Value | None = None,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Value:
    modes = (mode, coordinate_transformation_mode, nearest_mode)
    manner = _Manner(*modes, 0, cubic_coeff_a, exclude_outside, extrapolation_value)
    return _resize_node(build, x, (roi, scales, sizes), None, manner)


@operator("Resize", since=18)
def resize_axes(
    build: Builder,
    x: Value,
    roi: Value | None = None,
    scales: Value | None = None,
    sizes: Value | None = None,
    *,
    antialias: int = 0,
    axes: tuple[int, ...] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Value:
    modes = (mode, coordinate_transformation_mode, nearest_mode, antialias)
    edges = (cubic_coeff_a, exclude_outside, extrapolation_value)
    manner = _Manner(*modes, *edges, keep_aspect_ratio_policy)
    return _resize_node(build, x, (roi, scales, sizes), axes, manner)
