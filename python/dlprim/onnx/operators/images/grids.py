"""Images read at places that a grid says."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.extents import derived
from dlprim.graph.graph import Array, Value
from dlprim.graph.room import require_room
from dlprim.onnx.operators.shapes import numbers
from dlprim.onnx.registry import RefusedError, operator

X, ZERO, ONE = operand(0), number(0.0), number(1.0)


@operator("AffineGrid", since=20)
def affine_grid(build: Builder, theta: Value, size: Value, *, align_corners: int = 0) -> Value:
    """The places of all pixels, from -1 to 1, each times its sample's matrix."""
    shape = numbers(build, size)
    extents, axes = shape[2:], len(shape) - 2
    if axes not in (2, 3) or theta.shape != (shape[0], axes, axes + 1) or min(shape) < 1:
        raise RefusedError(f"theta of {list(theta.shape)} does not fit a size of {list(shape)}")
    require_room(f"a grid of {list(extents)}", 16 * 8 * math.prod(extents), build.max_bytes)
    # x is the last axis, and comes first. Sums of a few products are a map: as a product of
    # matrices they would depend on which side is known.
    grid = derived(_grid, tuple(extents), bool(align_corners))
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


def _grid(extents: tuple[int, ...], aligned: bool) -> tuple[Array, ...]:
    """Of all pixels the place along each axis, from -1 to 1, the last axis first."""
    lines = [
        np.linspace(-1, 1, it) if aligned else (2 * np.arange(it) + 1) / it - 1 for it in extents
    ]
    return tuple(it.reshape(1, -1, 1) for it in np.meshgrid(*lines, indexing="ij")[::-1])


# ---------------------------------------------------------------- GridSample


def _sum(*terms: Expression) -> Expression:
    made = terms[0]
    for term in terms[1:]:
        made = ("add", made, term)
    return made


def _less(a: Expression, b: Expression) -> Expression:
    return ("subtract", a, b)


def _reflected(x: Expression, low: float, high: float) -> Expression:
    """x mirrored at both ends until it lies between them."""
    span = high - low
    if span <= 0:
        return number(low)
    away = ("remainder", _less(x, number(low)), number(2 * span))
    is_far = ("greater", away, number(span))
    return ("add", ("where", is_far, _less(number(2 * span), away), away), number(low))


def _inside(x: Expression, extent: int, padding: str, aligned: bool) -> Expression:
    """Places in an axis moved inside, unless zeros lie around it."""
    if padding == "border":
        return ("minimum", ("maximum", x, ZERO), number(extent - 1.0))
    if padding == "reflection":
        low, high = (0.0, extent - 1.0) if aligned else (-0.5, extent - 0.5)
        is_away = ("or", ("less", x, number(low)), ("greater", x, number(high)))
        return ("where", is_away, _reflected(x, low, high), x)
    return x


def _cubic_weight(t: Expression, is_near: bool) -> Expression:
    """Of a pixel so far away."""
    a = -0.75
    factors = (a, -5 * a, 8 * a, -4 * a) if not is_near else (a + 2, -(a + 3), 0.0, 1.0)
    made = number(factors[0])
    for factor in factors[1:]:
        made = ("add", ("multiply", made, t), number(factor))
    return made


class Tap(NamedTuple):
    """A pixel that is read along an axis: where it is, and its weight; both of places."""

    place: Expression
    weight: Expression


def _taps(extent: int, mode: str, padding: str, aligned: bool) -> list[Tap]:
    """Of places in pixels, which are the operand."""
    x: Expression = ("round", X) if mode == "nearest" else X
    # What is cubic reads over the edge; only its pixels are moved inside, as PyTorch does.
    moved = x if mode == "cubic" else _inside(x, extent, padding, aligned)
    is_finite = ("less_equal", ("abs", X), number(np.finfo(np.float32).max.item()))
    x = ("where", is_finite, moved, number(-2.0))
    left = ("floor", x)
    t = _less(x, left)
    rest = _less(ONE, t)
    if mode == "nearest":
        rows = [Tap(left, ONE)]
    elif mode == "linear":
        rows = [Tap(left, rest), Tap(_sum(left, ONE), t)]
    else:
        far = (_cubic_weight(_sum(t, ONE), False), _cubic_weight(_less(number(2.0), t), False))
        weights = (far[0], _cubic_weight(t, True), _cubic_weight(rest, True), far[1])
        rows = [Tap(_sum(left, number(at - 1.0)), it) for at, it in enumerate(weights)]
    return [Tap(_inside(it.place, extent, padding, aligned), it.weight) for it in rows]


def _sampled(build: Builder, x: Value, grid: Value, attributes: tuple[str, str, bool]) -> Value:
    """x (N, C, ...) at places (N, ..., axes) from -1 to 1, the last axis of x first.

    Pixels are rows of channels, which are read as a whole and summed with their weights.
    """
    extents, samples = x.shape[2:], grid.shape[0]
    places = math.prod(grid.shape[1:-1])
    flat = build.reshape(grid, (samples, places, len(extents)))
    if grid.dtype != np.float64:  # rounding to float32 decides which pixel the nearest one is
        flat = build.cast(flat, np.float32)
    wide = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
    rows = build.cast(build.transpose(x, (0, *range(2, len(x.shape)), 1)), wide)
    pairs: list[Value] = []
    for axis, extent in enumerate(extents):
        last = len(extents) - 1 - axis
        place = build.slice(flat, (0, 0, last), (samples, places, 1), (1, 1, 1))
        shifted = _sum(X, ONE)
        pixels = ("multiply", ("divide", shifted, number(2.0)), number(extent - 1.0))
        if not attributes[2]:
            pixels = (
                "divide",
                _less(("multiply", shifted, number(extent * 1.0)), ONE),
                number(2.0),
            )
        made = build.map(pixels, place)
        taps = _taps(extent, *attributes)
        pairs += [build.cast(build.map(it, made), wide) for tap in taps for it in tap]
    shape = (samples, places, x.shape[1])
    count = len(pairs) // (2 * len(extents))
    (total,) = build.call("weighted_rows", [rows, *pairs], [(shape, wide)], taps=count)
    whole = build.reshape(build.cast(total, x.dtype), (*grid.shape[:-1], x.shape[1]))
    last = len(grid.shape) - 1
    return build.transpose(whole, (0, last, *range(1, last)))


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
    return _sampled(build, x, grid, (mode, padding, bool(aligned)))


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
