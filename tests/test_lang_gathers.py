"""Places that are read from tensors: tables that are looked up, against NumPy's indexing."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import dlprim
from drawing import RNG
from guarded import guarded


def table(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def places(below: int, *shape: int, dtype: type = np.int64) -> np.ndarray:
    return RNG.integers(0, below, shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("width", [1, 5, 16, 17, 300])
def test_rows_of_a_table(width: int, dtype: type) -> None:
    x, at = table(50, width), places(50, 9, 7, dtype=dtype)
    np.testing.assert_array_equal(dlprim.contract("y(b,l,d) = x(at(b,l),d)", x, at), x[at])
    summed = dlprim.contract("y(b,d) +=! x(at(b,l),d)", x, at)
    np.testing.assert_allclose(summed, x[at].sum(1), rtol=1e-5, atol=1e-5)
    largest = dlprim.contract("y(b,d) max=! x(at(b,l),d)", x, at)
    np.testing.assert_array_equal(largest, x[at].max(1))
    scaled = dlprim.contract("y(b,d) +=! 2 * x(at(b,l),d)", x, at)
    np.testing.assert_allclose(scaled, 2 * x[at].sum(1), rtol=1e-5, atol=1e-5)


def test_places_of_any_dimension_and_stride() -> None:
    x, at = table(6, 40, 8), places(40, 9)
    np.testing.assert_array_equal(dlprim.contract("y(b,n) = x(b,at(n),3)", x, at), x[:, at, 3])
    both = dlprim.contract("y(n,d) = x(row(n),at(n),d)", x, places(6, 9) * 0 + 2, at)
    np.testing.assert_array_equal(both, x[2, at])
    strided, apart = x[:, ::2, ::3], places(20, 9, 6)[::2, ::-1]
    gathered = dlprim.contract("y(b,n,m,d) = x(b,at(n,m),d)", strided, apart)
    np.testing.assert_array_equal(gathered, strided[:, apart])
    summed = dlprim.contract("y(b,d) +=! x(b,at(n,m),d)", strided, apart)
    np.testing.assert_allclose(summed, strided[:, apart].sum((1, 2)), rtol=1e-5, atol=1e-5)
    shifted = dlprim.contract("y(n,d) = x(2,at(n),d+1) where d in 0:7", x, at)
    np.testing.assert_array_equal(shifted, x[2, at][:, 1:])
    one = dlprim.contract("y(d) = x(row(),at(),d)", x, 4, 7)
    np.testing.assert_array_equal(one, x[4, 7])


@pytest.mark.parametrize("rows", [3, 20000])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_sums_of_rows_however_results_and_places_lie(dtype: type, rows: int) -> None:
    x, at = guarded(rows * 33).reshape(rows, 33), guarded(140, dtype=dtype).reshape(5, 4, 7)
    x[:], at[:] = table(rows, 33), places(rows, 5, 4, 7)
    wide = np.zeros((5, 4, 14), dtype)
    wide[..., ::2] = at
    for given in (at, wide[..., ::2], at[::-1]):
        every = x[given]
        for formula, expected in (
            ("y(a,b,d) +=! x(at(a,b,l),d)", every.sum(2)),
            ("y(b,a,d) +=! x(at(a,b,l),d)", every.sum(2).swapaxes(0, 1)),
            ("y(a,d) +=! x(at(a,b,l),d)", every.sum((1, 2))),
            ("y(d,a,b) +=! x(at(a,b,l),d)", every.sum(2).transpose(2, 0, 1)),
        ):
            found = dlprim.contract(formula, x, given)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        out = np.full((5, 4, 33), 7, np.float32)
        for wrong in (-1, rows):
            outside = given.copy()
            outside[4, 3, 6] = wrong
            with pytest.raises(IndexError, match=f"^at has the place {wrong}, expected places"):
                dlprim.contract("y(a,b,d) +=! x(at(a,b,l),d)", x, outside, out=out)
        assert (out == 7).all()


def test_two_tables_at_once() -> None:
    layers = dlprim.define("""
    def tables(float(E1,D) x, int32(B,L1) i, float(E2,D) z, int64(B,L2) j, float(D,K) w) -> (a, b) {
        a(n,d) +=! x(i(n,k),d)
        b(n,m) +=! z(j(n,k),d) * w(d,m)
    }""")
    x, z, w = table(30, 16), table(1000, 16), table(16, 5)
    i, j = places(30, 12, 7, dtype=np.int32), places(1000, 12, 9)
    a, b = layers.tables(x, i, z, j, w)
    np.testing.assert_allclose(a, x[i].sum(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(b, z[j].sum(1) @ w, rtol=1e-4, atol=1e-4)
    assert layers.tables.compile(x.shape, i.shape, z.shape, j.shape, w.shape).flops > 0


def test_halves_and_empty_places() -> None:
    x = dlprim.to_bfloat16(table(20, 24))
    if x.dtype == np.uint16:
        pytest.skip("without ml_dtypes there is no bfloat16 array that a formula takes")
    at = places(20, 6, 3)
    assert (dlprim.contract("y(b,l,d) = x(at(b,l),d)", x, at) == x[at]).all()
    summed = dlprim.contract("y(b,d) +=! x(at(b,l),d)", x, at)
    np.testing.assert_allclose(
        summed.astype(np.float32), x.astype(np.float32)[at].sum(1), rtol=2e-2, atol=2e-2
    )
    mixed = dlprim.contract("y(b,l,d) = x(at(b,l),d) * s(d)", x, at, np.ones(24, np.float32))
    np.testing.assert_array_equal(mixed, x[at].astype(np.float32))
    none = dlprim.contract("y(b,d) +=! x(at(b,l),d)", table(20, 4), places(20, 6, 0))
    np.testing.assert_array_equal(none, np.zeros((6, 4)))
    assert dlprim.contract("y(b,d) = x(at(b),d)", table(20, 4), places(20, 0)).shape == (0, 4)


MIXED = dlprim.define("""
def shown(float(N,D) x, int64(M) at, float(D) s) -> (y, z) {
    y(m,d) = x(at(m),d)
    z(m,d) = y(m,d) * s(d)
}
def reused(float(N,D) x, float(N,D) z, int64(M) at) -> (y) {
    t(m,d) = x(at(m),d)
    y(m,d) = t(m,d)
    t(m,d) = z(at(m),d)
    y(m,d) = y(m,d) + t(m,d)
}
def again(float(N,D) x, int64(M) at, float(D) s) -> (y) {
    t(m,d) = x(at(m),d)
    u(m,d) = t(at(m),d)
    y(m,d) = u(m,d) * s(d)
}
def summed(float(N,D) x, int64(M) at, float(D) s) -> (y) {
    t(d) +=! x(at(m),d)
    y(d) = t(d) * s(d)
}""")


def test_tables_of_other_types_than_results() -> None:
    half, at = dlprim.to_bfloat16(table(6, 24)), places(6, 6)
    if half.dtype == np.uint16:
        pytest.skip("without ml_dtypes there is no bfloat16 array that a formula takes")
    x, wide, one = half.astype(np.float32), table(6, 24), np.ones(24, np.float32)
    for y in MIXED.shown(half, at, one):
        np.testing.assert_array_equal(y, x[at])
    np.testing.assert_array_equal(MIXED.reused(half, wide, at), x[at] + wide[at])
    np.testing.assert_array_equal(MIXED.reused(wide, half, at), x[at] + wide[at])
    np.testing.assert_array_equal(MIXED.again(half, at, one), x[at][at])
    np.testing.assert_allclose(MIXED.summed(half, at, one), x[at].sum(0), rtol=1e-5, atol=1e-5)


def test_copies_go_as_far_as_their_statements() -> None:
    layers = dlprim.define("""
    def shorter(float(N) x, int64(M) at, float(K) v) -> (y) { y(i) = x(at(i)) * v(i) }
    def windows(float(N,D) x, int64(M) at, float(K) v) -> (y) {
        y(m,j) +=! x(at(m),j+k) * v(k)
    }
    def clause(float(N,D) x, int64(M) at, float(K) v) -> (y) {
        y(m,d) +=! x(at(m),d) * v(k) where k in 0:3
    }
    def often(float(N,D) x, int64(M,L) at) -> (y) { y(m,d) +=! x(at(m,0*l),d) where l in 0:3 }
    def scalar(float(N,D) x, int64 k) -> (y) { y(d) = x(k,d) }""")
    x, at, v = table(20, 8), places(20, 9), table(5)
    far = np.append(at, 99)  # what no statement reads lies where it likes
    np.testing.assert_array_equal(layers.shorter(x[:, 0], far, v), x[far[:5], 0] * v)
    windows = np.lib.stride_tricks.sliding_window_view(x[at], 5, axis=1)
    np.testing.assert_allclose(layers.windows(x, at, v), windows @ v, rtol=1e-5, atol=1e-5)
    clause = x[at] * v[:3].sum()
    np.testing.assert_allclose(layers.clause(x, at, v), clause, rtol=1e-5, atol=1e-5)
    often = layers.often(x, at[:, None])
    np.testing.assert_allclose(often, 3 * x[at], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(layers.scalar(x, 3), x[3])
    nothing = dlprim.contract("y(b,d) = x(at(b),d)", table(0, 4), places(1, 0))
    assert nothing.shape == (0, 4)
    nothing = dlprim.contract("y(b,d) = x(at(b)) * v(d)", table(0), at, table(0))
    assert nothing.shape == (9, 0)


def test_types_that_are_equal_but_not_the_same() -> None:
    x, at = pickle.loads(pickle.dumps((table(20, 8), places(20, 9))))
    assert x.dtype is not np.dtype(np.float32)
    np.testing.assert_array_equal(dlprim.contract("y(b,d) = x(at(b),d)", x, at), x[at])
    longest = at.astype(np.longlong)
    np.testing.assert_array_equal(dlprim.contract("y(b,d) = x(at(b),d)", x, longest), x[at])
    rows = dlprim.define("def f(float(N) x, int64(M) at) -> (y) { y(m) = x(at(m)) }").f
    with pytest.raises(ValueError, match=r"expected .* strides \(1,\) and 8 bytes"):
        rows.compile((20,), (9,))(x[:, 0].copy(), at.astype(np.int32))
    for strange in (1.5, 2**70):
        with pytest.raises(TypeError, match=r"at is .*, expected an integer of 64 bits"):
            dlprim.contract("y(d) = x(at(),d)", x, strange)


def test_places_outside() -> None:
    x, at = table(10, 4), np.array([3, 10, -1])
    with pytest.raises(IndexError, match=r"at has the place -1, expected places from 0 to 9"):
        dlprim.contract("y(n,d) = x(at(n),d)", x, at)
    kept = np.full((3, 4), 7, np.float32)
    with pytest.raises(IndexError, match=r"at has the place 8589934595"):
        dlprim.contract("y(n,d) = x(at(n),d)", x, np.array([3, 2**33 + 3, 0]), out=kept)
    assert (kept == 7).all()
    outside = dlprim.contract("y(n,d) = x?(at(n),d)", x, at)
    np.testing.assert_array_equal(outside, [x[3], np.zeros(4), np.zeros(4)])
    np.testing.assert_array_equal(dlprim.contract("y(d) +=! x?(at(n),d)", x, at), x[3])
    with pytest.raises(IndexError, match=r"at has the place 3, expected none"):
        dlprim.contract("y(n,d) = x(at(n),d)", table(0, 4), at[:1])


def test_tables_of_bytes_alone_have_no_type_of_their_own() -> None:
    bytes_alone = np.ones((5, 3), np.uint8)
    for formula in ("y(a,d) +=! x(at(a,l),d)", "y(a,l,d) = x(at(a,l),d)"):
        with pytest.raises(ValueError, match=r"^the result is int32, expected float32, bfloat16"):
            dlprim.contract(formula, bytes_alone, places(5, 2, 2))


def test_nothing_but_tables_is_touched() -> None:
    x = guarded(9 * 17).reshape(9, 17)
    x[...] = table(9, 17)
    at = guarded(20, dtype=np.int64).reshape(5, 4)
    at[...] = places(9, 5, 4)
    out = guarded(5 * 17).reshape(5, 17)
    dlprim.contract("y(b,d) +=! x(at(b,l),d)", x, at, out=out)
    np.testing.assert_allclose(out, x[at].sum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 3])
def test_large_tables_in_pieces(threads: int) -> None:
    x, w = table(3000, 64), table(64)
    at = places(3000, 400, 30)
    before = dlprim.get_num_threads()
    dlprim.set_num_threads(threads)
    try:
        y = dlprim.contract("y(b,d) +=! x(at(b,l),d) * w(d)", x, at, w)
    finally:
        dlprim.set_num_threads(before)
    np.testing.assert_allclose(y, (x[at] * w).sum(1), rtol=1e-4, atol=1e-4)


REFUSED = (
    ("y(n) = x(at(n))", np.int16, TypeError, "at has dtype int16, expected int32 or int64"),
    ("y(n) = x(at(n)+1)", np.int64, ValueError, "no sum of indices times numbers and no tensor"),
    ("y(n) = x(at(at(n)))", np.int64, ValueError, "A place of at is no sum"),
    ("y(n) = 2 * x(at(at(n)))", np.int64, ValueError, "at a place that is read itself"),
    ("y(n) = x(at?(n))", np.int64, ValueError, "The places at are computed, expected a parameter"),
    ("y(n) = x(at(n)) * at(n)", np.int64, ValueError, "The tensor at has integers"),
    ("y(n) = x(at(n)) * at(at(n))", np.int64, ValueError, "The tensor at has integers"),
)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[0])
def test_what_is_refused(case: tuple[str, type, type[Exception], str]) -> None:
    formula, dtype, kind, message = case
    with pytest.raises(kind, match=message):
        dlprim.contract(formula, table(5), np.zeros(5, dtype), sizes={"n": 5})
