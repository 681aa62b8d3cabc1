"""group_norm, instance_norm and their gradients: against float64, dtypes, in place, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlprim
import row_reference as reference
from bfloat16 import bits_of, rounded
from dlprim.arguments.floats import bfloat16_dtype

pytestmark = pytest.mark.every_level

# Of x, and how many groups; as many as channels are those of instance_norm.
CASES = [((2, 4, 3, 5), 2), ((1, 6, 7), 3), ((3, 8), 2), ((2, 6, 4, 4), 1), ((2, 6, 5, 5), 6),
         ((4, 3, 1, 33), 3), ((2, 64, 20, 21), 32), ((70, 12, 3), 4), ((1, 2, 150, 150), 1),
         ((1, 1, 9), 1), ((2, 4, 3, 2, 5), 2)]  # fmt: skip


def normal(shape: Any, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def operands(shape: tuple[int, ...]) -> tuple[Any, Any, Any, Any]:
    """x, dy, weight and bias."""
    x = 2 * normal(shape) + np.float32(0.5)
    return x, normal(shape, 1), normal(shape[1], 2), normal(shape[1], 3)


def close(found: Any, expected: Any, bound: float = 1e-5) -> None:
    assert found.shape == expected.shape
    largest = max(1, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(found, expected, rtol=bound, atol=bound * largest)


def near(found: Any, expected: Any) -> None:
    """bfloat16 of float32 numbers whose last bits depend on how many are added up at a time."""
    assert found.dtype == bfloat16_dtype()
    np.testing.assert_allclose(dlprim.to_float32(found), expected, rtol=2**-8, atol=1e-5)


@pytest.mark.parametrize(("shape", "groups"), CASES)
@pytest.mark.parametrize("eps", [1e-5, 0.5])
def test_values_and_gradients(shape: tuple[int, ...], groups: int, eps: float) -> None:
    x, dy, weight, bias = operands(shape)
    a, b, w = x.astype(np.float64), dy.astype(np.float64), weight.astype(np.float64)
    y = dlprim.group_norm(x, groups, weight, bias, eps)
    close(y, reference.group_norm(a, groups, w, bias, eps))
    found = dlprim.group_norm_backward(dy, x, groups, weight, eps)
    expected = reference.group_norm_backward(b, a, groups, w, eps)
    for one, other in zip(found, expected, strict=True):
        close(one, other, 3e-5)
    if groups == shape[1]:
        np.testing.assert_array_equal(dlprim.instance_norm(x, weight, bias, eps), y)
        same = dlprim.instance_norm_backward(dy, x, weight, eps)
        for one, other in zip(same, found, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("groups", [2, 4])
def test_gradients_are_those_of_differences(groups: int) -> None:
    x, dy, weight, bias = operands((2, 4, 3, 3))
    a, b, w = x.astype(np.float64), dy.astype(np.float64), weight.astype(np.float64)

    def loss(x: Any, weight: Any, bias: Any) -> Any:
        return (reference.group_norm(x, groups, weight, bias) * b).sum()

    given = [a, w, bias.astype(np.float64)]
    found = dlprim.group_norm_backward(dy, x, groups, weight)
    for place, gradient in enumerate(found):
        for index in np.ndindex(gradient.shape):
            step = np.zeros(gradient.shape)
            step[index] = 1e-6
            high, low = (
                loss(*(it + sign * step if at == place else it for at, it in enumerate(given)))
                for sign in (1, -1)
            )
            assert gradient[index] == pytest.approx((high - low) / 2e-6, rel=1e-3, abs=1e-4)


def test_parameters_that_are_not_there() -> None:
    x, dy, weight, bias = operands((3, 6, 10))
    ones, zeros = np.ones(6, np.float32), np.zeros(6, np.float32)
    same = np.testing.assert_array_equal
    for groups in (2, 6):
        same(dlprim.group_norm(x, groups), dlprim.group_norm(x, groups, ones, zeros))
        same(dlprim.group_norm(x, groups, weight), dlprim.group_norm(x, groups, weight, zeros))
        same(dlprim.group_norm(x, groups, None, bias), dlprim.group_norm(x, groups, ones, bias))
        without = dlprim.group_norm_backward(dy, x, groups)
        for one, other in zip(
            without, dlprim.group_norm_backward(dy, x, groups, ones), strict=True
        ):
            same(one, other)


@pytest.mark.parametrize(("shape", "groups"), CASES[:7])
def test_bfloat16_is_float32_rounded_once(shape: tuple[int, ...], groups: int) -> None:
    x, dy, weight, bias = operands(shape)
    half, half_dy = dlprim.to_bfloat16(x), dlprim.to_bfloat16(dy)
    x, dy = dlprim.to_float32(half), dlprim.to_float32(half_dy)
    rough = dlprim.to_bfloat16(weight)
    for w, same in ((weight, weight), (rough, dlprim.to_float32(rough))):
        near(dlprim.group_norm(half, groups, w, bias), dlprim.group_norm(x, groups, same, bias))
        gradients = dlprim.group_norm_backward(half_dy, half, groups, w)
        exact = dlprim.group_norm_backward(dy, x, groups, same)
        near(gradients.dx, exact.dx)
        for one, other in zip(gradients[1:], exact[1:], strict=True):
            assert one.dtype == np.float32
            close(one, other)
    bits = dlprim.group_norm(bits_of(half), groups, weight, dtype="bfloat16")
    assert bits.dtype == np.uint16
    np.testing.assert_array_equal(bits, bits_of(dlprim.group_norm(half, groups, weight)))


@pytest.mark.parametrize("groups", [3, 6])
def test_in_place_and_views(groups: int) -> None:
    x, dy, weight, bias = operands((5, 6, 7, 8))
    same = np.testing.assert_array_equal
    y = dlprim.group_norm(x, groups, weight, bias)
    view = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    same(dlprim.group_norm(view, groups, np.repeat(weight, 2)[::2], bias), y)
    expected = dlprim.group_norm_backward(dy, x, groups, weight)
    for place in range(2):
        pair = [dy.copy(), x.copy()]
        found = dlprim.group_norm_backward(*pair, groups, weight, out=pair[place])
        assert found.dx is pair[place]
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    assert dlprim.group_norm(x, groups, weight, bias, out=x) is x
    same(x, y)


def test_empty_arrays() -> None:
    for shape in [(0, 4, 3), (3, 4, 0), (2, 0, 3), (0, 4)]:
        x = normal(shape)
        assert dlprim.group_norm(x, 2).shape == dlprim.instance_norm(x).shape == shape
        for found in (dlprim.group_norm_backward(x, x, 2), dlprim.instance_norm_backward(x, x)):
            assert (found.dx.shape, found.dw.shape) == (shape, shape[1:2])
            assert not found.dw.any()
            assert not found.db.any()


def test_far_mean_single_elements_and_what_is_not_finite() -> None:
    x = normal((3, 4, 10, 10)) + np.float32(1000)
    for groups in (2, 4):
        expected = reference.group_norm(x.astype(np.float64), groups)
        close(dlprim.group_norm(x, groups), expected, 2e-4)
    bias = normal(4)
    np.testing.assert_array_equal(dlprim.instance_norm(x[:, :, :1, 0], None, bias)[1, :, 0], bias)
    x = normal((2, 4, 5))
    x[0, 1, 3], x[1, 2, 0] = np.nan, np.inf
    for groups in (2, 4):
        found = np.isnan(dlprim.group_norm(x, groups)).all(2)
        expected = np.zeros((2, 4), bool)
        expected[0, 1] = expected[1, 2] = True
        if groups == 2:
            expected[0, 0] = expected[1, 3] = True
        np.testing.assert_array_equal(found, expected)
        gradients = dlprim.group_norm_backward(np.ones_like(x), x, groups)
        np.testing.assert_array_equal(np.isnan(gradients.dx).all(2), expected)
    huge = dlprim.group_norm_backward(normal((1, 4, 3)), np.float32(1e30) * normal((1, 4, 3)), 2)
    assert huge.dx.shape == (1, 4, 3)


def test_threads_do_not_change_a_bit() -> None:
    x, dy, weight, bias = operands((20, 24, 30, 31))
    results: list[list[Any]] = []
    for threads in (1, 2):
        with dlprim.threads(threads):
            found: list[Any] = []
            for groups in (6, 24):
                found.append(dlprim.group_norm(x, groups, weight, bias))
                found.extend(dlprim.group_norm_backward(dy, x, groups, weight))
            results.append(found)
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: dlprim.group_norm(x, 3), "num_groups is 3, expected a divisor of C = 4"),
        (lambda x: dlprim.group_norm(x, 0), "num_groups is 0, expected an integer of at least 1"),
        (lambda x: dlprim.group_norm(x, 2.0), r"num_groups is 2\.0, expected an integer"),
        (lambda x: dlprim.group_norm(x, None), "num_groups is None, expected an integer"),
        (
            lambda x: dlprim.group_norm(x, 2, x[0, :, 0][:3]),
            r"weight has shape \(3,\), expected \(4,\) \(C from x\)",
        ),
        (
            lambda x: dlprim.instance_norm(x, None, x[0]),
            r"bias has shape \(4, 6\), expected \(4,\)",
        ),
        (lambda x: dlprim.instance_norm(x[0, 0]), r"x has shape \(6,\), expected \(N, C, \.\.\.\)"),
        (lambda x: dlprim.instance_norm(x, eps=-1), "eps is -1, expected a finite number >= 0"),
        (lambda x: dlprim.group_norm_backward(x, x[:1], 2), r"x has shape \(1, 4, 6\), expected"),
        (lambda x: dlprim.group_norm(x.astype(np.float64), 2), "x has dtype float64, expected fl"),
        (
            lambda x: dlprim.group_norm(x[:2], 2, out=x[1:]),
            "out shares memory with a part of x, expected x itself or a separate array",
        ),
        (
            lambda x: dlprim.group_norm(x[0, :, :4].copy(), 2, x[0, 0, :4], out=x[0, :, :4]),
            r"out has strides \(24, 4\), expected an aligned C-contiguous array",
        ),
        (
            lambda x: dlprim.instance_norm(x[:1] + 1, x[0, 0, :4], out=x[:1]),
            "out shares memory with weight, expected a separate array",
        ),
        (lambda x: dlprim.group_norm(x, 2, None, None, 0.1, x), "group_norm.. takes from 2 to 5"),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    x = normal((3, 4, 6))
    before = x.copy()
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        call(x)
    np.testing.assert_array_equal(x, before)


def test_against_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    functional = torch.nn.functional
    x, dy, weight, bias = operands((4, 6, 5, 7))

    def leaf(array: Any) -> Any:
        return torch.from_numpy(array).double().requires_grad_()

    calls: list[Any] = [lambda *it: functional.group_norm(it[0], 3, *it[1:])]
    calls.append(lambda *it: functional.instance_norm(it[0], None, None, *it[1:]))
    for call, groups in zip(calls, (3, 6), strict=True):
        leaves = leaf(x), leaf(weight), leaf(bias)
        y = call(*leaves)
        y.backward(torch.from_numpy(dy).double())
        close(dlprim.group_norm(x, groups, weight, bias), y.detach().numpy())
        found = dlprim.group_norm_backward(dy, x, groups, weight)
        for one, other in zip(found, leaves, strict=True):
            close(one, other.grad.numpy(), 2e-5)


@pytest.mark.parametrize("value", [1e6, 4e4, 1234567.0, -98765.43, 3.3e7, 1e30, 1e-30, 0.0])
@pytest.mark.parametrize(
    "shape", [(2, 4, 250), (1, 2, 50_001), (3, 6, 7, 11), (1, 4, 1), (2, 2, 3)]
)
def test_groups_of_one_value_are_zero(shape: tuple[int, ...], value: float) -> None:
    x, weight, bias = np.full(shape, value, np.float32), normal(shape[1]), normal(shape[1], 1)
    expected = np.broadcast_to(bias.reshape(-1, *[1] * (len(shape) - 2)), shape)
    for groups in (shape[1] // 2, shape[1]):
        found = dlprim.group_norm(x, groups, weight, bias)
        np.testing.assert_array_equal(found, expected)
        half = dlprim.group_norm(dlprim.to_bfloat16(x), groups, weight, bias)
        np.testing.assert_array_equal(bits_of(half), rounded(expected))
    np.testing.assert_array_equal(dlprim.instance_norm(x, weight, bias), expected)


@pytest.mark.parametrize("value", [1e6, -98765.43, 3.3e7, 1e30])
@pytest.mark.parametrize("shape", [(2, 4, 250), (1, 2, 50_001), (1, 4, 1)])
def test_gradients_of_groups_of_one_value(shape: tuple[int, ...], value: float) -> None:
    x, dy, weight = np.full(shape, value, np.float32), normal(shape), normal(shape[1], 1)
    slope = (dy * weight.reshape(-1, 1)).astype(np.float64)
    for groups in (shape[1] // 2, shape[1]):
        rows = slope.reshape(shape[0], groups, -1)
        dx = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(1e-5)
        found = dlprim.group_norm_backward(dy, x, groups, weight)
        close(found.dx, dx.reshape(shape), 1e-4)
        close(found.db, dy.sum((0, 2)), 1e-4)
        assert not found.dw.any()


def test_groups_far_from_zero_keep_their_deviations() -> None:
    x = 16 * normal((2, 4, 5000)) + np.float32(1e5)
    wide = x.astype(np.float64).reshape(2, 2, -1)
    exact = (wide - wide.mean(-1, keepdims=True)) / wide.std(-1, keepdims=True)
    found = dlprim.group_norm(x, 2, np.ones(4, np.float32), np.zeros(4, np.float32))
    # The mean is a float32, whose last place is 2^-7 here.
    np.testing.assert_allclose(found.reshape(exact.shape), exact, atol=3e-4)
