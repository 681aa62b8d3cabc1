"""Products whose packed factor exceeds the caches: in pieces of its columns, or whole."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import dlprim
from drawing import RNG

pytestmark = pytest.mark.every_level

# Factors of 2 to 12 MB: half of a second cache, as CPUs have it, or more. Columns that pieces do
# not divide, the transposed product, few rows.
SHAPES = [(150, 1000, 1024), (129, 2050, 640), (700, 520, 1111), (64, 1024, 1024)]


def drawn(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


@pytest.mark.parametrize(("rows", "columns", "sums"), SHAPES)
@pytest.mark.parametrize("formula", ["y(m,n) +=! a(m,k) * b(n,k)", "y(m,n) +=! a(k,m) * b(k,n)"])
def test_pieces_have_the_bits_of_the_whole(
    formula: str, rows: int, columns: int, sums: int
) -> None:
    is_transposed = "a(k,m)" in formula
    a, b = drawn(rows, sums), drawn(columns, sums)
    arrays = [np.ascontiguousarray(it.T) for it in (a, b)] if is_transposed else [a, b]
    right = a.astype(np.float64) @ b.T.astype(np.float64)
    threads = dlprim.get_num_threads()
    found = []
    try:
        for count in (1, 2, 3, 16):
            dlprim.set_num_threads(count)
            found.append(dlprim.contract(formula, *arrays))
    finally:
        dlprim.set_num_threads(threads)
    np.testing.assert_allclose(found[0], right, rtol=0, atol=1e-4 * np.abs(right).max())
    for it in found[1:]:
        np.testing.assert_array_equal(it, found[0])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("activation", [None, "relu"])
def test_layers_in_pieces_add_their_bias_and_end(dtype: str, activation: str | None) -> None:
    x, w, bias = drawn(300, 1000), drawn(1500, 1000), drawn(1500)
    right = x.astype(np.float64) @ w.T.astype(np.float64) + bias
    right = np.maximum(right, 0) if activation else right
    if dtype == "bfloat16":
        x, w = x.astype(ml_dtypes.bfloat16), w.astype(ml_dtypes.bfloat16)
    y = dlprim.linear(x, w, bias, activation=activation).astype(np.float64)
    close = 1e-4 if dtype == "float32" else 2e-2
    np.testing.assert_allclose(y, right, rtol=0, atol=close * np.abs(right).max())


def test_results_of_pieces_are_added_to() -> None:
    a, b = drawn(200, 1024), drawn(1024, 1100)
    y = drawn(200, 1100)
    right = y + a.astype(np.float64) @ b.astype(np.float64)
    dlprim.contract("y(m,n) += a(m,k) * b(k,n)", a, b, out=y)
    np.testing.assert_allclose(y, right, rtol=0, atol=1e-4 * np.abs(right).max())
