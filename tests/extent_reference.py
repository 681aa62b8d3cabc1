"""Pooling to a size, interpolation, padding and 8 bits in float64 NumPy, from their definitions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def mean_matrix(src: int, dst: int) -> Any:
    """The shares of what is read, (dst, src)."""
    matrix = np.zeros((dst, src))
    for i in range(dst):
        window = slice(math.floor(i * src / dst), math.ceil((i + 1) * src / dst))
        matrix[i, window] = 1 / (window.stop - window.start)
    return matrix


def nearest_matrix(src: int, dst: int, scale: float) -> Any:
    matrix = np.zeros((dst, src))
    for i in range(dst):
        place = math.floor(np.float32(i) * np.float32(scale))
        matrix[i, min(place, src - 1)] = 1
    return matrix


def linear_matrix(src: int, dst: int, scale: float, corners: bool) -> Any:
    matrix = np.zeros((dst, src))
    for i in range(dst):
        if corners:
            place = i * (src - 1) / (dst - 1) if dst > 1 else 0.0
        else:
            place = max((i + 0.5) * scale - 0.5, 0)
        first = min(math.floor(place), src - 1)
        share = min(max(place - first, 0), 1)
        matrix[i, first] += 1 - share
        matrix[i, min(first + 1, src - 1)] += share
    return matrix


def interpolation_matrix(src: int, dst: int, mode: str, corners: bool, factor: Any = None) -> Any:
    scale = src / dst if factor is None else 1 / factor
    if mode == "nearest":
        return nearest_matrix(src, dst, scale)
    return linear_matrix(src, dst, scale, corners)


def resampled(x: Any, rows: Any, columns: Any) -> Any:
    """(N, C, H, W) to (N, C, P, Q)."""
    return np.einsum("ph,nchw,qw->ncpq", rows, x.astype(np.float64), columns)


def gradient(dy: Any, rows: Any, columns: Any) -> Any:
    return resampled(dy, rows.T, columns.T)


MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def padded(x: Any, pads: tuple[int, ...], mode: str, value: float = 0.0) -> Any:
    """With pairs that begin at the last axis, none of them negative."""
    pairs = [(0, 0)] * (x.ndim - len(pads) // 2) + list(zip(pads[::2], pads[1::2], strict=True))[
        ::-1
    ]
    given = {"constant_values": value} if mode == "constant" else {}
    return np.pad(x, pairs, MODES[mode], **given)  # type: ignore[call-overload]


def padding_matrix(extent: int, before: int, behind: int, mode: str) -> Any:
    """Of one axis, (padded, extent)."""
    if mode == "constant":
        return np.eye(extent + before + behind, extent, -before)
    return np.eye(extent)[np.pad(np.arange(extent), (before, behind), MODES[mode])]  # type: ignore[call-overload]


LIMITS = {"uint8": (0, 255), "int8": (-128, 127)}


def quantized(x: Any, scale: Any, zero: Any, dtype: str) -> Any:
    """With scale and zero that broadcast; the quotient is rounded to float32 first."""
    low, high = LIMITS[dtype]
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.rint(x / np.asarray(scale, np.float32)).astype(np.float64)
    return np.where(np.isnan(steps), low, np.clip(steps + zero, low, high)).astype(dtype)
