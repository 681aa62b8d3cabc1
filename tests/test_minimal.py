"""A smoke test of a few seconds, for installed wheels and emulators: it needs pytest and NumPy."""

from __future__ import annotations

import numpy as np

import dlprim


def test_kernel() -> None:
    a = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
    b = np.arange(2 * 4 * 21, dtype=np.float32).reshape(2, 4, 21) % 7
    c = np.full((3, 21), np.nan, np.float32)
    dlprim.Brgemm(3, 21, 4)(a, b, c)
    np.testing.assert_array_equal(c, (a @ b).sum(0))
    np.testing.assert_array_equal(dlprim.brgemm(a, b, c=c), 2 * (a @ b).sum(0))


def test_linear_learns_a_straight_line() -> None:
    """Forward, backward, and two hundred steps downhill."""
    x = np.linspace(-1, 1, 50, dtype=np.float32).reshape(50, 1)
    target = 3 * x - 2
    w, bias = np.zeros((1, 1), np.float32), np.zeros(1, np.float32)
    for _ in range(200):
        y = dlprim.linear(x, w, bias)
        _, dw, db = dlprim.linear_backward((y - target) / 25, x, w)
        w -= 0.3 * dw
        bias -= 0.3 * db
    np.testing.assert_allclose([w[0, 0], bias[0]], [3, -2], atol=1e-4)


def test_machine() -> None:
    assert isinstance(dlprim.isa(), str)
    assert dlprim.get_num_threads() >= 1
    assert dlprim.kernel_cache_info()["entries"] >= 1
