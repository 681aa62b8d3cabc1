"""Statements behind a product that the kernel does before it stores a sum: values, and which."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import dlprim
from drawing import RNG
from row_reference import ACTIVATIONS as SMOOTH

ACTIVATIONS = {**SMOOTH, "relu": lambda x: np.maximum(x, 0)}
PRODUCT = "y(n,k) +=! x(n,c) * w(k,c)"
SHAPES = [(64, 60, 70), (13, 37, 131), (1, 300, 65), (300, 31, 1), (5, 1, 9), (40, 3, 600)]


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def layer(*statements: str) -> dlprim.lang.Definition:
    body = " ".join([PRODUCT, *statements])
    return dlprim.define(
        f"def f(float(N,C) x, float(K,C) w, float(K) b, float(N) r) -> (y) {{ {body} }}"
    ).f


def explained(*statements: str, shape: tuple[int, int, int] = (64, 60, 70)) -> str:
    n, c, k = shape
    return layer(*statements).compile((n, c), (k, c), (k,), (n,)).explain()


def arrays_of(shape: tuple[int, int, int]) -> tuple[Any, ...]:
    n, c, k = shape
    return normal(n, c), normal(k, c), normal(k), normal(n)


@pytest.mark.parametrize("name", ["relu", "sigmoid", "tanh", "gelu"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_an_end_gives_what_its_statements_give(shape: tuple[int, int, int], name: str) -> None:
    x, w, b, r = arrays_of(shape)
    sums = x.astype(np.float64) @ w.astype(np.float64).T
    for statements, exact in (
        ([f"y(n,k) = {name}(y(n,k) + b(k))"], ACTIVATIONS[name](sums + b)),
        (["y(n,k) = y(n,k) + b(k)", f"y(n,k) = {name}(y(n,k))"], ACTIVATIONS[name](sums + b)),
        ([f"y(n,k) = {name}(y(n,k))"], ACTIVATIONS[name](sums)),
        (["y(n,k) = b(k) + y(n,k)"], sums + b),
        (["y(n,k) = y(n,k) + r(n)"], sums + r[:, None]),
        (["y(n,k) = y(n,k) * b(k)", f"y(n,k) = {name}(y(n,k))"], ACTIVATIONS[name](sums * b)),
    ):
        found = layer(*statements)(x, w, b, r)
        np.testing.assert_allclose(found, exact, 1e-5, 4e-6 * shape[1] ** 0.5 + 1e-5)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_an_end_of_bfloat16_is_rounded_once_and_a_statement_once_more(
    shape: tuple[int, int, int],
) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x, w, b, r = map(dlprim.to_bfloat16, arrays_of(shape))
    n, c, k = shape
    wide = [dlprim.to_float32(it).astype(np.float64) for it in (x, w, b)]
    exact = np.maximum(wide[0] @ wide[1].T + wide[2], 0)
    rounded = exact.astype(np.float32).astype(ml_dtypes.bfloat16)
    close = (2**-7, 2**-7 * c**0.5)
    for value, is_end in (("relu(y(n,k) + b(k))", True), ("fmax(y(n,k) + b(k), 0)", False)):
        compiled = layer(f"y(n,k) = {value}").compile(
            (n, c), (k, c), (k,), (n,), dtype=ml_dtypes.bfloat16
        )
        found = compiled(x, w, b, r).view(ml_dtypes.bfloat16)
        np.testing.assert_allclose(found.astype(np.float64), exact, *close)
        takes_end = "statements 1 and 2" in compiled.explain()
        assert takes_end or shape != SHAPES[0] or not is_end
        if takes_end:
            assert is_end
            assert np.mean(found == rounded) > 0.995
        elif n * k > 1000 and not is_end:
            assert np.mean(found == rounded) < 0.98


def test_products_of_elements_in_bfloat16_stay_rows_and_keep_small_values() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    product = dlprim.define(
        "def f(float(N) a, float(N) b) -> (y) { y(n) = a(n) * b(n) y(n) = relu(y(n)) }"
    ).f
    compiled = product.compile((2,), (2,), dtype=ml_dtypes.bfloat16)
    assert "brgemm" not in compiled.explain()
    a, b = (np.array(it, ml_dtypes.bfloat16) for it in ([1e-39, 1e-20], [1e10, 1e-20]))
    np.testing.assert_array_equal(compiled(a, b), (a.astype(np.float32) * b).astype(a.dtype))


def test_explain_names_the_statements_that_are_the_end() -> None:
    def named(*statements: str) -> str:
        return re.findall(r"^statements? [\d a-z]+", explained(*statements), re.M)[0]

    assert named("y(n,k) = relu(y(n,k) + b(k))") == "statements 1 and 2"
    assert named("y(n,k) = y(n,k) + b(k)", "y(n,k) = tanh(y(n,k))") == "statements 1 to 3"
    assert named("y(n,k) = y(n,k) * b(k)") == "statement 1"
    assert named("y(n,k) = y(n,k) - b(k)") == "statement 1"
    assert named("y(n,k) = exp(y(n,k))") == "statement 1"
    assert named("y(n,k) = relu(y(n,k))", "y(n,k) = y(n,k) + b(k)") == "statements 1 and 2"


def test_values_that_are_no_numbers_pass_an_end_as_they_pass_a_statement() -> None:
    x, w, b, r = arrays_of((16, 20, 32))
    x[3], x[5, 1], b[7] = np.nan, np.inf, -np.inf
    for value in ("relu(y(n,k) + b(k))", "fmax(y(n,k) + b(k), 0)", "tanh(y(n,k) + b(k))"):
        alone = dlprim.define(
            f"def f(float(N,K) s, float(K) b) -> (y) {{ y(n,k) = {value.replace('y(', 's(')} }}"
        ).f
        with np.errstate(invalid="ignore"):
            expected = alone(layer()(x, w, b, r), b)
        found = layer(f"y(n,k) = {value}")(x, w, b, r)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected), value)
        np.testing.assert_allclose(found, expected, 1e-4, 1e-4)


@pytest.mark.parametrize("shape", [*SHAPES, (700, 64, 130), (3, 3000, 900)], ids=str)
def test_an_end_has_the_same_bits_for_any_number_of_threads(shape: tuple[int, int, int]) -> None:
    arrays = arrays_of(shape)
    ends = layer("y(n,k) = tanh(y(n,k) + b(k))")
    results = []
    for count in (1, 2, 3):
        with dlprim.threads(count):
            results.append(ends(*arrays))
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


@pytest.mark.large
@pytest.mark.parametrize("rows", [1, 2, 3, 8, 33])
@pytest.mark.parametrize("extents", [(1000, 2050), (515, 3000), (7, 90001)], ids=str)
def test_weights_that_stream_by_give_the_same_bits_for_any_number_of_threads(
    rows: int, extents: tuple[int, int]
) -> None:
    ends = dlprim.define(
        "def f(float(N,C) x, float(C,K) w, float(K) b) -> (y) "
        "{ y(n,k) +=! x(n,c) * w(c,k) y(n,k) = tanh(y(n,k) + b(k)) }"
    ).f
    x, w, b = normal(rows, extents[0]), normal(*extents), normal(extents[1])
    exact = np.tanh(x.astype(np.float64) @ w.astype(np.float64) + b)
    results = []
    for count in (1, 2, 3, 5):
        with dlprim.threads(count):
            results.append(ends(x, w, b))
    np.testing.assert_allclose(results[0], exact, 1e-4, 1e-4)
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


def test_a_bias_may_lie_anyhow() -> None:
    x, w, _, r = arrays_of((30, 20, 50))
    ends = layer("y(n,k) = relu(y(n,k) + b(k))")
    wide = normal(150)
    for b in (wide[::3], wide[:50][::-1]):
        exact = np.maximum(x.astype(np.float64) @ w.T.astype(np.float64) + b, 0)
        for first in (x, np.asfortranarray(x), np.repeat(x, 2, 0)[::2]):
            for second in (w, np.asfortranarray(w)):
                np.testing.assert_allclose(ends(first, second, b, r), exact, 1e-5, 3e-5)
