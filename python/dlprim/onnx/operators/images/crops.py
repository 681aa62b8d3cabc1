"""Regions of images resized to one size: products with the shares of pixels along each axis."""

from __future__ import annotations

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Value
from dlprim.onnx.operators.places import line
from dlprim.onnx.operators.shapes import numbers
from dlprim.onnx.registry import RefusedError, operator

_X, _Y = operand(0), operand(1)


def _place(count: int, extent: int) -> Expression:
    """Where each of ``count`` pixels lies, of their numbers and a start and an end in shares."""
    start, end = operand(1), operand(2)
    if count == 1:
        middle = ("multiply", number(0.5), ("add", start, end))
        return ("multiply", middle, number(float(extent - 1)))
    step = ("multiply", ("subtract", end, start), number((extent - 1) / (count - 1)))
    first, last = (("multiply", it, number(float(extent - 1))) for it in (start, end))
    inside = ("add", first, ("multiply", _X, step))
    # The last one as it is said, which sums of steps might miss by a rounding.
    return ("where", ("equal", _X, number(float(count - 1))), last, inside)


def _shares(
    build: Builder, ends: tuple[Value, Value], count: int, extent: int, mode: str
) -> tuple[Value, Value]:
    """What each pixel gives to each of ``count`` (regions, count, extent); which are inside."""
    order = build.cast(line(build, count, 0, 1), "float32")
    regions = ends[0].shape[0]
    at = build.map(_place(count, extent), build.reshape(order, (1, count)), *ends, dtype="float32")
    inside = ("and", ("greater_equal", _X, number(0.0)), ("less_equal", _X, number(extent - 1.0)))
    is_inside = build.map(inside, at, dtype=bool)
    columns = build.cast(line(build, extent, 2, 3), "float32")
    at = build.reshape(at, (regions, count, 1))
    if mode == "bilinear":
        distance = ("abs", ("subtract", _X, _Y))
        share: Expression = ("maximum", ("subtract", number(1.0), distance), number(0.0))
    else:  # halves go up
        low, high = ("subtract", _X, number(0.5)), ("add", _X, number(0.5))
        is_nearest = ("and", ("greater_equal", _Y, low), ("less", _Y, high))
        share = ("where", is_nearest, number(1.0), number(0.0))
    return build.map(share, columns, at, dtype="float32"), is_inside


@operator("CropAndResize", domain="com.microsoft")
def crop_and_resize(
    build: Builder,
    x: Value,
    regions: Value,
    samples: Value,
    size: Value,
    *,
    extrapolation_value: float = 0.0,
    mode: str = "bilinear",
) -> Value:
    """Corners of regions are shares of the image; outside of it is one number."""
    if mode not in ("bilinear", "nearest"):
        raise RefusedError(f"mode is {mode!r}, expected bilinear or nearest")
    if x.dtype != "float32" or regions.dtype != x.dtype or len(x.shape) != 4 or 0 in x.shape:
        raise RefusedError(f"X is {x!r} and rois {regions!r}, expected (N, C, H, W) of float32")
    if len(samples.shape) != 1 or regions.shape != (*samples.shape, 4):
        raise RefusedError(f"rois are of {list(regions.shape)}, expected 4 numbers for each index")
    if samples.dtype.name not in ("int32", "int64"):
        raise RefusedError(f"batch_indices are of {samples.dtype}, expected int32 or int64")
    counts = numbers(build, size)
    if len(counts) != 2 or min(counts) < 1:
        raise RefusedError(f"crop_size is {list(counts)}, expected two numbers from 1 on")
    count = regions.shape[0]
    corners = [build.slice(regions, (0, at), (count, 1), (1, 1)) for at in range(4)]
    rows, rows_inside = _shares(build, (corners[0], corners[2]), counts[0], x.shape[2], mode)
    columns, columns_inside = _shares(build, (corners[1], corners[3]), counts[1], x.shape[3], mode)
    images = build.gather(x, samples, 0)
    below = build.matmul(build.reshape(rows, (count, 1, counts[0], x.shape[2])), images)
    across = build.reshape(columns, (count, 1, counts[1], x.shape[3]))
    y = build.matmul(below, build.transpose(across, (0, 1, 3, 2)))
    inside = (
        build.reshape(rows_inside, (count, 1, counts[0], 1)),
        build.reshape(columns_inside, (count, 1, 1, counts[1])),
    )
    both = ("and", _Y, operand(2))
    return build.map(("where", both, _X, number(extrapolation_value)), y, *inside)
