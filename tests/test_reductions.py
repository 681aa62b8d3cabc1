"""Sums, means, extremes and their places along axes: against float64, both dtypes, refusals."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import dlprim
from bfloat16 import bits_of, rounded

pytestmark = pytest.mark.every_level

SHAPES: list[tuple[int, ...]] = [(), (1,), (5,), (4, 8), (1, 9, 1), (3, 1, 5), (4, 5, 6, 7),
                                 (2, 70, 100), (1000, 3), (40, 9, 2)]  # fmt: skip
LONG: list[tuple[int, ...]] = [(3, 200_000), (300_001,), (131_072,), (9000, 5), (2, 9000, 2)]
REDUCTIONS = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}
PLACES = {"argmax": np.argmax, "argmin": np.argmin}


def normal(shape: Any, seed: int = 0) -> Any:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape), np.float32)


def function(name: str) -> Callable[..., Any]:
    return getattr(dlprim, f"reduce_{name}")


def choices(shape: tuple[int, ...]) -> list[Any]:
    """Of axes: all, each by itself from both ends, and every set of them."""
    ndim = len(shape)
    sets = [each for count in range(ndim + 1) for each in combinations(range(ndim), count)]
    return [None, *range(-ndim, ndim), *sets]


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("shape", SHAPES + LONG)
def test_values_along_all_axes(name: str, shape: tuple[int, ...]) -> None:
    x = normal(shape)
    exact = x.astype(np.float64)
    for axis in choices(shape):
        for keepdims in (False, True):
            expected = np.asarray(REDUCTIONS[name](exact, axis=axis, keepdims=keepdims))
            found = function(name)(x, axis, keepdims)
            assert type(found) is np.ndarray
            assert (found.shape, found.dtype) == (expected.shape, x.dtype)
            if name in ("max", "min"):
                np.testing.assert_array_equal(found, expected)
            else:  # of what all elements' sizes add up to
                scale = np.asarray(REDUCTIONS[name](np.abs(exact), axis=axis, keepdims=keepdims))
                assert (np.abs(found - expected) <= 5e-7 * scale).all()


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("shape", SHAPES + LONG)
def test_places_along_all_axes(name: str, shape: tuple[int, ...]) -> None:
    x = normal(shape)
    ties = np.asarray(np.round(x))
    holes = ties.copy()
    if x.size > 4:
        holes.flat[[x.size // 2, x.size - 1]] = np.nan
    for array in (x, ties, holes):
        for axis in [None, *range(-len(shape), len(shape))]:
            for keepdims in (False, True):
                expected = np.asarray(PLACES[name](array, axis=axis, keepdims=keepdims))
                found = getattr(dlprim, name)(array, axis, keepdims)
                assert found.dtype == np.int64
                np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.parametrize("shape", [*SHAPES, (1000, 40), (3, 200_000)])
def test_bfloat16_is_float32_rounded_once(shape: tuple[int, ...]) -> None:
    half = dlprim.to_bfloat16(normal(shape))
    exact = dlprim.to_float32(half)
    for axis in choices(shape):
        for name in REDUCTIONS:
            found = function(name)(half, axis)
            assert found.dtype == half.dtype
            if name in ("max", "min"):
                np.testing.assert_array_equal(bits_of(found), rounded(function(name)(exact, axis)))
            else:  # programs of the two may add up in another order
                expected = function(name)(exact, axis)
                size = function(name)(np.abs(exact), axis)
                bound = 2**-8 * np.abs(expected) + 1e-6 * size
                assert (np.abs(dlprim.to_float32(found) - expected) <= bound).all()
            bits = function(name)(bits_of(half), axis, dtype="bfloat16")
            assert bits.dtype == np.uint16
            np.testing.assert_array_equal(bits, bits_of(found))
    for name in PLACES:
        same = getattr(dlprim, name)
        np.testing.assert_array_equal(same(half), same(exact))
        np.testing.assert_array_equal(same(bits_of(half), dtype="bfloat16"), same(exact))


def test_sums_lose_little() -> None:
    """Where adding up one after the other loses four digits."""
    x = np.random.default_rng(0).random((400_000, 2)).astype(np.float32)
    exact = x.sum(0, np.float64)
    np.testing.assert_allclose(dlprim.reduce_sum(x, 0), exact, rtol=5e-7)
    np.testing.assert_allclose(dlprim.reduce_sum(x.T.copy(), 1), exact, rtol=5e-7)
    np.testing.assert_allclose(dlprim.reduce_sum(x), exact.sum(), rtol=5e-7)
    np.testing.assert_allclose(dlprim.reduce_mean(x), exact.sum() / x.size, rtol=5e-7)


@pytest.mark.parametrize("shape", [(6, 40), (200_000, 6), (6, 200_000), (3, 6, 50, 100)])
def test_what_is_not_finite(shape: tuple[int, ...]) -> None:
    x = normal(shape)
    flat = x.reshape(-1)
    flat[[7, x.size // 3]] = np.nan
    flat[x.size // 2], flat[-5] = np.inf, -np.inf
    for axis in [None, *range(len(shape))]:
        for name in ("max", "min"):
            with np.errstate(invalid="ignore"):
                expected = REDUCTIONS[name](x, axis=axis)
            np.testing.assert_array_equal(function(name)(x, axis), expected)
        for name in ("sum", "mean"):
            with np.errstate(invalid="ignore"):
                expected = np.asarray(REDUCTIONS[name](x.astype(np.float64), axis=axis))
            found = function(name)(x, axis)
            np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
            np.testing.assert_array_equal(np.isposinf(found), np.isposinf(expected))
        for name in PLACES:
            np.testing.assert_array_equal(getattr(dlprim, name)(x, axis), PLACES[name](x, axis))
    lowest = np.full((3, 20), -np.inf, np.float32)
    assert dlprim.argmax(lowest, 1).tolist() == dlprim.argmin(lowest, 1).tolist() == [0, 0, 0]
    assert dlprim.reduce_max(lowest) == -np.inf
    lowest[1] = np.nan
    assert dlprim.argmax(lowest, -1).tolist() == [0, 0, 0]
    assert np.isnan(dlprim.reduce_max(lowest, 1)).tolist() == [False, True, False]


def test_nothing_to_add() -> None:
    for shape, axis, left in [((0, 3), 0, (3,)), ((3, 0), 1, (3,)), ((0,), None, ())]:
        x = np.zeros(shape, np.float32)
        assert dlprim.reduce_sum(x, axis).tolist() == np.zeros(left).tolist()
        assert np.isnan(dlprim.reduce_mean(x, axis)).all()
        assert dlprim.reduce_sum(x, axis, True).ndim == x.ndim
        for name in ("reduce_max", "reduce_min", "argmax", "argmin"):
            with pytest.raises(ValueError, match=r"^x has shape .*, expected an element or more"):
                getattr(dlprim, name)(x, axis)
    x = np.zeros((0, 3), np.float32)
    for name in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "argmax", "argmin"):
        assert getattr(dlprim, name)(x, 1).shape == (0,)


def test_out_and_views() -> None:
    x = normal((6, 7, 8))
    view = np.asfortranarray(x)
    for name in ("reduce_sum", "reduce_mean", "reduce_max", "argmin"):
        call = getattr(dlprim, name)
        expected = call(x, 1)
        np.testing.assert_array_equal(call(view, 1), expected)
        out = np.empty_like(expected)
        assert call(x, 1, out=out) is out
        np.testing.assert_array_equal(out, expected)
    before = x.copy()
    found = dlprim.reduce_sum(x, ())
    found += 1
    np.testing.assert_array_equal(x, before)


def test_threads_do_not_change_a_bit() -> None:
    arrays = [normal(it) for it in ((3000, 100), (2, 300_000), (20, 60, 100))]
    results: list[list[Any]] = []
    for threads in (1, 2):
        with dlprim.threads(threads):
            results.append(
                [
                    call(x, axis)
                    for x in arrays
                    for axis in (0, 1, None)
                    for call in (dlprim.reduce_sum, dlprim.reduce_max, dlprim.argmax)
                ]
            )
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: dlprim.reduce_sum(x, 2), "axis is 2, expected an integer of at least -2 and be"),
        (lambda x: dlprim.reduce_max(x, (0, -3)), r"axis\[1\] is -3, expected an integer of at le"),
        (lambda x: dlprim.reduce_sum(x, (0, -2)), r"axis is \(0, -2\), expected each axis once"),
        (lambda x: dlprim.reduce_mean(x, 0.5), r"axis is 0\.5, expected an integer"),
        (lambda x: dlprim.reduce_mean(x, True), "axis is True, expected an integer"),
        (lambda x: dlprim.reduce_min(x, 0, 1), "keepdims is 1, expected True or False"),
        (lambda x: dlprim.argmax(x, (0, 1)), r"axis is \(0, 1\), expected an integer or None"),
        (lambda x: dlprim.argmin(x, -3), "axis is -3, expected an integer of at least -2"),
        (lambda x: dlprim.reduce_sum(x.astype(int)), "x has dtype int64, expected float32 or bfl"),
        (lambda x: dlprim.reduce_sum(x, 1, out=x[0]), r"out has shape \(8,\), expected \(4,\)"),
        (lambda x: dlprim.reduce_sum(x, 0, out=x[0]), "out shares memory with x, expected a sepa"),
        (
            lambda x: dlprim.argmax(x, 1, out=np.zeros(4, np.int32)),
            "out has dtype int32, expected int64",
        ),
        (
            lambda x: dlprim.reduce_max(x, 0, True, np.empty((1, 8), np.float32)),
            "reduce_max.. takes from 1 to 3 positional",
        ),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        call(normal((4, 8)))


def test_names_of_python_stay_as_they_are() -> None:
    assert {"sum", "max", "min", "all", "any"}.isdisjoint(dlprim.__all__)
