"""softmax, log_softmax and their gradients: against float64, any axis, both dtypes, in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlprim
import row_reference as reference
from bfloat16 import bits_of, rounded

pytestmark = pytest.mark.every_level

NAMES = ["softmax", "log_softmax"]
SHAPES = [(4, 8), (1, 1), (3, 5), (7, 64), (2, 3, 33), (130, 1000), (2, 20000), (2, 70, 100), (5,)]


def normal(shape: Any, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def exact(name: str, x: Any, dy: Any, axis: int) -> tuple[Any, Any]:
    """The result and the gradient."""
    x, dy = x.astype(np.float64), dy.astype(np.float64)
    backward = getattr(reference, f"{name}_backward")
    return getattr(reference, name)(x, axis), backward(dy, x, axis)


def pair(name: str) -> tuple[Any, Any]:
    return getattr(dlprim, name), getattr(dlprim, f"{name}_backward")


def places(shape: tuple[int, ...]) -> range:
    return range(-len(shape), len(shape))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_along_every_axis(name: str, shape: tuple[int, ...]) -> None:
    value, backward = pair(name)
    x, dy = 3 * normal(shape), normal(shape, 1)
    for axis in places(shape):
        expected, gradient = exact(name, x, dy, axis)
        y = value(x, axis)
        assert y.flags.c_contiguous
        np.testing.assert_allclose(y, expected, rtol=5e-6, atol=1e-6)
        found = backward(dy, y, axis)
        largest = max(1, np.abs(gradient).max())
        np.testing.assert_allclose(found, gradient, rtol=1e-5, atol=1e-5 * largest)
    np.testing.assert_array_equal(value(x), value(x, axis=-1))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(4, 8), (2, 70, 100), (2, 3, 33)])
def test_bfloat16_is_float32_rounded_once(name: str, shape: tuple[int, ...]) -> None:
    value, backward = pair(name)
    x, dy = dlprim.to_bfloat16(3 * normal(shape)), dlprim.to_bfloat16(normal(shape, 1))
    for axis in places(shape):
        y = value(x, axis)
        assert y.dtype == x.dtype
        exact_y = value(dlprim.to_float32(x), axis)
        np.testing.assert_array_equal(bits_of(y), rounded(exact_y))
        exact_dx = backward(dlprim.to_float32(dy), dlprim.to_float32(y), axis)
        np.testing.assert_array_equal(bits_of(backward(dy, y, axis)), rounded(exact_dx))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_in_place_and_views(name: str, axis: int) -> None:
    value, backward = pair(name)
    x, dy = normal((4, 5, 6)), normal((4, 5, 6), 1)
    y = value(x, axis)
    dx = backward(dy, y, axis)
    for view in (np.asfortranarray(x), np.repeat(x, 2, 2)[:, :, ::2]):
        np.testing.assert_array_equal(value(view, axis), y)
    out = np.empty_like(x)
    assert value(x, axis, out=out) is out
    np.testing.assert_array_equal(out, y)
    assert value(x, axis, out=x) is x
    np.testing.assert_array_equal(x, y)
    for place in range(2):
        operands = [dy.copy(), y.copy()]
        assert backward(*operands, axis, out=operands[place]) is operands[place]
        np.testing.assert_array_equal(operands[place], dx)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_and_a_single_number(name: str) -> None:
    value, backward = pair(name)
    for shape in [(0,), (0, 4), (4, 0), (3, 0, 2)]:
        empty = normal(shape)
        for axis in places(shape):
            assert value(empty, axis).shape == shape
            assert backward(empty, empty, axis).shape == shape
    one = np.float32(3).reshape(())
    assert value(one, 0).shape == ()
    assert value(one) == (1 if name == "softmax" else 0)


def test_what_is_not_finite() -> None:
    x = np.zeros((6, 20), np.float32)
    x[0, 3] = -np.inf
    x[1] = -np.inf
    x[2, 5], x[3, 19] = np.inf, np.nan
    x[4] = 3e38
    y, logs = dlprim.softmax(x), dlprim.log_softmax(x)
    assert y[0, 3] == 0
    assert logs[0, 3] == -np.inf
    np.testing.assert_allclose(y[0, 4:], 1 / 19, rtol=1e-6)
    assert np.isnan(y[1:4]).all()
    assert np.isnan(logs[1:4]).all()
    np.testing.assert_allclose(y[4:], 1 / 20, rtol=1e-6)


def test_far_from_zero_and_far_apart() -> None:
    x = np.array([[1000, 999, 0], [-1000, -1001, -2000]], np.float32)
    expected = reference.softmax(x.astype(np.float64))
    np.testing.assert_allclose(dlprim.softmax(x), expected, rtol=1e-6)
    logs = dlprim.log_softmax(x)
    np.testing.assert_allclose(logs, reference.log_softmax(x.astype(np.float64)), rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_threads_do_not_change_a_bit(name: str) -> None:
    value, backward = pair(name)
    x = normal((700, 333))
    found = []
    for threads in (1, 2):
        with dlprim.threads(threads):
            y = value(x)
            found.append((y, backward(x, y), value(x, 0)))
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: dlprim.softmax(x, 2), "axis is 2, expected an integer of at least -2 and below"),
        (lambda x: dlprim.softmax(x, -3), "axis is -3, expected an integer of at least -2"),
        (lambda x: dlprim.softmax(x, None), "axis is None, expected an integer"),
        (lambda x: dlprim.softmax(x, True), "axis is True, expected an integer"),
        (lambda x: dlprim.softmax(x, -1.0), r"axis is -1\.0, expected an integer"),
        (lambda x: dlprim.softmax(x.astype(int)), "x has dtype int64, expected float32 or bfloa"),
        (lambda x: dlprim.softmax_backward(x, x[:2]), r"y has shape \(2, 8\), expected \(4, 8\)"),
        (
            lambda x: dlprim.log_softmax_backward(x, dlprim.to_bfloat16(x)),
            "y has dtype .*, expected float32 as dy has",
        ),
        (lambda x: dlprim.log_softmax(x, out=x.T), r"out has shape \(8, 4\), expected \(4, 8\)"),
        (
            lambda x: dlprim.softmax(x[:2], 0, out=x.reshape(-1)[8:24].reshape(2, 8)),
            "out shares memory with a part of x, expected x itself or a separate array",
        ),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        call(normal((4, 8)))


@pytest.mark.parametrize("name", NAMES)
def test_against_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    value, backward = pair(name)
    x, dy = normal((3, 4, 50)), normal((3, 4, 50), 1)
    for axis in range(3):
        leaf = torch.from_numpy(x).double().requires_grad_()
        result = getattr(torch.nn.functional, name)(leaf, axis)
        result.backward(torch.from_numpy(dy).double())
        y = value(x, axis)
        np.testing.assert_allclose(y, result.detach().numpy(), rtol=5e-6, atol=1e-6)
        np.testing.assert_allclose(backward(dy, y, axis), leaf.grad.numpy(), rtol=1e-5, atol=1e-5)
