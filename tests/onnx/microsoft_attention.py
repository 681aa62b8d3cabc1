"""What the attention operators of com.microsoft compute, in float64, a query at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray


def softmax(scores: Array, sink: float | None = None) -> Array:
    """With a sink, a score that has no value of its own."""
    highest = scores.max() if sink is None else max(scores.max(), sink)
    powers = np.exp(scores - highest)
    total = powers.sum() + (0 if sink is None else math.exp(sink - highest))
    return np.asarray(powers / total)


def attend(
    q: Array,
    k: Array,
    v: Array,
    added: Callable[[int, int, int], Array],
    scale: float | None = None,
    softcap: float = 0.0,
    sinks: Array | None = None,
) -> Array:
    """(N, S, H*E) of q (N, H, S, D), k (N, Hk, T, D), v (N, Hk, T, E).

    ``added`` gives what is added to the scores of a sample, a head and a query.
    """
    samples, heads, rows, size = q.shape
    share = heads // k.shape[1]
    y = np.zeros((samples, rows, heads, v.shape[3]))
    for n, h, s in np.ndindex(samples, heads, rows):
        scores = k[n, h // share].astype(float) @ q[n, h, s] * (scale or 1 / math.sqrt(size))
        if softcap:
            scores = softcap * np.tanh(scores / softcap)
        weights = softmax(scores + added(n, h, s), None if sinks is None else float(sinks[h]))
        y[n, s, h] = weights @ v[n, h // share]
    return y.reshape(samples, rows, -1)


def heads_of(x: Array, heads: int) -> Array:
    """(N, S, H*D) as (N, H, S, D)."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def projected(x: Array, w: Array, b: Array | None, sizes: list[int], heads: int) -> list[Array]:
    y = x.astype(float) @ w + (0 if b is None else b)
    return [heads_of(it, heads) for it in np.split(y, np.cumsum(sizes)[:-1], axis=2)]


def rotated(x: Array, positions: Array, cosines: Array, sines: Array, interleaved: Any) -> Array:
    """x (N, H, S, D), turned at positions (N, S)."""
    y, half = x.astype(float), cosines.shape[1]
    for n, s in np.ndindex(*positions.shape):
        c, d = cosines[positions[n, s]], sines[positions[n, s]]
        places = np.arange(2 * half)
        first, second = (places[::2], places[1::2]) if interleaved else np.split(places, 2)
        a, b = x[n, :, s, first].T.astype(float), x[n, :, s, second].T.astype(float)
        y[n, :, s, first] = (a * c - b * d).T
        y[n, :, s, second] = (b * c + a * d).T
    return y
