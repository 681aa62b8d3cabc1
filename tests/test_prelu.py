"""prelu and its gradients: against float64, one slope or one for each channel, in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlprim
import row_reference as reference
from bfloat16 import bits_of, rounded

pytestmark = pytest.mark.every_level

# Of x, and of weight.
CASES = [((2, 3, 4, 5), (3,)), ((2, 3, 4, 5), (1,)), ((7, 33), (33,)), ((7, 33), (1,)),
         ((9,), (1,)), ((), ()), ((4, 5, 6), ()), ((3, 1, 8), (1,)), ((2, 5, 1, 1), (5,)),
         ((70, 40, 30), (40,)), ((3000, 2), (1,)), ((4000,), (1,)), ((200, 3), (3,))]  # fmt: skip


def normal(shape: Any, seed: int = 0) -> Any:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape), np.float32)


def close(found: Any, expected: Any) -> None:
    assert found.shape == np.shape(expected)
    largest = max(1, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * largest)


@pytest.mark.parametrize(("shape", "slopes"), CASES)
def test_values_and_gradients(shape: tuple[int, ...], slopes: tuple[int, ...]) -> None:
    x, dy, weight = normal(shape), normal(shape, 1), normal(slopes, 2)
    if x.ndim:
        x.flat[0] = 0
    a, b, w = (it.astype(np.float64) for it in (x, dy, weight))
    np.testing.assert_array_equal(dlprim.prelu(x, weight), reference.prelu(a, w).astype(np.float32))
    found = dlprim.prelu_backward(dy, x, weight)
    for one, other in zip(found, reference.prelu_backward(b, a, w), strict=True):
        close(one, other)


@pytest.mark.parametrize(("shape", "slopes"), CASES[:4])
def test_bfloat16_is_float32_rounded_once(shape: tuple[int, ...], slopes: tuple[int, ...]) -> None:
    half, half_dy = dlprim.to_bfloat16(normal(shape)), dlprim.to_bfloat16(normal(shape, 1))
    x, dy, weight = dlprim.to_float32(half), dlprim.to_float32(half_dy), normal(slopes, 2)
    y = dlprim.prelu(half, weight)
    assert y.dtype == half.dtype
    np.testing.assert_array_equal(bits_of(y), rounded(dlprim.prelu(x, weight)))
    found = dlprim.prelu_backward(half_dy, half, weight)
    exact = dlprim.prelu_backward(dy, x, weight)
    np.testing.assert_array_equal(bits_of(found.dx), rounded(exact.dx))
    assert found.dw.dtype == np.float32
    close(found.dw, exact.dw)
    rough = dlprim.to_bfloat16(weight)
    np.testing.assert_array_equal(dlprim.prelu(x, rough), dlprim.prelu(x, dlprim.to_float32(rough)))


@pytest.mark.parametrize(("shape", "slopes"), [((4, 6, 7), 6), ((30, 6), 6), ((4, 6, 7), 1)])
def test_in_place_and_views(shape: tuple[int, ...], slopes: int) -> None:
    x, dy, weight = normal(shape), normal(shape, 1), normal((slopes,), 2)
    same = np.testing.assert_array_equal
    y, expected = dlprim.prelu(x, weight), dlprim.prelu_backward(dy, x, weight)
    same(dlprim.prelu(np.asfortranarray(x), np.repeat(weight, 2)[::2]), y)
    for place in range(2):
        pair = [dy.copy(), x.copy()]
        found = dlprim.prelu_backward(*pair, weight, out=pair[place])
        assert found.dx is pair[place]
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    assert dlprim.prelu(x, weight, out=x) is x
    same(x, y)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (4, 3, 0), (0, 3, 2), (2, 0, 3)])
def test_empty_arrays(shape: tuple[int, ...]) -> None:
    x = normal(shape)
    for count in {1, shape[1] if len(shape) > 1 else 1}:
        weight = np.ones(count, np.float32)
        assert dlprim.prelu(x, weight).shape == shape
        found = dlprim.prelu_backward(x, x, weight)
        assert (found.dx.shape, found.dw.shape) == (shape, (count,))
        assert not found.dw.any()


@pytest.mark.parametrize("shape", [(1, 1, 5), (1, 5), (5,)])
def test_what_is_not_finite(shape: tuple[int, ...]) -> None:
    x = np.array([np.nan, np.inf, -np.inf, -0.0, -1], np.float32).reshape(shape)
    weight, dy = np.full(1, 0.5, np.float32), np.ones(shape, np.float32)
    y = dlprim.prelu(x, weight).reshape(-1)
    assert np.isnan(y[0])
    assert y[1:].tolist() == [np.inf, -np.inf, 0, -0.5]
    dx, dw = dlprim.prelu_backward(dy, x, weight)
    assert dx.reshape(-1).tolist() == [0.5, 1, 0.5, 0.5, 0.5]
    assert np.isnan(dw).all()


def test_threads_do_not_change_a_bit() -> None:
    results: list[list[Any]] = []
    for threads in (1, 2):
        with dlprim.threads(threads):
            found: list[Any] = []
            for shape, count in (((9, 40, 50, 20), 40), ((2000, 300), 300), ((9, 40, 1000), 1)):
                x, dy, weight = normal(shape), normal(shape, 1), normal((count,), 2)
                found += [dlprim.prelu(x, weight), *dlprim.prelu_backward(dy, x, weight)]
            results.append(found)
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: dlprim.prelu(x, x[:, 0]),
            r"weight has shape \(4,\), expected \(1,\) or \(8,\), one slope or one for e",
        ),
        (
            lambda x: dlprim.prelu(x[0], x[0]),
            r"weight has shape \(8,\), expected \(1,\), one slope",
        ),
        (lambda x: dlprim.prelu(x, x), r"weight has shape \(4, 8\), expected \(1,\) or \(8,\)"),
        (lambda x: dlprim.prelu(x, 0.25), "weight is of type float, expected an array of float32"),
        (lambda x: dlprim.prelu(x, x[0].astype(np.float64)), "weight has dtype float64, expected"),
        (lambda x: dlprim.prelu_backward(x, x[:2], x[0]), r"x has shape \(2, 8\), expected \(4, 8"),
        (lambda x: dlprim.prelu(x[1:], x[0], out=x[:3]), "out shares memory with a part of x"),
        (lambda x: dlprim.prelu(x[:1], x[1], out=x[1:2]), "out shares memory with weight, expecte"),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        call(normal((4, 8)))


@pytest.mark.parametrize("count", [1, 6])
def test_against_pytorch(count: int) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    x, dy, weight = normal((4, 6, 9)), normal((4, 6, 9), 1), normal((count,), 2)
    x[0, 0, :3], x[1, :, 0] = 0, np.inf
    leaves = [torch.from_numpy(it).requires_grad_() for it in (x, weight)]
    y = torch.nn.functional.prelu(*leaves)
    y.backward(torch.from_numpy(dy))
    np.testing.assert_array_equal(dlprim.prelu(x, weight), y.detach().numpy())
    for one, leaf in zip(dlprim.prelu_backward(dy, x, weight), leaves, strict=True):
        close(one, leaf.grad.numpy())
