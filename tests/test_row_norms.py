"""layer_norm, rms_norm and their gradients: against float64, parameters, dtypes, in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlprim
import row_reference as reference
from bfloat16 import bits_of, rounded

pytestmark = pytest.mark.every_level

# Of x, and of the parameters.
SHAPES = [((4, 8), (8,)), ((3, 5), (5,)), ((7, 1), (1,)), ((2, 3, 33), (33,)), ((6,), (6,)),
          ((130, 1000), (1000,)), ((2, 20000), (20000,)), ((300, 7), (7,)),
          ((5, 3, 4), (3, 4)), ((2, 3, 5, 7), (3, 5, 7)), ((6, 7), (6, 7))]  # fmt: skip


def normal(shape: Any, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def operands(shape: tuple[int, ...], last: tuple[int, ...]) -> tuple[Any, Any, Any, Any]:
    """x, dy, weight and bias."""
    x = 2 * normal(shape) + np.float32(0.5)
    return x, normal(shape, 1), normal(last, 2), normal(last, 3)


def close(found: Any, expected: Any, bound: float = 1e-5) -> None:
    assert found.shape == expected.shape
    largest = max(1, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(found, expected, rtol=bound, atol=bound * largest)


@pytest.mark.parametrize(("shape", "last"), SHAPES)
@pytest.mark.parametrize("eps", [1e-5, 0.5])
def test_values_and_gradients(shape: tuple[int, ...], last: tuple[int, ...], eps: float) -> None:
    x, dy, weight, bias = operands(shape, last)
    a, b, w = x.astype(np.float64), dy.astype(np.float64), weight.astype(np.float64)
    close(dlprim.layer_norm(x, weight, bias, eps), reference.layer_norm(a, w, bias, eps))
    close(dlprim.rms_norm(x, weight, eps), reference.rms_norm(a, w, eps))
    bound = 1e-4 if last == (1,) else 3e-5  # one element has no variance: eps alone scales
    found: Any = dlprim.layer_norm_backward(dy, x, weight, eps)
    for one, other in zip(found, reference.layer_norm_backward(b, a, w, eps), strict=True):
        close(one, other, bound)
    found = dlprim.rms_norm_backward(dy, x, weight, eps)
    for one, other in zip(found, reference.rms_norm_backward(b, a, w, eps), strict=True):
        close(one, other, bound)


def test_parameters_that_are_not_there() -> None:
    x, dy, weight, bias = operands((6, 3, 20), (20,))
    ones, zeros = np.ones(20, np.float32), np.zeros(20, np.float32)
    same = np.testing.assert_array_equal
    same(dlprim.layer_norm(x), dlprim.layer_norm(x, ones, zeros))
    same(dlprim.layer_norm(x, weight), dlprim.layer_norm(x, weight, zeros))
    same(dlprim.layer_norm(x, None, bias), dlprim.layer_norm(x, ones, bias))
    both, shift = np.ones((3, 20), np.float32), normal((3, 20), 4)
    same(dlprim.layer_norm(x, bias=shift), dlprim.layer_norm(x, both, shift))
    same(dlprim.rms_norm(x), dlprim.rms_norm(x, ones))
    pairs: list[tuple[Any, Any]] = [
        (dlprim.layer_norm_backward(dy, x), dlprim.layer_norm_backward(dy, x, ones)),
        (dlprim.rms_norm_backward(dy, x), dlprim.rms_norm_backward(dy, x, ones)),
    ]
    for without, given in pairs:
        for one, other in zip(without, given, strict=True):
            same(one, other)


@pytest.mark.parametrize(("shape", "last"), [((4, 8), (8,)), ((9, 70), (70,)), ((5, 3, 4), (3, 4))])
def test_bfloat16_is_float32_rounded_once(shape: tuple[int, ...], last: tuple[int, ...]) -> None:
    x, dy, weight, bias = operands(shape, last)
    half, half_dy = dlprim.to_bfloat16(x), dlprim.to_bfloat16(dy)
    x, dy = dlprim.to_float32(half), dlprim.to_float32(half_dy)
    rough = dlprim.to_float32(dlprim.to_bfloat16(weight))
    for w, same in ((weight, weight), (dlprim.to_bfloat16(weight), rough)):
        for found, expected in (
            (dlprim.layer_norm(half, w, bias), dlprim.layer_norm(x, same, bias)),
            (dlprim.rms_norm(half, w), dlprim.rms_norm(x, same)),
        ):
            assert found.dtype == half.dtype
            np.testing.assert_array_equal(bits_of(found), rounded(expected))
        pairs: list[tuple[Any, Any]] = [
            (dlprim.layer_norm_backward(half_dy, half, w), dlprim.layer_norm_backward(dy, x, same)),
            (dlprim.rms_norm_backward(half_dy, half, w), dlprim.rms_norm_backward(dy, x, same)),
        ]
        for gradients, exact in pairs:
            np.testing.assert_array_equal(bits_of(gradients.dx), rounded(exact.dx))
            for one, other in zip(gradients[1:], exact[1:], strict=True):
                assert one.dtype == np.float32
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("shape", [(4, 8), (70, 40), (200, 300)])
def test_in_place_and_views(shape: tuple[int, ...]) -> None:
    x, dy, weight, bias = operands(shape, shape[-1:])
    same = np.testing.assert_array_equal
    y, z = dlprim.layer_norm(x, weight, bias), dlprim.rms_norm(x, weight)
    same(dlprim.layer_norm(np.asfortranarray(x), np.repeat(weight, 2)[::2], bias), y)
    both: list[Any] = [dlprim.layer_norm_backward, dlprim.rms_norm_backward]
    for backward in both:
        expected = backward(dy, x, weight)
        same(backward(np.asfortranarray(dy), x, weight).dx, expected.dx)
        for place in range(2):
            pair = [dy.copy(), x.copy()]
            found = backward(*pair, weight, out=pair[place])
            assert found.dx is pair[place]
            for one, other in zip(found, expected, strict=True):
                same(one, other)
    same(dlprim.rms_norm(x.copy(), weight, out=np.empty_like(x)), z)
    assert dlprim.layer_norm(x, weight, bias, out=x) is x
    same(x, y)


def test_empty_arrays() -> None:
    for shape in [(0, 4), (3, 0), (0,)]:
        x = normal(shape)
        assert dlprim.layer_norm(x).shape == dlprim.rms_norm(x).shape == shape
        found = dlprim.layer_norm_backward(x, x)
        assert (found.dx.shape, found.dw.shape) == (shape, shape[-1:])
        assert not found.dw.any()
        assert not found.db.any()
        assert not dlprim.rms_norm_backward(x, x).dw.any()


def test_far_mean_and_what_is_not_finite() -> None:
    x = normal((5, 300)) + np.float32(1000)
    close(dlprim.layer_norm(x), reference.layer_norm(x.astype(np.float64)), 2e-4)
    x = normal((4, 20))
    x[1, 3], x[2, 19] = np.nan, np.inf
    y, z = dlprim.layer_norm(x), dlprim.rms_norm(x)
    for found in (y, z):
        assert np.isfinite(found[[0, 3]]).all()
        assert np.isnan(found[1]).all()
    assert np.isnan(y[2]).all()
    assert np.isnan(z[2, 19])
    assert not z[2, :19].any()


@pytest.mark.parametrize("value", [1e6, 4e4, 1234567.0, -98765.43, 3.3e7, 1e30, 1e-30, 0.0])
@pytest.mark.parametrize("columns", [1, 2, 7, 64, 250, 777, 1000, 65_537, 100_003])
def test_rows_of_one_value_are_the_bias(columns: int, value: float) -> None:
    x, weight, bias = np.full((3, columns), value, np.float32), normal(columns), normal(columns, 1)
    expected = np.broadcast_to(bias, x.shape)
    half = dlprim.to_bfloat16(x)
    residual = np.full_like(x, value / 3)
    for found in (
        dlprim.layer_norm(x, weight, bias),
        dlprim.add_layer_norm(x, residual, weight, bias).y,
    ):
        np.testing.assert_array_equal(found, expected)
    for found in (
        dlprim.layer_norm(half, weight, bias),
        dlprim.add_layer_norm(half, dlprim.to_bfloat16(residual), weight, bias).y,
    ):
        np.testing.assert_array_equal(bits_of(found), rounded(expected))


@pytest.mark.parametrize("value", [1e6, -98765.43, 3.3e7, 1e30])
@pytest.mark.parametrize("columns", [1, 7, 777, 65_537])
def test_gradients_of_rows_of_one_value(columns: int, value: float) -> None:
    x, dy = np.full((3, columns), value, np.float32), normal((3, columns))
    weight = normal(columns, 1)
    slope = (dy * weight).astype(np.float64)
    dx = (slope - slope.mean(-1, keepdims=True)) / np.sqrt(1e-5)
    found: list[Any] = [
        dlprim.layer_norm_backward(dy, x, weight),
        dlprim.add_layer_norm_backward(dy, None, x, weight),
    ]
    for gradients in found:
        close(gradients.dx, dx, 1e-4 if columns == 1 else 3e-5)
        close(gradients.db, dy.sum(0))
        assert not gradients.dw.any()


@pytest.mark.parametrize("first", [0.0, 1.0, 300.0])
@pytest.mark.parametrize("offset", [1e5, -1e6])
@pytest.mark.parametrize("columns", [33, 1000, 20_000])
def test_rows_far_from_zero_keep_their_deviations(
    columns: int, offset: float, first: float
) -> None:
    x = 16 * normal((4, columns)) + np.float32(offset)
    x[:, 0] = np.float32(offset + 16 * first)
    # The mean is a float32, whose last place is 2^-7 at 1e5 and 2^-4 at 1e6.
    bound = 1.5 * np.spacing(np.float32(abs(offset))) / x.astype(np.float64).std(-1).min()
    exact = reference.layer_norm(x.astype(np.float64))
    np.testing.assert_allclose(dlprim.layer_norm(x), exact, atol=bound, rtol=1e-4)


def test_threads_do_not_change_a_bit() -> None:
    x, dy, weight, bias = operands((1500, 133), (133,))
    results: list[list[Any]] = []
    for threads in (1, 2):
        with dlprim.threads(threads):
            gradients: Any = dlprim.layer_norm_backward(dy, x, weight)
            y = dlprim.layer_norm(x, weight, bias)
            results.append([y, *gradients, *dlprim.rms_norm_backward(dy, x, weight)])
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: dlprim.layer_norm(x, x[0, :7]),
            r"weight has shape \(7,\), expected \(8,\), or more of the last axes of x, whose ",
        ),
        (lambda x: dlprim.layer_norm(x, x[0], x), r"bias has shape \(4, 8\), expected \(8,\) "),
        (
            lambda x: dlprim.rms_norm(x, x[0, 0]),
            r"weight has shape \(\), expected \(8,\), or more ",
        ),
        (lambda x: dlprim.rms_norm(x, x[0], -1), "eps is -1, expected a finite number >= 0"),
        (lambda x: dlprim.layer_norm(x, eps=None), "eps is None, expected a finite number >= 0"),
        (
            lambda x: dlprim.layer_norm(x[0, 0].reshape(())),
            r"x has shape \(\), expected \(\.\.\., ",
        ),
        (lambda x: dlprim.layer_norm(x, x[0].astype(np.float64)), "weight has dtype float64, exp"),
        (lambda x: dlprim.layer_norm_backward(x, x[:2]), r"x has shape \(2, 8\), expected \(4, 8"),
        (lambda x: dlprim.layer_norm(x[1:], x[0], out=x[:3]), "out shares memory with a part of x"),
        (lambda x: dlprim.layer_norm(x[:1], x[1], out=x[1:2]), "out shares memory with weight, "),
        (lambda x: dlprim.layer_norm(x, None, None, 0.1, x), "layer_norm.. takes from 1 to 4 posi"),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        call(normal((4, 8)))


def test_against_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    x, dy, weight, bias = operands((4, 3, 50), (3, 50))

    def leaf(array: Any) -> Any:
        return torch.from_numpy(array).double().requires_grad_()

    a, w, b = leaf(x), leaf(weight), leaf(bias)
    y = torch.nn.functional.layer_norm(a, (3, 50), w, b)
    y.backward(torch.from_numpy(dy).double())
    close(dlprim.layer_norm(x, weight, bias), y.detach().numpy())
    found: Any = dlprim.layer_norm_backward(dy, x, weight)
    for one, other in zip(found, (a.grad, w.grad, b.grad), strict=True):
        close(one, other.numpy())
    a, w = leaf(x), leaf(weight)
    y = torch.nn.functional.rms_norm(a, (3, 50), w, 1e-5)
    y.backward(torch.from_numpy(dy).double())
    close(dlprim.rms_norm(x, weight), y.detach().numpy())
    for one, other in zip(dlprim.rms_norm_backward(dy, x, weight), (a.grad, w.grad), strict=True):
        close(one, other.numpy())
