"""Formulas on arrays: einsum, matmul, contract and define against float64, and what they refuse."""

from __future__ import annotations

import re
import threading
from typing import Any

import numpy as np
import pytest

import dlprim
from drawing import RNG
from guarded import guarded

EINSUMS = (
    ("mk,nk->mn", (33, 20), (17, 20)),
    ("bnk,bkm->bnm", (5, 26, 12), (5, 12, 26)),
    ("km,kn->mn", (70, 40), (70, 33)),
    ("mabc,xa,yb,zc->mxyz", (9, 4, 4, 4), (5, 4), (6, 4), (7, 4)),
    ("bqhd,bkhd->bhqk", (2, 19, 3, 16), (2, 21, 3, 16)),
    ("bi,ijk,bj->bk", (6, 8), (8, 7, 5), (6, 7)),
    ("aib,bjc,ckd->aijkd", (1, 8, 6), (6, 9, 5), (5, 7, 1)),
    ("aibj,cjdi->abcd", (5, 6, 7, 8), (4, 8, 9, 6)),
    ("iij->j", (9, 9, 40)),
    ("ij,ij->i", (30, 70), (30, 70)),
    ("ijk->ik", (5, 6, 7)),
    ("i,j->ij", (30,), (40,)),
    ("ij,j->i", (40, 50), (50,)),
    ("i,ij->j", (40,), (40, 50)),
    ("nchw,kc->nkhw", (2, 12, 5, 6), (9, 12)),
    ("nc,rc,kr->nk", (20, 30), (4, 30), (25, 4)),
    ("mk,kn->mn", (300, 8), (8, 8)),
    ("mk,kn->mn", (0, 8), (8, 3)),
    ("mk,kn->mn", (4, 0), (0, 3)),
    ("...ij,...jk->...ik", (3, 1, 4, 5), (2, 5, 6)),
    ("ij,jk", (4, 5), (5, 6)),
    ("ij,j->", (4, 5), (5,)),
    ("ij->ji", (4, 5)),
    ("ij,k->i", (4, 5), (6,)),
)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def assert_close(found: Any, exact: Any, scale: Any = None) -> None:
    """Within rounding errors of sums whose terms have the sizes that `scale` adds up."""
    assert found.shape == exact.shape
    bound = 1e-6 * (np.abs(exact) if scale is None else scale) + 1e-30
    assert (np.abs(found - exact) <= 8 * bound).all()


@pytest.mark.parametrize("case", EINSUMS, ids=lambda it: it[0])
def test_einsum_is_the_sum_in_float64(case: tuple[Any, ...]) -> None:
    subscripts, *shapes = case
    arrays = [normal(*shape) for shape in shapes]
    exact = [array.astype(np.float64) for array in arrays]
    scale = np.einsum(subscripts, *map(np.abs, exact))
    expected = np.einsum(subscripts, *exact)
    assert_close(dlprim.einsum(subscripts, *arrays), expected, scale)
    # The same of views that lie otherwise.
    views = [np.asfortranarray(array) for array in arrays]
    assert_close(dlprim.einsum(subscripts, *views), expected, scale)
    views = [np.repeat(array, 2, axis=-1)[..., ::2] for array in arrays]
    assert_close(dlprim.einsum(subscripts, *views), expected, scale)
    views = [np.ascontiguousarray(array[::-1])[::-1] for array in arrays]
    assert_close(dlprim.einsum(subscripts, *views), expected, scale)


@pytest.mark.parametrize("case", EINSUMS[:12], ids=lambda it: it[0])
def test_einsum_of_bfloat16(case: tuple[Any, ...]) -> None:
    subscripts, *shapes = case
    halves = [dlprim.to_bfloat16(normal(*shape)) for shape in shapes]
    if halves[0].dtype == np.uint16:
        pytest.skip("without ml_dtypes there is no bfloat16 array that einsum takes")
    exact = [array.astype(np.float64) for array in halves]
    found = dlprim.einsum(subscripts, *halves)
    assert found.dtype == halves[0].dtype
    scale = np.einsum(subscripts, *map(np.abs, exact))
    expected = np.einsum(subscripts, *exact)
    assert (np.abs(found.astype(np.float64) - expected) <= 2.0**-7 * scale + 1e-30).all()


@pytest.mark.parametrize(
    "shapes",
    [((3,), (3,)), ((4, 3), (3,)), ((3,), (3, 5)), ((4, 3), (3, 5)), ((2, 4, 3), (3, 5)),
     ((2, 1, 4, 3), (6, 3, 5)), ((7, 1, 3), (7, 3, 2)), ((2, 4, 3), (3,))],
)  # fmt: skip
def test_matmul_is_numpys(shapes: Any) -> None:
    a, b = (normal(*shape) for shape in shapes)
    exact = np.matmul(a.astype(np.float64), b.astype(np.float64))
    assert_close(dlprim.matmul(a, b), exact, np.matmul(np.abs(a), np.abs(b)))


def test_matmul_reads_transposed_views_and_writes_out() -> None:
    a, b = normal(30, 40).T, normal(50, 30).T
    out = np.empty((40, 50), np.float32)
    assert dlprim.matmul(a, b, out=out) is out
    assert_close(out, a.astype(np.float64) @ b, np.abs(a) @ np.abs(b))


def test_contract_is_a_convolution_with_padding() -> None:
    x, w = normal(2, 3, 9, 10), normal(4, 3, 3, 3)
    formula = "y(n,k,p,q) +=! x?(n,c,2*p+r-1,2*q+s-1) * w(k,c,r,s)"
    found = dlprim.contract(formula, x, w, sizes={"p": 5, "q": 5})
    exact = dlprim.conv2d(x, w, stride=2, padding=1)
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5)


def test_contract_writes_digits() -> None:
    x, w = normal(5, 3, 6), normal(4, 6)
    found = dlprim.contract("y(k,3*i+j) +=! x(i,j,c) * w(k,c) where j in 0:3", x, w)
    np.testing.assert_allclose(found, w @ x.reshape(15, 6).T, rtol=1e-5, atol=1e-5)
    found = dlprim.contract("y(2*i+j,c) = exp(x(i,j,c)) where j in 0:2", x)
    np.testing.assert_allclose(found, np.exp(x[:, :2].reshape(10, 6)), rtol=1e-5)
    with pytest.raises(ValueError, match="leave some out or meet some twice"):
        dlprim.contract("y(2*i+j,c) = x(i,j,c)", x)


def test_contract_adds_to_out_and_finds_extremes() -> None:
    x, w, y = normal(5, 6), normal(7, 6), normal(5, 7)
    expected = y + x.astype(np.float64) @ w.T
    assert dlprim.contract("y(n,k) += x(n,c) * w(k,c)", x, w, out=y) is y
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    image = normal(2, 8, 8)
    pooled = dlprim.contract(
        "y(c,h,v) max=! x(c, 2*h + r, 2*v + s) where r in 0:2, s in 0:2", image
    )
    np.testing.assert_array_equal(pooled, image.reshape(2, 4, 2, 4, 2).max((2, 4)))


LAYERS = """
def fcrelu(float(B,I) x, float(O,I) w, float(O) b) -> (y) {
    y(n,o) +=! x(n,i) * w(o,i)
    y(n,o) = fmax(y(n,o) + b(o), 0)
}
def softmax(float(N,D) x) -> (y) {
    highest(n) max=! x(n,d)
    power(n,d) = exp(x(n,d) - highest(n))
    total(n) +=! power(n,d)
    y(n,d) = power(n,d) / total(n)
}
def moments(float(N,K) x) -> (mean, variance) {
    mean(n) +=! x(n,k)
    variance(n) +=! x(n,k) * x(n,k)
    mean(n) = mean(n) / K
    variance(n) = variance(n) / K - mean(n) * mean(n)
}
def sgemm(float a, float b, float(N,M) A, float(M,K) B) -> (C) {
    C(i,j) = b * C(i,j)
    C(i,j) += a * A(i,k) * B(k,j)
}
"""


def test_definitions_of_several_statements() -> None:
    layers = dlprim.define(LAYERS)
    x, w, b = normal(6, 8), normal(5, 8), normal(5)
    np.testing.assert_allclose(
        layers.fcrelu(x, w, b), np.maximum(x @ w.T + b, 0), rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(layers.softmax(x), dlprim.softmax(x), rtol=1e-5, atol=1e-7)
    mean, variance = layers.moments(x)
    np.testing.assert_allclose(mean, x.mean(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(variance, x.var(1), rtol=1e-4, atol=1e-5)
    product, before = normal(6, 5), None
    before = product.copy()
    layers.sgemm(0.5, 2.0, x, np.ascontiguousarray(w.T), out=product)
    np.testing.assert_allclose(product, 2 * before + 0.5 * (x @ w.T), rtol=1e-5, atol=1e-5)
    assert [it.name for it in layers] == ["fcrelu", "softmax", "moments", "sgemm"]
    fc = layers.fcrelu.compile(x.shape, w.shape, b.shape)
    assert fc.flops >= 2 * 6 * 8 * 5
    assert "product" in fc.explain()
    np.testing.assert_array_equal(fc(x, w, b), layers.fcrelu(x, w, b))


def test_sizes_may_have_any_name_and_scalars_any_type() -> None:
    x = normal(8)
    np.testing.assert_array_equal(dlprim.contract("y(out) = x(out)", x, sizes={"out": 8}), x)
    scaled = dlprim.define("def f(float a, float(N) x) -> (y) { y(i) = a * x(i) }").f
    np.testing.assert_array_equal(scaled(np.int64(2), x), 2 * x)


def test_threads_get_the_same_bits() -> None:
    a, b = normal(4, 200, 150), normal(4, 150, 170)
    with dlprim.threads(1):
        one = dlprim.einsum("bij,bjk->bik", a, b)
    with dlprim.threads(2):
        np.testing.assert_array_equal(dlprim.einsum("bij,bjk->bik", a, b), one)


def test_python_threads_compile_at_the_same_time() -> None:
    a, b = normal(20, 30), normal(30, 40)
    exact = a @ b
    wrong: list[int] = []

    def run(number: int) -> None:
        for extent in range(1, 20):
            found = dlprim.einsum("ij,jk->ik", a[:extent], b)
            if not np.allclose(found, exact[:extent], 1e-4, 1e-4):
                wrong.append(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


REFUSED = (
    (lambda x: dlprim.einsum("ij,jk->ik", x, x[:3]), "operand 1 has extent 3 along 'j'"),
    (lambda x: dlprim.einsum("ij->k", x), "has 'k' on its right alone"),
    (lambda x: dlprim.einsum("ij->ii", x), "has 'i' twice on its right"),
    (lambda x: dlprim.einsum("ijk->i", x), "operand 0 has 2 axes"),
    (lambda x: dlprim.einsum("ij,ij->i", x), "has 2 operands, but 1 were given"),
    (lambda x: dlprim.matmul(x, np.float32(2)), "b is a number"),
    (lambda x: dlprim.contract("y(i) +=! x(i,j", x), "expected"),
    (lambda x: dlprim.contract("y(i) += x(i,j)", x), "expected an array as out that holds it"),
    (lambda x: dlprim.contract("y(j) +=! x(i,j)", x, out=x[0]), "out shares memory with x"),
)


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=lambda it: it if type(it) is str else "")
def test_what_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call(normal(5, 5))


def test_types_are_named() -> None:
    x = normal(5, 5)
    with pytest.raises(TypeError, match="formula is of type int"):
        dlprim.contract(3, x)  # type: ignore[arg-type]
    for formula in (b"y(i,j) = x(i,j)", ["y(i,j) = x(i,j)"]):
        with pytest.raises(TypeError, match=f"formula is of type {type(formula).__name__}, exp"):
            dlprim.contract(formula, x)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="subscripts is of type ndarray"):
        dlprim.einsum(x, x)
    with pytest.raises(TypeError, match=r"size i is '5', expected an integer"):
        dlprim.contract("y(i) +=! x(i,j)", x, sizes={"i": "5"})  # type: ignore[dict-item]
    for sizes in (1, 0, ["i"], "i"):
        with pytest.raises(TypeError, match=r"sizes is .*, expected a mapping of str to int"):
            dlprim.contract("y(i) +=! x(i,j)", x, sizes=sizes)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="sizes holds 1, expected names"):
        dlprim.contract("y(i) +=! x(i,j)", x, sizes={1: 5})  # type: ignore[dict-item]
    for text in (None, 3, ["def"]):
        with pytest.raises(TypeError, match=f"text is of type {type(text).__name__}, expected a"):
            dlprim.define(text)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="out is of type int, expected a sequence of 2 arrays"):
        dlprim.define(LAYERS).moments(x, out=3)
    with pytest.raises(ValueError, match=r"would have 4[0-9]+ elements"):
        dlprim.contract("y(i) = x?(2000000000*i, 0)", x, sizes={"i": 3})
    with pytest.raises(TypeError, match="operand 0 has dtype float64"):
        dlprim.einsum("ij->i", np.ones((2, 2)))
    with pytest.raises(TypeError, match="x has dtype int64"):
        dlprim.contract("y(i) +=! x(i,j)", np.ones((2, 2), np.int64))
    with pytest.raises(AttributeError, match="no definition is called missing"):
        _ = dlprim.define("def f(float(N) x) -> (y) { y(n) = x(n) }").missing


@pytest.mark.parametrize("edge", ["begin", "end"])
def test_branches_read_nothing_outside(edge: str) -> None:
    x = guarded(2048, edge)
    x[:] = np.arange(2048)
    behind = dlprim.contract("y(i) = i < 2048 ? x(i) : 7 where i in 0:4096", x)
    np.testing.assert_array_equal(behind[:2048], x)
    assert np.all(behind[2048:] == 7)
    before = dlprim.contract("y(i) = i >= 1500 ? x(i - 1500) : 7 where i in 0:2048", x)
    np.testing.assert_array_equal(before[1500:], x[:548])
    assert np.all(before[:1500] == 7)


def test_diagonals_broadcast() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((3, 3, 1)).astype(np.float32)
    b = rng.standard_normal(5).astype(np.float32)
    expected = np.einsum("iij,j->ij", a, b)
    np.testing.assert_allclose(dlprim.einsum("iij,j->ij", a, b), expected, rtol=1e-6)


def test_matmul_does_not_broadcast_what_it_sums_over() -> None:
    with pytest.raises(ValueError, match=r"^b has 4 rows, expected 1 as a has columns"):
        dlprim.matmul(np.ones((2, 1), np.float32), np.ones((4, 5), np.float32))


def test_results_are_separate() -> None:
    layers = dlprim.define("def f(float(N) x) -> (a, b) { a(i) = x(i)\n b(i) = 2 * x(i) }")
    x, out = np.ones(4, np.float32), np.ones(4, np.float32)
    with pytest.raises(ValueError, match="b shares memory with another result, expected"):
        layers.f(x, out=(out, out))


def test_equal_indices_need_equal_extents() -> None:
    x, w = normal(8, 64), normal(32, 60)
    with pytest.raises(
        ValueError, match=r"w has a dimension 1 of 60, expected 64 as another dimension along c has"
    ):
        dlprim.contract("y(n,k) +=! x(n,c) * w(k,c)", x, w)
    shorter = dlprim.contract("y(n,k) +=! x(n,c) * w(k,c) where c in 0:60", x, w)
    np.testing.assert_allclose(shorter, x[:, :60] @ w.T, rtol=1e-4, atol=1e-4)


def test_a_number_leaves_halves_halves() -> None:
    layers = dlprim.define("def f(float a, float(N) x) -> (y) { y(i) = a * x(i) }")
    halves = dlprim.to_bfloat16(normal(40))
    if halves.dtype == np.uint16:
        pytest.skip("without ml_dtypes there is no bfloat16 array that a formula takes")
    assert layers.f(2, halves).dtype == halves.dtype
    assert layers.f(2, normal(40)).dtype == np.float32


@pytest.mark.parametrize(("width", "places"), [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2)])
def test_windows_that_do_not_fit_have_no_place(width: int, places: int) -> None:
    x, w = np.ones((1, width), np.float32), np.ones(3, np.float32)
    y = dlprim.contract("y(n,p) +=! x(n,2*p+r) * w(r)", x, w)
    assert y.tolist() == [[3.0] * places]
