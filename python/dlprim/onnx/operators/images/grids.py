"""Images read at places that a grid says."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import Expression, operand
from dlprim.graph.graph import Array, Value
from dlprim.graph.operators.elements import converted
from dlprim.graph.operators.operator import NO_FUNCTION, Arrays, Attributes, callee
from dlprim.graph.room import require_room
from dlprim.onnx.operators.shapes import numbers
from dlprim.onnx.registry import RefusedError, operator


@operator("AffineGrid", since=20)
def affine_grid(build: Builder, theta: Value, size: Value, *, align_corners: int = 0) -> Value:
    """The places of all pixels, from -1 to 1, each times its sample's matrix."""
    shape = numbers(build, size)
    extents, axes = shape[2:], len(shape) - 2
    if axes not in (2, 3) or theta.shape != (shape[0], axes, axes + 1) or min(shape) < 1:
        raise RefusedError(f"theta of {list(theta.shape)} does not fit a size of {list(shape)}")
    require_room(f"a grid of {list(extents)}", 16 * 8 * math.prod(extents), build.max_bytes)
    lines = []
    for extent in extents:
        if align_corners:
            lines.append(np.linspace(-1, 1, extent))
        else:
            lines.append((2 * np.arange(extent) + 1) / extent - 1)
    # x is the last axis, and comes first. Sums of a few products are a map: as a product of
    # matrices they would depend on which side is known.
    grid = [it.reshape(1, -1, 1) for it in np.meshgrid(*lines, indexing="ij")[::-1]]
    rows, ones = (shape[0], axes, 1), (1, 1, 1)
    columns = [
        build.reshape(build.slice(theta, (0, 0, at), rows, ones), (shape[0], 1, axes))
        for at in range(axes + 1)
    ]
    places: Expression = operand(axes)
    for at in range(axes):
        places = ("add", places, ("multiply", operand(at), operand(axes + 1 + at)))
    known = [build.constant(it.astype(theta.dtype)) for it in grid]
    made = build.map(places, *columns[:axes], columns[axes], *known)
    return build.reshape(made, (shape[0], *extents, axes))


# ---------------------------------------------------------------- GridSample


def _reflected(x: Array, low: float, high: float) -> Array:
    """x mirrored at both ends until it lies between them."""
    span = high - low
    if span <= 0:
        return np.full_like(x, low)
    away = np.mod(x - low, 2 * span)
    return low + np.where(away > span, 2 * span - away, away)


def _inside(x: Array, extent: int, padding: str, aligned: bool) -> Array:
    """Places in an axis moved inside, unless zeros lie around it."""
    if padding == "border":
        return np.asarray(np.clip(x, 0, extent - 1))
    if padding == "reflection":
        low, high = (0, extent - 1) if aligned else (-0.5, extent - 0.5)
        return np.where((x < low) | (x > high), _reflected(x, low, high), x)
    return x


def _cubic_weights(x: Array) -> list[Array]:
    a = -0.75
    far = [((a * t - 5 * a) * t + 8 * a) * t - 4 * a for t in (x + 1, 2 - x)]
    near = [((a + 2) * t - (a + 3)) * t * t + 1 for t in (x, 1 - x)]
    return [far[0], *near, far[1]]


def _axis_taps(x: Array, extent: int, attributes: Attributes) -> list[tuple[Array, Array]]:
    """For places in pixels: the pixels to read, -1 for zeros, and their weights."""
    mode, padding = attributes["mode"], attributes["padding"]
    aligned = attributes["aligned"]
    x = np.rint(x) if mode == "nearest" else x
    # What is cubic reads over the edge; only its pixels are moved inside, as PyTorch does.
    moved = x if mode == "cubic" else _inside(x, extent, padding, aligned)
    x = np.where(np.isfinite(x), moved, -2)
    left = np.floor(x)
    if mode == "nearest":
        rows = [(left, np.ones_like(x))]
    elif mode == "linear":
        rows = [(left, 1 - (x - left)), (left + 1, x - left)]
    else:
        steps = zip(range(-1, 3), _cubic_weights(x - left), strict=True)
        rows = [(left + step, weight) for step, weight in steps]
    taps = []
    for place, weight in rows:
        pixel = np.trunc(_inside(place, extent, padding, aligned))
        taps.append((np.where((pixel < 0) | (pixel >= extent), -1, pixel).astype(int), weight))
    return taps


@callee("grid_sample", NO_FUNCTION)
def grid_sample_arrays(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """x (N, C, ...) at places (N, ..., axes) from -1 to 1, the last axis of x first."""
    x, grid = arrays
    extents = x.shape[2:]
    # Rounding to float32 decides which pixel the nearest one is.
    wide = np.float64 if grid.dtype == np.float64 else np.float32
    lines = []
    for axis, extent in enumerate(extents):
        place = grid[..., -1 - axis].astype(wide)
        if attributes["aligned"]:
            pixels = (place + 1) / 2 * (extent - 1)
        else:
            pixels = ((place + 1) * extent - 1) / 2
        lines.append(_axis_taps(pixels, extent, attributes))
    samples = np.arange(x.shape[0]).reshape(-1, *[1] * len(extents))
    channels_last = np.moveaxis(x, 1, -1)
    y = np.zeros((*grid.shape[:-1], x.shape[1]))
    for taps in product(*lines):
        weight = np.ones(grid.shape[:-1])
        is_there = np.ones(grid.shape[:-1], bool)
        for place, share in taps:
            weight, is_there = weight * share, is_there & (place >= 0)
        places = tuple(np.where(is_there, place, 0) for place, _ in taps)
        read = channels_last[(samples, *places)].astype(np.float64)
        y += np.where(is_there[..., None], read * weight[..., None], 0)
    return [converted(np.moveaxis(y, -1, 1), x.dtype)]


def _grid_sample(
    build: Builder, x: Value, grid: Value, mode: str, padding: str, aligned: int
) -> Value:
    if padding not in ("zeros", "border", "reflection"):
        raise RefusedError(f"padding_mode is {padding!r}, expected zeros, border or reflection")
    axes = len(x.shape) - 2
    fits = axes > 0 and len(grid.shape) == len(x.shape) and grid.shape[0] == x.shape[0]
    if not fits or grid.shape[-1] != axes:
        raise RefusedError(f"grid of {list(grid.shape)} does not fit X of {list(x.shape)}")
    if x.size == 0 and grid.size:
        raise RefusedError(f"X of {list(x.shape)} has no pixels, expected some")
    shape = (*x.shape[:2], *grid.shape[1:-1])
    attributes = {"mode": mode, "padding": padding, "aligned": bool(aligned)}
    return build.call("grid_sample", [x, grid], [(shape, x.dtype)], **attributes)[0]


@operator("GridSample", since=16)
def grid_sample_2d(
    build: Builder,
    x: Value,
    grid: Value,
    *,
    align_corners: int = 0,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
) -> Value:
    names = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest"}
    if mode not in names:
        raise RefusedError(f"mode is {mode!r}, expected bilinear, bicubic or nearest")
    return _grid_sample(build, x, grid, names[mode], padding_mode, align_corners)


@operator("GridSample", since=20)
def grid_sample(
    build: Builder,
    x: Value,
    grid: Value,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Value:
    if mode not in ("linear", "cubic", "nearest"):
        raise RefusedError(f"mode is {mode!r}, expected linear, cubic or nearest")
    return _grid_sample(build, x, grid, mode, padding_mode, align_corners)
