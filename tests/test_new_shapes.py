"""Shapes that a function has not met: once others have met the remainders, they generate little."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import dlprim
from drawing import RNG

Call = Callable[[int], object]


def drawn(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def convolutions() -> Call:
    w = drawn(64, 64, 1, 1)
    return lambda n: dlprim.conv2d(drawn(1, 64, n // 2, n), w)


def layers() -> Call:
    w = drawn(512, 512)
    return lambda n: dlprim.linear(drawn(n, 512), w)


def recurrences() -> Call:
    parameters = drawn(256, 64), drawn(256, 64)
    return lambda n: dlprim.lstm(drawn(n, 2, 64), *parameters)


def products() -> Call:
    b = drawn(64, 48)
    return lambda n: dlprim.contract("y(i,j) +=! a(i,k) * b(k,j)", drawn(n, 64), b)


def attentions() -> Call:
    return lambda n: dlprim.attention(*(drawn(1, 2, n, 64) for _ in range(3)))


# Of sixty shapes, each of which had kernels of its own: twenty of them may happen to meet more new
# tails than others do.
@pytest.mark.every_level
@pytest.mark.parametrize(
    ("stream", "most"),
    [(convolutions, 18), (layers, 18), (recurrences, 6), (products, 6), (attentions, 36)],
)
def test_new_shapes_share_code(stream: Callable[[], Call], most: int) -> None:
    call = stream()
    for n in range(20, 200):  # which meet all remainders, of tiles of any level
        call(n)
    before = dlprim.kernel_cache_info()["generated"]
    for n in range(200, 260):
        call(n)
    assert dlprim.kernel_cache_info()["generated"] - before <= most


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, *, causal: bool) -> np.ndarray:
    """In double precision."""
    q, k, v = (it.astype(np.float64) for it in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        scores[..., np.triu(np.ones(scores.shape[-2:], bool), 1)] = -np.inf
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True) @ v)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [5, 17, 20, 31, 33, 64, 77, 129])
def test_keys_that_fill_no_vector(length: int, causal: bool) -> None:
    """Nothing comes from where whole vectors go beyond them, whatever others left in scratch."""
    dlprim.attention(*(np.full((1, 2, 130, 64), np.nan, np.float32) for _ in range(3)))
    q, k, v = (drawn(2, 3, length, 64) for _ in range(3))
    result = dlprim.attention(q, k, v, causal=causal)
    np.testing.assert_allclose(result, attended(q, k, v, causal=causal), rtol=1e-4, atol=1e-5)


def test_infinite_values_reach_who_sees_them() -> None:
    """Blocks of queries that end before a key multiply no value of it."""
    q, k, v = (drawn(1, 1, 150, 64) for _ in range(3))
    v[..., 54, :] = np.inf
    result = dlprim.attention(q, k, v, causal=True)
    assert np.isfinite(result[..., :40, :]).all()
    assert not np.isfinite(result[..., 54:, :]).any()


@pytest.mark.parametrize("samples", [2, 5, 11, 20, 27, 33, 50])
def test_samples_that_fill_no_vector(samples: int) -> None:
    x, w = drawn(samples, 300), drawn(500, 300)
    dlprim.linear(np.full_like(x, np.nan), w)
    result = dlprim.linear(x, w)
    expected = x.astype(np.float64) @ w.astype(np.float64).T
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-3)
