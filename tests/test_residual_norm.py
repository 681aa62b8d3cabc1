"""add_layer_norm, add_rms_norm and their gradients: against the two steps, and against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlprim
import row_reference as reference
from bfloat16 import bits_of, rounded
from dlprim.arguments.floats import bfloat16_dtype

pytestmark = pytest.mark.every_level

# Of x, and of the parameters.
SHAPES = [((4, 8), (8,)), ((3, 5), (5,)), ((2, 3, 33), (33,)), ((6,), (6,)), ((130, 1000), (1000,)),
          ((2, 20000), (20000,)), ((5, 3, 4), (3, 4))]  # fmt: skip


def normal(shape: Any, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def operands(shape: tuple[int, ...]) -> list[Any]:
    """x, residual, dy and dsum."""
    return [normal(shape, seed) for seed in range(4)]


def close(found: Any, expected: Any, bound: float = 3e-5) -> None:
    assert found.shape == expected.shape
    largest = max(1, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(found, expected, rtol=bound, atol=bound * largest)


def near(found: Any, expected: Any) -> None:
    """bfloat16 of float32 numbers whose last bits depend on how many are added up at a time."""
    assert found.dtype == bfloat16_dtype()
    np.testing.assert_allclose(dlprim.to_float32(found), expected, rtol=2**-8, atol=1e-5)


@pytest.mark.parametrize(("shape", "last"), SHAPES)
@pytest.mark.parametrize("eps", [1e-5, 0.5])
def test_values_and_gradients(shape: tuple[int, ...], last: tuple[int, ...], eps: float) -> None:
    x, residual, dy, dsum = operands(shape)
    weight, bias = normal(last, 4), normal(last, 5)
    a, b, w = (x + residual).astype(np.float64), dy.astype(np.float64), weight.astype(np.float64)
    pairs: list[tuple[Any, Any, Any, Any]] = [
        (
            dlprim.add_layer_norm(x, residual, weight, bias, eps),
            reference.layer_norm(a, w, bias, eps),
            dlprim.add_layer_norm_backward,
            reference.layer_norm_backward(b, a, w, eps),
        ),
        (
            dlprim.add_rms_norm(x, residual, weight, eps),
            reference.rms_norm(a, w, eps),
            dlprim.add_rms_norm_backward,
            reference.rms_norm_backward(b, a, w, eps),
        ),
    ]
    for found, y, backward, (dx, *others) in pairs:
        np.testing.assert_array_equal(found.sum, x + residual)
        close(found.y, y, 1e-5)
        for beside in (dsum, None):
            gradients = backward(dy, beside, found.sum, weight, eps)
            expected = [dx if beside is None else dx + beside, *others]
            for one, other in zip(gradients, expected, strict=True):
                close(one, other)


def test_parameters_that_are_not_there() -> None:
    x, residual, dy, dsum = operands((6, 3, 20))
    weight, bias = normal(20, 4), normal(20, 5)
    ones, zeros = np.ones(20, np.float32), np.zeros(20, np.float32)
    pairs: list[tuple[Any, Any]] = [
        (dlprim.add_layer_norm(x, residual), dlprim.add_layer_norm(x, residual, ones, zeros)),
        (
            dlprim.add_layer_norm(x, residual, None, bias),
            dlprim.add_layer_norm(x, residual, ones, bias),
        ),
        (
            dlprim.add_layer_norm(x, residual, weight),
            dlprim.add_layer_norm(x, residual, weight, zeros),
        ),
        (dlprim.add_rms_norm(x, residual), dlprim.add_rms_norm(x, residual, ones)),
        (
            dlprim.add_layer_norm_backward(dy, dsum, x),
            dlprim.add_layer_norm_backward(dy, dsum, x, ones),
        ),
        (
            dlprim.add_rms_norm_backward(dy, dsum, x),
            dlprim.add_rms_norm_backward(dy, dsum, x, ones),
        ),
        (
            dlprim.add_layer_norm_backward(dy, None, x, weight),
            dlprim.layer_norm_backward(dy, x, weight),
        ),
        (
            dlprim.add_rms_norm_backward(dy, None, x, weight),
            dlprim.rms_norm_backward(dy, x, weight),
        ),
    ]
    for without, given in pairs:
        for one, other in zip(without, given, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("shape", [(4, 8), (9, 70)])
def test_bfloat16_is_float32_rounded_once(shape: tuple[int, ...]) -> None:
    halves = [dlprim.to_bfloat16(it) for it in operands(shape)]
    exact = [dlprim.to_float32(it) for it in halves]
    weight = normal(shape[-1:], 4)
    for name in ("add_layer_norm", "add_rms_norm"):
        forward, backward = getattr(dlprim, name), getattr(dlprim, f"{name}_backward")
        found, expected = forward(*halves[:2], weight), forward(*exact[:2], weight)
        near(found.y, expected.y)
        np.testing.assert_array_equal(bits_of(found.sum), rounded(expected.sum))
        x, y = found.sum, dlprim.to_float32(found.sum)
        gradients, others = backward(*halves[2:], x, weight), backward(*exact[2:], y, weight)
        near(gradients.dx, others.dx)
        for one, other in zip(gradients[1:], others[1:], strict=True):
            assert one.dtype == np.float32
            close(one, other)
        same = forward(*map(bits_of, halves[:2]), weight, dtype="bfloat16")
        assert same.sum.dtype == same.y.dtype == np.uint16
        np.testing.assert_array_equal(same.sum, bits_of(x))


@pytest.mark.parametrize("shape", [(4, 8), (70, 40), (20, 3000)])
def test_in_place_and_views(shape: tuple[int, ...]) -> None:
    x, residual, dy, dsum = operands(shape)
    weight = normal(shape[-1:], 4)
    same = np.testing.assert_array_equal
    for name in ("add_layer_norm", "add_rms_norm"):
        forward, backward = getattr(dlprim, name), getattr(dlprim, f"{name}_backward")
        expected = forward(x, residual, weight)
        same(forward(np.asfortranarray(x), residual, weight).y, expected.y)
        for place in range(2):
            pair = [x.copy(), residual.copy()]
            found = forward(*pair, weight, out=pair[place])
            assert found.y is pair[place]
            same(found.y, expected.y)
            same(found.sum, expected.sum)
        gradients = backward(dy, dsum, expected.sum, weight)
        for place in range(3):
            given = [dy.copy(), dsum.copy(), expected.sum.copy()]
            found = backward(*given, weight, out=given[place])
            assert found.dx is given[place]
            for one, other in zip(found, gradients, strict=True):
                same(one, other)


def test_empty_arrays_and_what_is_not_finite() -> None:
    for shape in [(0, 4), (3, 0), (0,)]:
        x = normal(shape)
        for found in (dlprim.add_layer_norm(x, x), dlprim.add_rms_norm(x, x)):
            assert found.y.shape == found.sum.shape == shape
        assert not dlprim.add_layer_norm_backward(x, x, x).dw.any()
        assert not dlprim.add_rms_norm_backward(x, x, x).dw.any()
    x, residual, _, _ = operands((4, 20))
    x[1, 3], residual[2, 19] = np.nan, np.inf
    for name in ("layer_norm", "rms_norm"):
        found = getattr(dlprim, f"add_{name}")(x, residual)
        np.testing.assert_array_equal(found.sum, x + residual)
        np.testing.assert_array_equal(
            np.isnan(found.y), np.isnan(getattr(dlprim, name)(x + residual))
        )


def test_threads_do_not_change_a_bit() -> None:
    x, residual, dy, dsum = operands((1500, 133))
    weight = normal(133, 4)
    results: list[list[Any]] = []
    for threads in (1, 2):
        with dlprim.threads(threads):
            layer, rms = (
                dlprim.add_layer_norm(x, residual, weight),
                dlprim.add_rms_norm(x, residual, weight),
            )
            gradients: Any = dlprim.add_layer_norm_backward(dy, dsum, layer.sum, weight)
            others = dlprim.add_rms_norm_backward(dy, dsum, rms.sum, weight)
            results.append([*layer, *rms, *gradients, *others])
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: dlprim.add_layer_norm(x, x[:2]),
            r"residual has shape \(2, 8\), expected \(4, 8\) as x has",
        ),
        (
            lambda x: dlprim.add_rms_norm(x, dlprim.to_bfloat16(x)),
            "residual has dtype (bfloat16|uint16), expected float32",
        ),
        (lambda x: dlprim.add_rms_norm(x, None), "residual is of type NoneType, expected an array"),
        (lambda x: dlprim.add_layer_norm(x, x, x[0, :7]), r"weight has shape \(7,\), expected"),
        (lambda x: dlprim.add_layer_norm(x, x, x[0], x), r"bias has shape \(4, 8\), expected \(8"),
        (lambda x: dlprim.add_rms_norm(x, x, eps=-1), "eps is -1, expected a finite number >= 0"),
        (
            lambda x: dlprim.add_layer_norm(x[1:], x[:3] + 1, out=x[:3]),
            "out shares memory with a part of x",
        ),
        (
            lambda x: dlprim.add_layer_norm(x[1:] + 1, x[1:], out=x[:3]),
            "out shares memory with a part of residual",
        ),
        (
            lambda x: dlprim.add_rms_norm_backward(x, x[:1], x),
            r"dsum has shape \(1, 8\), expected \(4, 8\) as dy has",
        ),
        (
            lambda x: dlprim.add_rms_norm_backward(x, x, x[0]),
            r"sum has shape \(8,\), expected \(4, 8\) as dy has",
        ),
        (
            lambda x: dlprim.add_layer_norm_backward(x, x.astype(int), x),
            "dsum has dtype int64, expected float32 or bfloat16",
        ),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        call(normal((4, 8)))
