"""Values at which functions are easily wrong: out of range, at infinity, on an axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlprim

F = np.float32
INF, NAN = F(np.inf), F(np.nan)


# ---------------------------------------------------------------- places and labels

TABLE = np.arange(6, dtype=F).reshape(3, 2)
LOGITS = np.eye(3, dtype=F)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int8])
def test_indices_below_zero_are_refused(dtype: Any) -> None:
    wrong, right = np.array([0, -1], dtype), np.array([2, 0], dtype)
    traced = dlprim.compile(lambda indices, w: dlprim.embedding(indices, w))
    np.testing.assert_array_equal(traced(right, TABLE), TABLE[[2, 0]])
    with pytest.raises(IndexError, match=r"indices holds -1, expected values in \[0, 3\)"):
        traced(wrong, TABLE)
    with pytest.raises(
        IndexError, match=r"line \d+: indices holds -1, expected values in \[0, 3\)"
    ):
        dlprim.compile(lambda w: dlprim.embedding(wrong, w))(TABLE)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int8])
@pytest.mark.parametrize("wrong", [-1, 3])
def test_gradients_refuse_the_indices_that_the_function_does(wrong: int, dtype: Any) -> None:
    """Also where nobody wants what the function gives."""
    indices = np.array([0, wrong], dtype)
    message = rf"indices holds {wrong}, expected values in \[0, 3\)"
    for gradient in (dlprim.grad, dlprim.value_and_grad):
        by_table = gradient(lambda w, indices: dlprim.embedding(indices, w).sum())
        with pytest.raises(IndexError, match=message):
            by_table(TABLE, indices)


def test_indices_of_uint64() -> None:
    """Of which int64 does not hold all."""
    traced = dlprim.compile(lambda indices, w: dlprim.embedding(indices, w))
    by_table = dlprim.grad(lambda w, indices: dlprim.embedding(indices, w).sum())
    right, wrong = np.array([2, 0], np.uint64), np.array([2, 2**63 + 2], np.uint64)
    np.testing.assert_array_equal(traced(right, TABLE), TABLE[[2, 0]])
    np.testing.assert_array_equal(by_table(TABLE, right), [[1, 1], [0, 0], [1, 1]])
    for call in (lambda: traced(wrong, TABLE), lambda: by_table(TABLE, wrong)):
        with pytest.raises(IndexError, match=rf"indices holds {2**63 + 2}, expected values in"):
            call()


def test_small_integers_point_into_a_long_table() -> None:
    table = np.arange(300, dtype=F).reshape(300, 1)
    traced = dlprim.compile(lambda indices, w: dlprim.embedding(indices, w))
    np.testing.assert_array_equal(traced(np.array([5, 127], np.int8), table), table[[5, 127]])


def test_labels_below_zero_are_refused_unless_they_are_ignored() -> None:
    labels = np.array([0, -1, 2])

    def loss(x: Any, labels: Any, ignored: int) -> Any:
        return dlprim.softmax_cross_entropy(x, labels, ignore_index=ignored, gradient=False).loss

    traced = dlprim.compile(loss)
    assert traced(LOGITS, labels, -1) == pytest.approx(loss(LOGITS, labels, -1))
    with pytest.raises(IndexError, match="outside of 3 elements"):
        traced(LOGITS, labels, -100)
    with pytest.raises(ValueError, match=r"targets holds -1, expected values in \[0, 3\)"):
        dlprim.compile(lambda x: loss(x, labels, -100))(LOGITS)


@pytest.mark.parametrize("weight", [None, np.ones(3, F)])
def test_where_all_labels_are_ignored_the_gradient_is_zero(weight: Any) -> None:
    labels = np.full(3, -100)

    def both(x: Any, labels: Any) -> Any:
        return dlprim.softmax_cross_entropy(x, labels, weight=weight)

    loss, slope = dlprim.compile(both)(LOGITS, labels)
    assert np.isnan(loss)
    np.testing.assert_array_equal(slope, np.zeros((3, 3), F))
    some = np.array([-100, 1, 2])
    for one, other in zip(dlprim.compile(both)(LOGITS, some), both(LOGITS, some), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


# ---------------------------------------------------------------- elements


def test_silu_has_its_limit_at_infinity() -> None:
    x = np.array([-INF, -100, -3, 0, 2, INF, NAN], F)
    traced = dlprim.compile(lambda x: dlprim.silu(x))(x)
    np.testing.assert_allclose(traced, dlprim.silu(x), rtol=1e-6, atol=1e-40)


PLACES = np.array([3e30, 1e-30, 0, -4, INF, -INF, NAN, 5e-20], F)
FIRST, SECOND = (it.ravel() for it in np.meshgrid(PLACES, PLACES))


def test_hypot_neither_overflows_nor_underflows() -> None:
    found = dlprim.compile(lambda a, b: np.hypot(a, b))(FIRST, SECOND)
    np.testing.assert_allclose(found, np.hypot(FIRST, SECOND), rtol=1e-6)


def test_hypot_has_the_gradient_of_a_length() -> None:
    a, b = F([3, 4, -5, 0, 3e30, 1e-30, 0]), F([4, 3, 5, 2, 4e30, -1e-30, 0])
    found = dlprim.grad(lambda a, b: np.sum(np.hypot(a, b)), wrt=(0, 1))(a, b)
    length = np.hypot(a.astype(np.float64), b)
    for slope, it in zip(found, (a, b), strict=True):
        np.testing.assert_allclose(slope, it / np.where(length == 0, 1, length), rtol=1e-6)


def test_floor_division_counts_what_fits_whole() -> None:
    numbers = np.array([1, 0.1, -1, 7.5, -0.3, 3, 0, INF, -INF, NAN, 1e6], F)
    a, b = (it.ravel() for it in np.meshgrid(numbers, numbers))
    with np.errstate(all="ignore"):
        expected = a // b
    found = dlprim.compile(lambda a, b: (a // b, divmod(a, b)[0]))(a, b)
    for it in found:
        np.testing.assert_allclose(it, expected, rtol=2e-7)
    assert dlprim.compile(lambda a, b: a // b)(F(1), F(0.1)) == 9


def test_floor_division_takes_a_dtype() -> None:
    a, b = np.array([7, -7, 9]), np.array([2, 2, -4])
    found = dlprim.compile(lambda a, b: np.floor_divide(a, b, dtype=F))(a, b)
    assert found.dtype == F
    np.testing.assert_array_equal(found, [3, -4, -3])
    small = dlprim.compile(lambda a, b: np.floor_divide(a, b, dtype=np.int32))(a, b)
    assert small.dtype == np.int32
    np.testing.assert_array_equal(small, [3, -4, -3])


def test_floor_division_has_no_slope() -> None:
    a, b = F([1, -3, 5, 0]), F([0.3, 2, 0, 0])
    for it in dlprim.grad(lambda a, b: np.sum(a // b), wrt=(0, 1))(a, b):
        np.testing.assert_array_equal(it, np.zeros(4))


def test_arctan2_in_all_directions() -> None:
    numbers = np.array([1, -2, 0, -0.0, 1e-25, -3e20, INF, -INF, NAN], F)
    y, x = (it.ravel() for it in np.meshgrid(numbers, numbers))
    found = dlprim.compile(lambda y, x: np.arctan2(y, x))(y, x)
    np.testing.assert_allclose(found, np.arctan2(y, x), rtol=1e-6)


def test_arctan2_has_gradients_on_the_axes() -> None:
    y, x = F([1, -2, 0, 0, 1, 3, -3, 1e-3]), F([0, 0, 2, -2, 1e-25, 4, -3, 1e3])
    found = dlprim.grad(lambda y, x: np.sum(np.arctan2(y, x)), wrt=(0, 1))(y, x)
    square = x.astype(np.float64) ** 2 + y.astype(np.float64) ** 2
    for slope, it in zip(found, (x / square, -y / square), strict=True):
        np.testing.assert_allclose(slope, it, rtol=1e-6, atol=1e-30)


# ---------------------------------------------------------------- integers


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int16, np.uint16])
def test_integers_are_rounded_to_tens(dtype: Any) -> None:
    a = np.array([1234, 5678, 150, 250, 0, 49, 9950], dtype)
    a = a if dtype == np.uint16 else np.concatenate([a, -a])
    found = dlprim.compile(lambda a: (np.round(a, -2), np.round(a), np.round(a, 2)))(a)
    for it, expected in zip(found, (np.round(a, -2), a, a), strict=True):
        assert it.dtype == dtype
        np.testing.assert_array_equal(it, expected)
    np.testing.assert_array_equal(dlprim.compile(lambda a: np.round(a, -20))(a), 0 * a)


def test_reciprocals_of_integers_are_integers() -> None:
    a = np.array([1, 2, -1, -7], np.int32)
    found = dlprim.compile(lambda a: (np.reciprocal(a), np.reciprocal(a, dtype=F)))(a)
    assert [it.dtype for it in found] == [np.int32, F]
    np.testing.assert_array_equal(found[0], [1, 0, -1, 0])
    np.testing.assert_allclose(found[1], [1, 0.5, -1, -1 / 7], rtol=1e-6)


def test_rint_of_integers_is_a_float() -> None:
    found = dlprim.compile(lambda a: np.rint(a))(np.array([3, -2]))
    assert found.dtype == F
    np.testing.assert_array_equal(found, [3, -2])
