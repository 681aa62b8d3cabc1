"""What functions write into, and whether others see it: constants, copies, arguments, results."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim

F = np.float32
X = F([1, 2, 3])


# ---------------------------------------------------------------- constants


def one_hot_sums(x: Any) -> Any:
    e, total = np.zeros(3, F), x * 0
    for k in range(3):
        e[:] = 0
        e[k] = 1
        total = total + np.sum(x * e) * e * (k + 1)
    return total


def counted(x: Any) -> Any:
    t, out = np.zeros(()), x
    for _ in range(3):
        out = out + t
        t += 1
    return out


def listed(x: Any) -> Any:
    row = [0.0, 0.0, 0.0]
    first = x + row
    row[1] = float("nan")
    return first, x + row, x + row


@pytest.mark.parametrize("function", [one_hot_sums, counted, listed])
def test_arrays_that_change_meanwhile_are_constants_as_they_were(
    function: Callable[..., Any],
) -> None:
    np.testing.assert_array_equal(dlprim.compile(function)(X), function(X))


def test_arrays_that_stay_are_one_constant() -> None:
    table = np.full((50, 50), 2, F)
    twice = dlprim.compile(lambda x: x @ table @ table)
    call = twice._call((np.ones((1, 50), F),), {})
    assert len(twice._made(call, [(1, 50)])[0].graph.constants) == 1


# ---------------------------------------------------------------- dicts in another order


def test_calls_with_keys_in_another_order_see_it() -> None:
    first = dlprim.compile(lambda p, **more: next(iter((p | more).values())) * 1)
    one, other = F([1]), F([2])
    for _ in range(2):
        assert first({"a": one, "b": other}) == 1
        assert first({"b": other, "a": one}) == 2
        assert first({}, a=one, b=other) == 1
        assert first({}, b=other, a=one) == 2
    assert first({"a": other, "b": one}) == 2


# ---------------------------------------------------------------- integers


def test_sums_of_unsigned_integers_have_64_bits() -> None:
    def sums(x: Any) -> Any:
        table = x.reshape(2, 2)
        return (
            np.sum(x), np.prod(x), np.cumsum(x), table.cumprod(1), np.trace(table),
            np.add.reduce(table), np.multiply.accumulate(x),
        )  # fmt: skip

    x = np.uint8([1, 200, 250, 103])
    for made, expected in zip(dlprim.compile(sums)(x), sums(x), strict=True):
        assert made.dtype == expected.dtype == np.uint64
        np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("axis", [None, 0])
def test_averages_of_integers_are_floats(axis: int | None) -> None:
    x = np.uint8([[200, 100], [250, 3]])
    made = dlprim.compile(lambda x: np.average(x, axis, weights=x))(x)
    assert made.dtype == F
    np.testing.assert_allclose(made, np.average(x, axis, weights=x), rtol=1e-6)


# ---------------------------------------------------------------- results


def test_copies_are_results_of_their_own() -> None:
    def copies(p: Any) -> Any:
        q = p * 2
        return p, p.copy(), q, [q.copy(), +q], q

    made = dlprim.compile(copies)(X)
    arrays = [*made[:3], *made[3], X]
    assert made[4] is made[2]
    for place, it in enumerate(arrays):
        np.testing.assert_array_equal(it, X if place in (0, 1, 5) else X * 2)
        assert not any(np.shares_memory(it, other) for other in arrays[:place])


def test_gradients_go_through_copies() -> None:
    _, back = dlprim.vjp(lambda p: (p * 2, p, p.copy(), p * 2), X)
    made = back(tuple(np.full(3, n, F) for n in (1, 10, 100, 1000)))[0]
    np.testing.assert_array_equal(made, np.full(3, 2 + 10 + 100 + 2000, F))


# ---------------------------------------------------------------- masks


@pytest.mark.parametrize(
    ("shape", "key"),
    [
        ((7,), [True, False, True]),
        ((2, 3), np.ones((1, 2), bool)),
        ((2, 3), (slice(None), np.ones(2, bool))),
        ((2, 3, 4), (..., None, np.ones((3, 3), bool))),
        ((2, 3, 4), (..., np.zeros(2, bool), 0)),
    ],
)
def test_masks_of_other_lengths_are_refused(shape: tuple[int, ...], key: Any) -> None:
    x = np.ones(shape, F)
    with pytest.raises(IndexError):
        x[key]
    with pytest.raises(IndexError, match="a mask has"):
        dlprim.compile(lambda x: x[key])(x)


def test_masks_behind_an_ellipsis() -> None:
    x = np.arange(24, dtype=F).reshape(2, 3, 4)
    mask = x[0] > 5
    made = dlprim.compile(lambda x: (x[..., mask], x[None, :, mask], x[..., mask[:, 0], 1]))(x)
    for one, expected in zip(
        made, (x[..., mask], x[None, :, mask], x[..., mask[:, 0], 1]), strict=True
    ):
        np.testing.assert_array_equal(one, expected)


# ---------------------------------------------------------------- writes in place


def added(y: Any, other: Any) -> Any:
    y += other
    return y


@pytest.mark.parametrize(
    ("dtype", "other"),
    [(bool, 1), (np.uint8, np.int8(1)), (np.int64, 0.5), (np.int64, np.uint64([1])), (bool, X)],
)
def test_writes_that_numpy_refuses_are_refused(dtype: Any, other: Any) -> None:
    x = np.ones(3, dtype)
    with pytest.raises(TypeError):
        added(x.copy(), other)
    with pytest.raises(TypeError, match="writes"):
        dlprim.compile(lambda x: added(x.copy(), other))(x)


@pytest.mark.parametrize(
    ("dtype", "other"), [(np.uint8, 1), (np.int8, np.int32([7])), (F, np.int64([7])), (F, 0.5)]
)
def test_writes_that_numpy_takes(dtype: Any, other: Any) -> None:
    x = np.ones(3, dtype)
    made = dlprim.compile(lambda x: added(x.copy(), other))(x)
    assert made.dtype == dtype
    np.testing.assert_array_equal(made, added(x.copy(), other))


@pytest.mark.parametrize(
    "itself",
    [
        lambda x: x.astype(F, copy=False),
        lambda x: x.astype("float32", "K", "unsafe", True, False),
        lambda x: np.nan_to_num(x, copy=False),
    ],
)
def test_what_numpy_does_not_copy_is_the_same_array(itself: Callable[..., Any]) -> None:
    def written(x: Any) -> Any:
        x = x / F([0, 1, 2])
        y = itself(x)
        y += 1
        return x * 1

    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(dlprim.compile(written)(X), written(X))
    with pytest.raises(dlprim.tracing.TraceError, match="argument x"):
        dlprim.compile(lambda x: added(itself(x), 1))(X)


def test_what_numpy_copies_is_another_array() -> None:
    def written(x: Any) -> Any:
        x = x * 2
        for y in (x.astype(F), x.astype(np.float64, copy=False), np.nan_to_num(x)):
            y += 1
        return x * 1

    np.testing.assert_array_equal(dlprim.compile(written)(X), X * 2)


def test_an_inner_gradient_does_not_write_into_arrays_of_the_outer_function() -> None:
    inner = dlprim.grad(lambda y: np.sum(added(y, 1) ** 2))

    def outer(x: Any) -> Any:
        z = x * 2
        return inner(z) + z

    with pytest.raises(dlprim.tracing.TraceError, match="argument y"):
        dlprim.compile(outer)(X)


# ---------------------------------------------------------------- vjp


@pytest.mark.parametrize("dtype", [None, "float32"])
def test_vjp_does_not_keep_functions_alive(dtype: Any) -> None:
    traces = []

    def made() -> Any:
        captured = np.ones(3, F)

        def function(x: Any) -> Any:
            traces.append(x)
            return x * captured

        return function

    function = made()
    _, back = dlprim.vjp(function, X, dtype=dtype)
    dlprim.vjp(function, X, dtype=dtype)
    assert len(traces) == 1
    compiled = dlprim.compile(function)
    for _ in range(2):
        dlprim.vjp(compiled, X, dtype=dtype)
    assert len(traces) == 2
    held = [weakref.ref(function), weakref.ref(compiled)]
    del function, compiled
    gc.collect()
    assert [it() for it in held] == [None, None]
    np.testing.assert_array_equal(back(X)[0], X)
