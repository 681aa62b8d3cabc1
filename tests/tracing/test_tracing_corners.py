"""Corners of gradients and norms in traced functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlprim
from drawing import RNG

pytestmark = pytest.mark.any_level


@pytest.mark.parametrize("given", [{}, {"weight"}, {"bias"}, {"weight", "bias"}])
def test_norms_of_groups_without_parameters(given: set[str]) -> None:
    x = RNG.standard_normal((2, 4, 6)).astype(np.float32)
    parameters: dict[str, Any] = {name: np.arange(4, dtype=np.float32) for name in given}

    def groups(x: Any) -> Any:
        return dlprim.group_norm(x, 2, **parameters)

    def channels(x: Any) -> Any:
        return dlprim.instance_norm(x, **parameters)

    for function in (groups, channels):
        np.testing.assert_allclose(dlprim.compile(function)(x), function(x), atol=1e-5)
        assert dlprim.grad(lambda x, f=function: np.sum(f(x) * x))(x).shape == x.shape


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
@pytest.mark.parametrize("lead", [(), (2,), (1, 2), (3, 1, 2)])
@pytest.mark.parametrize("sizes", [(0, 5, 8, 4), (3, 0, 8, 4), (3, 5, 8, 0), (0, 0, 8, 0)])
def test_attention_of_nothing(
    sizes: tuple[int, int, int, int], lead: tuple[int, ...], dtype: str | None
) -> None:
    """No queries, no keys, or values of no elements: gradients are zeros."""
    queries, keys, depth, width = sizes
    shapes = [(*lead, *it) for it in ((queries, depth), (keys, depth), (keys, width))]
    q, k, v = (np.ones(it, np.float32) for it in shapes)
    found = dlprim.compile(dlprim.attention)(q, k, v)
    np.testing.assert_array_equal(found, np.zeros((*lead, queries, width)))
    slope = dlprim.grad(lambda *it: np.sum(dlprim.attention(*it)), wrt=(0, 1, 2), dtype=dtype)
    eager = dlprim.attention_backward(np.ones_like(found), q, k, v)
    for ours, right in zip(slope(q, k, v), eager, strict=True):
        np.testing.assert_array_equal(ours, right)


def test_a_polynomial_begins_with_a_power_of_zero() -> None:
    x = np.array([1, 2, 3], np.float32)
    gradient = dlprim.grad(lambda x: np.sum(sum(c * x**k for k, c in enumerate((1.0, 2.0, 3.0)))))
    np.testing.assert_allclose(gradient(x), 2 + 6 * x, rtol=1e-6)


def test_what_is_not_above_zero_has_no_gradient() -> None:
    x = np.array([0, 1, -1], np.float32)
    for function in (lambda x: np.maximum(x, 0), lambda x: np.maximum(0.0, x), dlprim.relu):
        np.testing.assert_array_equal(dlprim.grad(lambda x, f=function: np.sum(f(x)))(x), [0, 1, 0])


def test_gradients_of_gates_at_infinity_are_their_limits() -> None:
    x = np.array([-np.inf, np.inf, -200, 200, -1e30, 1e30], np.float32)
    gates = (
        dlprim.silu,
        dlprim.mish,
        dlprim.gelu,
        lambda x: dlprim.gelu(x, approximate="tanh"),
        dlprim.hardswish,
    )
    for gate in gates:
        slopes = dlprim.grad(lambda x, gate=gate: np.sum(gate(x)))(x)
        np.testing.assert_array_equal(np.abs(slopes), [0, 1, 0, 1, 0, 1])


def test_variances_of_integers_far_from_zero() -> None:
    near = RNG.integers(-100, 100, (4, 50))
    for dtype, far in (
        ("int8", 0), ("uint8", 128), ("int32", 2**31 - 200), ("int32", -(2**31) + 200),
        ("int64", 2**62), ("int64", -(2**62)), ("uint64", 2**63), ("uint32", 2**32 - 200),
    ):  # fmt: skip
        x = near.astype(dtype) + np.array(far).astype(dtype)
        for axis, ddof in ((None, 0), (1, 1), (0, 0)):
            due = near.var(axis=axis, ddof=ddof)
            found = dlprim.compile(lambda x, how=(axis, ddof): np.var(x, axis=how[0], ddof=how[1]))
            np.testing.assert_allclose(found(x), due, rtol=1e-5)
    ends = np.array([-(2**63), 2**63 - 1])
    np.testing.assert_allclose(dlprim.compile(np.std)(ends), 2.0**63, rtol=1e-6)


COMPARISONS = (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)


@pytest.mark.parametrize("ufunc", COMPARISONS, ids=lambda it: it.__name__)
def test_integers_of_both_signs_are_compared_exactly(ufunc: np.ufunc) -> None:
    unsigned = np.array([0, 1, 2**53, 2**53 + 1, 2**63, 2**64 - 1], np.uint64)[:, None]
    signed = np.array([-(2**63), -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 1])
    both = dlprim.compile(ufunc)
    np.testing.assert_array_equal(both(unsigned, signed), ufunc(unsigned, signed))
    np.testing.assert_array_equal(both(signed, unsigned), ufunc(signed, unsigned))
    small = np.array([-128, -1, 0, 127], np.int8)
    np.testing.assert_array_equal(both(small, unsigned), ufunc(small, unsigned))
    held = dlprim.compile(lambda x: (ufunc(x, signed), ufunc(signed, x)))
    one, other = held(unsigned)
    np.testing.assert_array_equal(one, ufunc(unsigned, signed))
    np.testing.assert_array_equal(other, ufunc(signed, unsigned))


@pytest.mark.parametrize("ufunc", COMPARISONS, ids=lambda it: it.__name__)
def test_integers_are_compared_with_numbers_outside_of_their_type(ufunc: np.ufunc) -> None:
    for dtype, numbers in (("uint8", (-1, 256, 7)), ("uint64", (-1, 2**64, 7)), ("int8", (300,))):
        x = np.array([0, 7, np.iinfo(dtype).max], dtype)
        for known in numbers:
            made = dlprim.compile(lambda x, known=known: (ufunc(x, known), ufunc(known, x)))(x)
            np.testing.assert_array_equal(made[0], ufunc(x, known))
            np.testing.assert_array_equal(made[1], ufunc(known, x))


def test_a_gradient_at_known_arrays_of_a_function_of_traced_ones() -> None:
    x, known = (RNG.standard_normal(3).astype(np.float32) for _ in range(2))

    def slope(x: Any) -> Any:
        """Of a cube of x, at an array that does not follow from x."""
        return dlprim.grad(lambda w: np.sum(w * w * x**3))(known)

    np.testing.assert_allclose(dlprim.compile(slope)(x), 2 * known * x**3, rtol=1e-5)
    found = dlprim.grad(lambda x: np.sum(slope(x)))(x)
    np.testing.assert_allclose(found, 6 * known * x**2, rtol=1e-5)

    def thrice(x: Any) -> Any:
        def middle(y: Any) -> Any:
            return dlprim.grad(lambda z: np.sum(z * z * x * y))(known)[0]

        return np.sum(dlprim.grad(middle)(known) * x)

    due = np.zeros(3, np.float32)
    due[0] = 4 * known[0] * x[0]  # of 2 z x y by y, times x
    np.testing.assert_allclose(dlprim.grad(thrice)(x), due, rtol=1e-5)
    inner = dlprim.compile(lambda w: w * x0[0])
    x0: list[Any] = [None]

    def calls(x: Any) -> Any:
        x0[0] = x
        return inner(known)

    np.testing.assert_allclose(dlprim.compile(calls)(x), known * x, rtol=1e-6)


def test_gradients_of_gradients_that_are_constants() -> None:
    def twice(function: Any) -> Any:
        return dlprim.grad(lambda x: dlprim.grad(function)(x) * 1.0)

    for function, due in ((lambda x: 3.0 * x, 0.0), (lambda x: x * x, 2.0), (lambda x: x, 0.0)):
        assert twice(function)(np.float32(2)) == due
        again = dlprim.grad(lambda x, f=function: dlprim.grad(f)(x))
        assert again(np.float32(2)) == due
