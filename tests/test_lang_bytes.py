"""Products of 8-bit arrays as formulas: sums in int32, exact."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import dlprim
from drawing import RNG


def whole(*shape: int, dtype: str = "int8") -> np.ndarray:
    kind = np.iinfo(dtype)
    return RNG.integers(kind.min, kind.max + 1, shape).astype(dtype)


TYPES = [*itertools.product(("int8", "uint8"), repeat=2)]
SIZES = [(1, 1, 1), (7, 33, 5), (1, 64, 30), (20, 17, 1), (64, 70, 48)]
# The widths of networks, and what calls of the kernel do not divide.
SIZES += [(3, 257, 2), (17, 300, 70), (1, 515, 33), (40, 640, 1), (5, 768, 3), (66, 1000, 65)]


@pytest.mark.every_level
@pytest.mark.parametrize("types", TYPES, ids=str)
@pytest.mark.parametrize("sizes", SIZES)
def test_sums_of_bytes_are_exact(sizes: tuple[int, int, int], types: tuple[str, str]) -> None:
    n, c, k = sizes
    x, w = whole(n, c, dtype=types[0]), whole(k, c, dtype=types[1])
    exact = x.astype(np.int64) @ w.T.astype(np.int64)
    for formula, left, right, expected in (
        ("y(n,k) +=! x(n,c) * w(k,c)", x, w, exact),
        ("y(k,n) +=! x(c,n) * w(c,k)", x.T.copy(), w.T.copy(), exact.T),
        ("y(n,k) +=! x(n,c) * w(k,c)", x[:, ::2], w[:, ::2], None),
        ("y(n) +=! x(n,c) * w(c)", x, w[0], exact[:, 0]),
    ):
        found = dlprim.contract(formula, left, right)
        assert found.dtype == np.int32
        if expected is None:
            expected = left.astype(np.int64) @ right.T.astype(np.int64)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.every_level
@pytest.mark.parametrize("types", TYPES, ids=str)
def test_sums_of_any_length_are_exact(types: tuple[str, str]) -> None:
    x, w = whole(2, 9000, dtype=types[0]), whole(3, 9000, dtype=types[1])
    every = x.astype(np.int64)[:, None] * w.astype(np.int64)
    for length in [*range(1, 1301), *RNG.integers(1301, 9001, 20)]:
        found = dlprim.contract("y(n,k) +=! x(n,c) * w(k,c)", x[:, :length], w[:, :length])
        np.testing.assert_array_equal(found, every[..., :length].sum(-1))


@pytest.mark.parametrize("types", TYPES, ids=str)
def test_long_sums_are_the_same_on_any_number_of_threads(types: tuple[str, str]) -> None:
    x, w = whole(150, 771, dtype=types[0]), whole(130, 771, dtype=types[1])
    exact = x.astype(np.int32) @ w.T.astype(np.int32)
    for count in (1, 2, 3, 5):
        with dlprim.threads(count):
            found = dlprim.contract("y(n,k) +=! x(n,c) * w(k,c)", x, w)
        np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize("channels", [5, 300])
def test_bytes_convolve_and_add(channels: int) -> None:
    image, filters = whole(2, channels, 8, 9, dtype="uint8"), whole(4, channels, 3, 3)
    formula = "y(n,k,p,q) +=! x(n,c,p+r,q+s) * w(k,c,r,s)"
    windows = np.lib.stride_tricks.sliding_window_view(image.astype(np.int32), (3, 3), (2, 3))
    exact = np.einsum("ncpqrs,kcrs->nkpq", windows, filters.astype(np.int32))
    np.testing.assert_array_equal(dlprim.contract(formula, image, filters), exact)
    layers = dlprim.define("""
    def f(uint8(M,K) x, int8(N,K) w) -> (y) { y(m,n) += x(m,k) * w(n,k) }""")
    x, w = whole(6, 8 * channels, dtype="uint8"), whole(3, 8 * channels)
    y = np.arange(18, dtype=np.int32).reshape(6, 3)
    expected = y + x.astype(np.int32) @ w.T.astype(np.int32)
    np.testing.assert_array_equal(layers.f(x, w, out=y), expected)


@pytest.mark.parametrize("types", TYPES, ids=str)
@pytest.mark.parametrize("sizes", [(3, 4, 2, 5), (17, 300, 33, 3)])
def test_bytes_add_to_results_whose_columns_lie_apart(sizes: Any, types: tuple[str, str]) -> None:
    n, c, k, g = sizes
    x, w = whole(g, n, c, dtype=types[0]), whole(g, k, c, dtype=types[1])
    y = RNG.integers(-(2**31), 2**30, (n, k, g), np.int32)
    exact = y + np.einsum("gnc,gkc->nkg", x.astype(np.int32), w.astype(np.int32))
    dlprim.contract("y(n,k,g) += x(g,n,c) * w(g,k,c)", x, w, out=y)
    np.testing.assert_array_equal(y, exact)


@pytest.mark.parametrize("types", TYPES, ids=str)
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=str)
def test_bytes_that_are_broadcast(axes: tuple[int, ...], types: tuple[str, str]) -> None:
    x, w = whole(5, 300, dtype=types[0]), whole(4, 300, dtype=types[1])
    ones = [slice(None, 1) if axis in axes else slice(None) for axis in range(2)]
    for one, other in (
        (np.broadcast_to(x[tuple(ones)], x.shape), w),
        (x, np.broadcast_to(w[tuple(ones)], w.shape)),
        (np.broadcast_to(x[tuple(ones)], x.shape), np.broadcast_to(w[tuple(ones)], w.shape)),
    ):
        exact = one.astype(np.int32) @ other.T.astype(np.int32)
        for _ in range(2):
            found = dlprim.contract("y(n,k) +=! x(n,c) * w(k,c)", one, other)
            np.testing.assert_array_equal(found, exact)


FORMULAS = (
    "y(i,j) = (x(i,j) - 3) * z(j)",
    "y(i,j) = x(j,i) * z(i)",
    "y(i) +=! x(i,j) * z(j)",
    "y(i,k) +=! x(i,j) * v(k,j) * z(j)",
    "y(i) max=! x(i,j) - z(j)",
    "y(i,j) = x?(i,j-1) + z(j) where j in 0:40",
)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("formula", FORMULAS)
def test_bytes_are_numbers_beside_floats(formula: str, dtype: str) -> None:
    x, v = whole(40, 40, dtype=dtype), whole(7, 40, dtype=dtype)
    arrays = [x, *([v] if "v(" in formula else []), np.linspace(-1, 1, 40).astype(np.float32)]
    found = dlprim.contract(formula, *arrays)
    exact = dlprim.contract(formula, *(it.astype(np.float32) for it in arrays))
    assert found.dtype == np.float32
    scale = np.abs(exact).max()
    np.testing.assert_allclose(found, exact, rtol=1e-6, atol=1e-6 * scale)


BYTES_REFUSED = (
    ("y(n) = x(n,0) where n in 0:3", ("int8",), "the result is int32, expected float32"),
    ("y(n) +=! x(n,k)", ("int8",), "the result is int32, expected float32"),
    (
        "y(n,k) +=! x(n,c) * w(k,c) * v(c,k)",
        ("int8", "int8", "int8"),
        "the result is int32, expected float32",
    ),
    ("y(n,k) +=! 2 * x(n,c) * w(k,c)", ("uint8", "uint8"), "expected no number beside them"),
    ("y(n,k) +=! x(n,c) * w(k,c)", ("int16", "int8"), "x has dtype int16"),
)


@pytest.mark.parametrize("case", BYTES_REFUSED, ids=str)
def test_what_bytes_are_not_taken_for(case: tuple[str, tuple[str, ...], str]) -> None:
    formula, types, message = case
    with pytest.raises((TypeError, ValueError), match=message):
        dlprim.contract(formula, *(np.ones((4, 4), dtype) for dtype in types))
