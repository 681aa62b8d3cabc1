"""Regions of images, and convolutions that read where offsets say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.graph import Array, Value
from dlprim.graph.operators.elements import converted
from dlprim.graph.operators.operator import NO_FUNCTION, Arrays, Attributes, callee, widened
from dlprim.graph.room import require_room
from dlprim.onnx.operators.layers.convolutions import checked_shape
from dlprim.onnx.operators.layers.geometry import geometry, kernel_of, numbers
from dlprim.onnx.registry import RefusedError, operator

# ---------------------------------------------------------------- RoiAlign

# Along an axis of a bin, which is more than any memory holds.
_MOST_SAMPLES = 1 << 48


def _samples(start: float, size: float, bins: int, count: int, extent: int) -> Any:
    """Of an axis: the pixels around each of ``bins * count`` samples, and their weights."""
    place = np.arange(bins)[:, None] + (np.arange(count) + 0.5) / max(1, count)
    place = (start + place * size / bins).reshape(-1)
    place = np.where(np.isfinite(place), place, -2)  # outside
    is_inside = (place >= -1) & (place <= extent)
    place = np.clip(place, 0, extent - 1)
    low = np.minimum(np.floor(place).astype(np.int64), max(0, extent - 2))
    high = np.minimum(low + 1, extent - 1)
    share = place - low
    return (low, (1 - share) * is_inside), (high, share * is_inside)


def _aligned(image: Array, region: Array, attributes: Attributes) -> Array:
    """The bins of one region of one image (C, H, W)."""
    bins, count = attributes["bins"], attributes["count"]
    shift = 0.5 if attributes["half_pixel"] else 0.0
    lines, extents = [], image.shape[1:]
    for axis, extent in enumerate(extents):
        start, end = region[1 - axis] * attributes["scale"], region[3 - axis] * attributes["scale"]
        size = end - start if attributes["half_pixel"] else max(end - start, 1.0)
        share = min(size / bins[axis], _MOST_SAMPLES)
        each = count or (math.ceil(share) if share > 0 else 0)
        require_room("a region", 8 * 8 * bins[axis] * each, attributes["most"])
        lines.append((_samples(start - shift, size, bins[axis], each, extent), each))
    (rows, y_count), (columns, x_count) = lines
    samples = image.shape[0] * bins[0] * y_count * bins[1] * x_count
    require_room(f"the region {region.tolist()}", 8 * 8 * samples, attributes["most"])
    if not y_count * x_count:
        return np.zeros((image.shape[0], *bins))
    taps = [
        image[:, y][:, :, x] * (y_weight[:, None] * x_weight)
        for y, y_weight in rows
        for x, x_weight in columns
    ]
    shape = (image.shape[0], bins[0], y_count, bins[1], x_count)
    if attributes["mode"] == "max":
        highest: Array = np.max(taps, axis=0).reshape(shape).max(axis=(2, 4))
        return highest
    mean: Array = np.sum(taps, axis=0).reshape(shape).mean(axis=(2, 4))
    return mean


@callee("roi_align", NO_FUNCTION)
def roi_align_arrays(arrays: Arrays, attributes: Attributes) -> list[Any]:
    x, regions, samples = arrays
    if samples.size and not 0 <= samples.min() <= samples.max() < x.shape[0]:
        raise IndexError(f"batch_indices are expected inside {x.shape[0]}")
    images = widened(x)
    y = np.zeros(attributes["results"][0][0])
    for place, sample in enumerate(samples):
        y[place] = _aligned(images[sample], widened(regions[place]), attributes)
    return [converted(y, x.dtype)]


@operator("RoiAlign", since=10)
def roi_align_whole(
    build: Builder,
    x: Value,
    regions: Value,
    samples: Value,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Value:
    return roi_align(
        build,
        x,
        regions,
        samples,
        coordinate_transformation_mode="output_half_pixel",
        mode=mode,
        output_height=output_height,
        output_width=output_width,
        sampling_ratio=sampling_ratio,
        spatial_scale=spatial_scale,
    )


@operator("RoiAlign", since=16)
def roi_align(
    build: Builder,
    x: Value,
    regions: Value,
    samples: Value,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Value:
    manner = coordinate_transformation_mode
    if mode not in ("avg", "max") or manner not in ("half_pixel", "output_half_pixel"):
        raise RefusedError(f"mode is {mode!r}, {manner!r}, expected avg or max, half_pixel or not")
    if len(x.shape) != 4 or regions.shape != (*samples.shape, 4) or len(samples.shape) != 1:
        raise RefusedError(f"rois of {list(regions.shape)}, expected 4 numbers for each of them")
    if min(output_height, output_width) < 1 or sampling_ratio < 0 or min(x.shape[2:]) < 1:
        raise RefusedError("output_height and output_width are expected from 1 on")
    shape = (regions.shape[0], x.shape[1], output_height, output_width)
    return build.call(
        "roi_align",
        [x, regions, samples],
        [(shape, x.dtype)],
        bins=(output_height, output_width),
        count=sampling_ratio,
        half_pixel=manner == "half_pixel",
        mode=mode,
        most=build.max_bytes,
        scale=spatial_scale,
    )[0]


# ---------------------------------------------------------------- MaxRoiPool


@callee("max_roi_pool", NO_FUNCTION)
def max_roi_pool_arrays(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Regions are samples and corners in whole pixels; an empty bin is 0."""
    x, regions = arrays
    y = np.zeros(attributes["results"][0][0], x.dtype)
    for place, region in enumerate(regions):
        sample = int(region[0])
        if not 0 <= sample < x.shape[0]:
            raise IndexError(f"a region is of image {sample}, expected inside {x.shape[0]}")
        left, top, right, bottom = np.floor(region[1:] * attributes["scale"] + 0.5).astype(int)
        lines = []
        for start, end, bins, extent in (
            (top, bottom, y.shape[2], x.shape[2]),
            (left, right, y.shape[3], x.shape[3]),
        ):
            edges = np.arange(bins + 1) * max(end - start + 1, 1) / bins
            lows = np.clip(np.floor(edges[:-1]).astype(int) + start, 0, extent)
            lines.append((lows, np.clip(np.ceil(edges[1:]).astype(int) + start, 0, extent)))
        for row, column in np.ndindex(*y.shape[2:]):
            rows = slice(lines[0][0][row], lines[0][1][row])
            columns = slice(lines[1][0][column], lines[1][1][column])
            pixels = x[sample, :, rows, columns].reshape(x.shape[1], -1)
            if pixels.shape[1]:
                y[place, :, row, column] = pixels.max(axis=1)
    return [y]


@operator("MaxRoiPool")
def max_roi_pool(
    build: Builder,
    x: Value,
    regions: Value,
    *,
    pooled_shape: tuple[int, ...],
    spatial_scale: float = 1.0,
) -> Value:
    bins = numbers("pooled_shape", pooled_shape, 2, 1, 1)
    if len(x.shape) != 4 or len(regions.shape) != 2 or regions.shape[1] != 5:
        raise RefusedError(f"rois of {list(regions.shape)}, expected (count, 5)")
    shape = (regions.shape[0], x.shape[1], *bins)
    return build.call("max_roi_pool", [x, regions], [(shape, x.dtype)], scale=spatial_scale)[0]


# ---------------------------------------------------------------- DeformConv


def _read(images: Array, rows: Array, columns: Array) -> Array:
    """(N, G, C, H, W) at places (N, G, ...) between pixels, zeros around: (N, G, C, ...)."""
    samples, groups = images.shape[:2]
    sample = np.arange(samples).reshape(-1, *[1] * (rows.ndim - 1))
    group = np.arange(groups).reshape(1, -1, *[1] * (rows.ndim - 2))
    y = np.zeros((*rows.shape, images.shape[2]))
    channels_last = np.moveaxis(images, 2, -1)
    for row in (np.floor(rows), np.floor(rows) + 1):
        for column in (np.floor(columns), np.floor(columns) + 1):
            weight = (1 - np.abs(rows - row)) * (1 - np.abs(columns - column))
            inside = (row >= 0) & (row < images.shape[3])
            inside &= (column >= 0) & (column < images.shape[4])
            at = tuple(np.where(inside, it, 0).astype(np.int64) for it in (row, column))
            read = channels_last[(sample, group, *at)]
            y += np.where(inside[..., None], read * weight[..., None], 0)
    return np.moveaxis(y, -1, 2)


@callee("deform_conv", NO_FUNCTION)
def deform_conv_arrays(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """As a convolution of what is read at the places of its taps, each moved by an offset."""
    x, w, offset, bias, mask = (None if it is None else widened(it) for it in arrays)
    assert x is not None
    assert w is not None
    assert offset is not None
    parts, groups = attributes["parts"], attributes["groups"]
    (samples, channels), kernel, counts = x.shape[:2], w.shape[2:], offset.shape[2:]
    moved = offset.reshape(samples, parts, *kernel, 2, *counts)
    places = []
    for axis in range(2):
        taps = np.arange(kernel[axis]) * attributes["dilations"][axis]
        steps = np.arange(counts[axis]) * attributes["strides"][axis]
        line = taps[:, None] + steps - attributes["padding"][axis][0]
        shape = [1, 1, 1, 1, 1, 1]
        shape[2 + axis], shape[4 + axis] = line.shape
        places.append(moved[:, :, :, :, axis] + line.reshape(shape))
    read = _read(x.reshape(samples, parts, channels // parts, *x.shape[2:]), *places)
    if mask is not None:
        read = read * mask.reshape(samples, parts, 1, *kernel, *counts)
    taken = read.reshape(samples, groups, channels // groups, *kernel, *counts)
    filters = w.reshape(groups, -1, *w.shape[1:])
    y = np.einsum("ngcrspq,gkcrs->ngkpq", taken, filters, optimize=True)
    y = y.reshape(samples, w.shape[0], *counts)
    y = y if bias is None else y + bias.reshape(1, -1, 1, 1)
    return [converted(y, arrays[0].dtype)]


@operator("DeformConv", since=19)
def deform_conv(
    build: Builder,
    x: Value,
    w: Value,
    offset: Value,
    bias: Value | None = None,
    mask: Value | None = None,
    *,
    dilations: tuple[int, ...] | None = None,
    group: int = 1,
    kernel_shape: tuple[int, ...] | None = None,
    offset_group: int = 1,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Value:
    if len(x.shape) != 4:
        raise RefusedError(f"X of {list(x.shape)}, expected (N, C, H, W)")
    kernel = kernel_of(w.shape, kernel_shape, 4)
    shape = geometry(x.shape[2:], kernel, strides, dilations, pads, "NOTSET")
    if offset_group < 1 or x.shape[1] % offset_group:
        raise RefusedError(f"offset_group is {offset_group}, expected a divisor of {x.shape[1]}")
    y_shape = checked_shape(x, w, bias, shape, group)
    taps = offset_group * math.prod(kernel)
    counts = y_shape[2:]
    for name, value, channels in (("offset", offset, 2 * taps), ("mask", mask, taps)):
        expected = (x.shape[0], channels, *counts)
        if value is not None and value.shape != expected:
            raise RefusedError(f"{name} of {list(value.shape)}, expected {list(expected)}")
    attributes = {**shape.attributes, "groups": group, "parts": offset_group}
    inputs = [x, w, offset, bias, mask]
    return build.call("deform_conv", inputs, [(y_shape, x.dtype)], **attributes)[0]
