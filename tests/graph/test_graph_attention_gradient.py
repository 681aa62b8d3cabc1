"""Gradients of attention in networks: one step, on heads where they lie, without scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlprim

N, T, H, D = 2, 40, 3, 16


def _loss(q: Any, k: Any, v: Any, mask: Any, weights: Any) -> Any:
    q, k, v = (it.reshape(N, T, H, D).transpose(0, 2, 1, 3) for it in (q, k, v))
    y = dlprim.attention(q, k, v, mask).transpose(0, 2, 1, 3).reshape(N, T, H * D)
    return np.sum(y * weights)


def _arrays() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    q, k, v, weights = (random.standard_normal((N, T, H * D), np.float32) for _ in range(4))
    return [q, k, v, random.standard_normal((T, T), np.float32), weights]


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_one_step_reads_and_writes_heads_inside_of_positions(dtype: str | None) -> None:
    arrays = _arrays()
    arrays[3] = arrays[3] > -1
    slope = dlprim.grad(_loss, wrt=(0, 1, 2), dtype=dtype)
    found = slope(*arrays)
    explained = slope.explain(*arrays)
    assert explained.count("attention_backward(") == 1
    assert "steps in Python: 0" in explained
    assert f"{T}, {T}) ->" not in explained  # scores
    if dtype is None:
        assert "copy(" not in explained
    heads = [it.reshape(N, T, H, D).transpose(0, 2, 1, 3) for it in (arrays[4], *arrays[:3])]
    if dtype is not None:
        assert "bfloat16" in next(it for it in explained.split("\n") if "attention_backward" in it)
    expected = dlprim.attention_backward(*heads, arrays[3])
    for ours, right in zip(found, expected, strict=True):
        bound = 1e-5 if dtype is None else 5e-2
        right = right.transpose(0, 2, 1, 3).reshape(N, T, H * D)
        np.testing.assert_allclose(ours, right, rtol=bound, atol=bound * np.abs(right).max())


def test_a_mask_has_a_gradient_where_somebody_asks_for_it() -> None:
    """Written out; those of the others are a step as before."""
    arrays = _arrays()
    by_mask = dlprim.grad(_loss, wrt=3)
    found, explained = by_mask(*arrays), by_mask.explain(*arrays)
    assert "attention_backward" not in explained
    step = 1e-2 * np.random.default_rng(1).standard_normal((T, T)).astype(np.float32)
    loss = dlprim.compile(_loss)
    above, below = (loss(*arrays[:3], arrays[3] + it, arrays[4]) for it in (step, -step))
    np.testing.assert_allclose(np.sum(found * step), (above - below) / 2, rtol=2e-2)
    assert "attention_backward" in dlprim.grad(_loss).explain(*arrays)
