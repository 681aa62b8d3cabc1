"""Signals: Fourier transforms, windows, mel scales; determinants."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlprim.graph import Builder, Value
from dlprim.graph.expressions import number, operand
from dlprim.graph.extents import derived
from dlprim.graph.graph import Array
from dlprim.graph.operators.signals import fourier as spectrum
from dlprim.onnx.operators.places import line, require_small
from dlprim.onnx.operators.shapes import axis_of, one_integer, one_number
from dlprim.onnx.proto import dtype_of
from dlprim.onnx.registry import RefusedError, operator

X, Y = operand(0), operand(1)
# Elements of a matrix of waves up to which a product takes less time than a fast transform.
_MOST_WAVES = 1 << 15


def fourier(
    builder: Builder, x: Value, axis: int, length: int | None, inverse: int, onesided: int
) -> Value:
    rank = len(x.shape)
    if rank < 2 or x.shape[-1] not in (1, 2) or not -rank <= axis < rank or axis % rank == rank - 1:
        raise RefusedError(f"axis {axis} does not fit {list(x.shape)}, of real or complex numbers")
    axis %= rank
    is_halved = bool(onesided and not inverse)
    if is_halved and x.shape[-1] == 2:
        raise RefusedError("a spectrum of complex numbers has two sides, expected onesided 0")
    if length is None:
        length = 2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis]
    if length < 1:
        raise RefusedError(f"the length is {length}, expected at least 1")
    shape = list(x.shape)
    shape[axis] = length // 2 + 1 if is_halved else length
    shape[-1] = 1 if inverse and onesided else 2
    how = {"length": length, "inverse": bool(inverse), "onesided": bool(onesided)}
    taken, given = x.shape[axis] * x.shape[-1], shape[axis] * shape[-1]
    is_last = axis == rank - 2
    if is_last and x.dtype == np.float32 and 0 < taken * given <= _MOST_WAVES:
        rows = builder.reshape(x, (*x.shape[:axis], taken))
        waves = builder.constant(_waves(x.shape[axis:], how))
        return builder.reshape(builder.matmul(rows, waves), tuple(shape))
    return builder.call("fourier", [x], [(tuple(shape), x.dtype)], axis=axis, **how)[0]


def _waves(signal: tuple[int, ...], how: Mapping[str, Any]) -> Array:
    """What signals (numbers, parts) are multiplied by: the transforms of those of a single 1."""
    size = math.prod(signal)
    ones = np.eye(size).reshape(size, *signal)
    found: Array = spectrum([ones], {"axis": 1, **how})[0]
    return found.reshape(size, -1).astype(np.float32)


@operator("DFT", since=20)
def dft(
    builder: Builder,
    x: Value,
    length: Value | None = None,
    axis: Value | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Value:
    known = None if length is None else one_integer(builder, length)
    place = -2 if axis is None else one_integer(builder, axis)
    return fourier(builder, x, place, known, inverse, onesided)


@operator("DFT", since=17)
def dft_17(
    builder: Builder,
    x: Value,
    length: Value | None = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
) -> Value:
    known = None if length is None else one_integer(builder, length)
    return fourier(builder, x, axis, known, inverse, onesided)


@operator("STFT", since=17)
def stft(
    builder: Builder,
    x: Value,
    step: Value,
    window: Value | None = None,
    length: Value | None = None,
    *,
    onesided: int = 1,
) -> Value:
    if len(x.shape) != 3:
        raise RefusedError(f"signal has shape {list(x.shape)}, expected three axes")
    stride = one_integer(builder, step)
    size = x.shape[1] if window is None else window.size
    size = size if length is None else one_integer(builder, length)
    if (
        stride < 1
        or not 1 <= size <= x.shape[1]
        or (window is not None and window.shape != (size,))
    ):
        raise RefusedError(f"frames of {size}, {stride} apart, do not fit {x!r} and {window!r}")
    count = (x.shape[1] - size) // stride + 1
    require_small(count * size, np.dtype(np.int64))
    places: Array = stride * np.arange(count)[:, None] + np.arange(size)
    frames = builder.gather(x, builder.constant(places), 1)
    if window is not None:
        frames = builder.map(("multiply", X, Y), frames, builder.reshape(window, (size, 1)))
    return fourier(builder, frames, 2, size, 0, onesided)


# ---------------------------------------------------------------- windows

# Of cosines of 0, 1 and 2 turns.
_WINDOWS = {
    "BlackmanWindow": (0.42, -0.5, 0.08),
    "HammingWindow": (25 / 46, -21 / 46, 0.0),
    "HannWindow": (0.5, -0.5, 0.0),
}


def _cosines(count: int, periodic: bool, weights: Sequence[float]) -> Array:
    turns: Array = np.arange(count) / max(1, count if periodic else count - 1)
    waves = [weight * np.cos(2 * np.pi * turn * turns) for turn, weight in enumerate(weights)]
    return sum(waves, np.zeros(max(0, count)))


def _register_window(name: str, weights: tuple[float, ...]) -> None:
    @operator(name, since=17)
    def window(
        builder: Builder, size: Value, *, output_datatype: int = 1, periodic: int = 1
    ) -> Value:
        count, dtype = one_integer(builder, size), dtype_of(output_datatype)
        require_small(count, np.dtype(np.float64))
        return builder.constant(derived(_cosines, count, bool(periodic), weights).astype(dtype))


for _name, _weights in _WINDOWS.items():
    _register_window(_name, _weights)


@operator("MelWeightMatrix", since=17)
def mel_weight_matrix(
    builder: Builder,
    bands: Value,
    length: Value,
    rate: Value,
    lowest: Value,
    highest: Value,
    *,
    output_datatype: int = 1,
) -> Value:
    """A triangle of weights for each band, over the frequencies of half a spectrum."""
    count, size, samples = (one_integer(builder, it) for it in (bands, length, rate))
    if min(count, size, samples) < 1:
        raise RefusedError(f"{count} bands of {size} at {samples} a second, expected 1 or more")
    bins = size // 2 + 1
    require_small(bins * count, np.dtype(np.float64))
    edges = [float(one_number(builder, it)) for it in (lowest, highest)]
    if not all(0 <= edge <= samples for edge in edges):
        raise RefusedError(f"frequencies {edges} lie outside of what {samples} a second hold")
    first, last = (2595 * np.log10(1 + it / 700) for it in edges)
    mels = first + np.arange(count + 2) * (last - first) / (count + 2)
    corners = ((size + 1) * (700 * (10 ** (mels / 2595) - 1)) // samples).astype(np.int64)
    if corners.min() < 0 or corners.max() >= bins:
        raise RefusedError(f"frequencies {edges} lie outside of what {samples} a second hold")
    places = np.arange(bins)[:, None]
    low, peak, high = corners[:-2], corners[1:-1], corners[2:]
    with np.errstate(all="ignore"):
        rising, falling = (places - low) / (peak - low), (high - places) / (high - peak)
    weights = np.where((places >= low) & (places < peak), rising, 0.0)
    weights = np.where((places > peak) & (places < high), falling, weights)
    weights = np.where(places == peak, 1.0, weights)
    return builder.constant(weights.astype(dtype_of(output_datatype)))


@operator("Det", since=11)
def det(builder: Builder, x: Value) -> Value:
    if len(x.shape) < 2 or x.shape[-1] != x.shape[-2]:
        raise RefusedError(f"x has shape {list(x.shape)}, expected square matrices")
    return builder.call("determinant", [x], [(x.shape[:-2], x.dtype)])[0]


def _placed(builder: Builder, cache: Value, update: Value, places: Value | None) -> Value:
    """Rows of a cache, each written where it lies if nothing else reads what was there."""
    samples = cache.shape[0]
    first = builder.constant(np.zeros(samples, np.int64)) if places is None else places
    heads = cache.shape[1:2] if len(cache.shape) == 4 else (1,)
    four = (
        builder.reshape(it, (samples, *heads, *it.shape[-2:])) if len(it.shape) == 3 else it
        for it in (cache, update)
    )
    made = builder.emit("placed_rows", [*four, builder.cast(first, np.int64)])[0]
    return builder.reshape(made, cache.shape) if len(cache.shape) == 3 else made


@operator("TensorScatter", since=24)
def tensor_scatter(
    builder: Builder,
    cache: Value,
    update: Value,
    places: Value | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Value:
    rank = len(cache.shape)
    axis = axis_of(axis, rank)
    is_alike = cache.dtype == update.dtype and len(update.shape) == rank
    fits = is_alike and all(
        a == b or (place == axis and b < a)
        for place, (a, b) in enumerate(zip(cache.shape, update.shape, strict=True))
    )
    if axis == 0 or not fits or mode not in ("linear", "circular"):
        raise RefusedError(f"{update!r} in mode '{mode}' does not fit {cache!r} along axis {axis}")
    if places is not None and places.shape != cache.shape[:1]:
        raise RefusedError(f"write_indices are {places!r}, expected one for each sample")
    if mode == "linear" and axis == rank - 2 and rank in (3, 4):
        return _placed(builder, cache, update, places)
    extent = cache.shape[axis]
    inputs = [line(builder, update.shape[axis], axis, rank)]
    steps = operand(0)
    if places is not None:
        first = builder.cast(builder.reshape(places, (cache.shape[0], *[1] * (rank - 1))), np.int64)
        inputs.append(first)
        steps = ("add", steps, operand(1))
    if mode == "circular":
        steps = ("remainder", steps, number(extent))
    else:  # in front of the first step is no step, either
        steps = ("where", ("less", steps, number(0)), number(extent), steps)
    indices = builder.expand(builder.map(steps, *inputs), update.shape)
    return builder.call(
        "scatter_elements",
        [cache, indices, update],
        [(cache.shape, cache.dtype)],
        axis=axis,
        how="none",
    )[0]
