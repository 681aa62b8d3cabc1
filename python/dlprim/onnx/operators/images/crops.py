"""Regions of images resized to one size."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.graph import Array, Value
from dlprim.graph.operators.elements import converted
from dlprim.graph.operators.operator import NO_FUNCTION, Arrays, Attributes, callee
from dlprim.onnx.operators.shapes import numbers
from dlprim.onnx.registry import RefusedError, operator


def _places(ends: Array, count: int, extent: int) -> Array:
    """Where ``count`` pixels lie between a start and an end in shares, in pixels of the image."""
    start, end = ends.astype(np.float32)
    last = np.float32(extent - 1)
    if count == 1:
        middle: Array = np.array([np.float32(0.5) * (start + end) * last])
        return middle
    step = (end - start) * np.float32(last / (count - 1))
    places: Array = start * last + np.arange(count, dtype=np.float32) * step
    # As it is said, which sums of steps might miss by a rounding.
    places[-1] = end * last
    return places


def _shares(places: Array, extent: int, mode: str) -> Array:
    """What each pixel of an axis gives to each place; halves go up."""
    pixels = np.arange(extent, dtype=np.float32)
    away = pixels - places[:, None]
    is_nearest = (away >= -0.5) & (away < 0.5)
    shares = np.maximum(1 - np.abs(away), 0) if mode == "linear" else is_nearest
    return np.asarray(shares, np.float64)


@callee("crop_and_resize", NO_FUNCTION)
def crop_and_resize_arrays(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Corners of regions are shares of the image; outside of it is one number."""
    x, regions, samples = arrays
    shape = attributes["results"][0][0]
    y = np.empty(shape)
    for place, (region, sample) in enumerate(zip(regions, samples, strict=True)):
        lines, inside = [], []
        for axis, extent in enumerate(x.shape[2:]):
            at = _places(region[[axis, axis + 2]], shape[2 + axis], extent)
            lines.append(_shares(at, extent, attributes["mode"]))
            inside.append((at >= 0) & (at <= extent - 1))
        made = lines[0] @ x[sample].astype(np.float64) @ lines[1].T
        y[place] = np.where(np.logical_and.outer(*inside), made, attributes["outside"])
    return [converted(y, x.dtype)]


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
    named = {"bilinear": "linear", "nearest": "nearest"}[mode]
    shape = (regions.shape[0], x.shape[1], *counts)
    how = {"mode": named, "outside": extrapolation_value}
    return build.call("crop_and_resize", [x, regions, samples], [(shape, x.dtype)], **how)[0]
