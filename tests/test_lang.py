"""Formulas on arrays: what is read, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from dlprim.lang import contract, define, einsum, matmul
from guarded import guarded


@pytest.mark.parametrize("edge", ["begin", "end"])
def test_branches_read_nothing_outside(edge: str) -> None:
    x = guarded(2048, edge)
    x[:] = np.arange(2048)
    behind = contract("y(i) = i < 2048 ? x(i) : 7 where i in 0:4096", x)
    np.testing.assert_array_equal(behind[:2048], x)
    assert np.all(behind[2048:] == 7)
    before = contract("y(i) = i >= 1500 ? x(i - 1500) : 7 where i in 0:2048", x)
    np.testing.assert_array_equal(before[1500:], x[:548])
    assert np.all(before[:1500] == 7)


def test_diagonals_broadcast() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((3, 3, 1)).astype(np.float32)
    b = rng.standard_normal(5).astype(np.float32)
    expected = np.einsum("iij,j->ij", a, b)
    np.testing.assert_allclose(einsum("iij,j->ij", a, b), expected, rtol=1e-6)


def test_matmul_does_not_broadcast_what_it_sums_over() -> None:
    with pytest.raises(ValueError, match=r"^b has 4 rows, expected 1 as a has columns"):
        matmul(np.ones((2, 1), np.float32), np.ones((4, 5), np.float32))


def test_results_are_separate() -> None:
    layers = define("def f(float(N) x) -> (a, b) { a(i) = x(i)\n b(i) = 2 * x(i) }")
    x, out = np.ones(4, np.float32), np.ones(4, np.float32)
    with pytest.raises(ValueError, match="b shares memory with another result, expected"):
        layers.f(x, out=(out, out))
