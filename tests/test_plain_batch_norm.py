"""batch_norm of plain arrays of any rank, and its gradient, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlprim
from drawing import RNG

SHAPES: list[tuple[int, ...]] = [
    (6, 5), (64, 100), (1, 4, 9), (3, 7, 2, 3), (4, 64, 14, 14), (2, 3, 4, 5, 6), (2, 16, 40),
]  # fmt: skip
EPS = 1e-5


def along(values: Any, x: Any) -> Any:
    return np.asarray(values, float).reshape(-1, *(1,) * (x.ndim - 2))


def normalised(x: Any, mean: Any, var: Any, weight: Any, bias: Any) -> Any:
    scale = along(weight, x) / np.sqrt(along(var, x) + EPS)
    return (x - along(mean, x)) * scale + along(bias, x)


def statistics(x: Any) -> tuple[Any, Any]:
    axes = (0, *range(2, x.ndim))
    return x.mean(axes), x.var(axes)


def operands(shape: tuple[int, ...], dtype: str, offset: float = 0) -> tuple[Any, Any, Any, Any]:
    """x and dy, weight and bias."""
    arrays = [RNG.standard_normal(shape, np.float32) for _ in range(2)]
    arrays[0] += np.float32(offset)
    if dtype == "bfloat16":
        arrays = [dlprim.to_bfloat16(it) for it in arrays]
    return (*arrays, *RNG.uniform(0.5, 2, (2, shape[1])).astype(np.float32))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients(shape: tuple[int, ...], dtype: str, training: bool) -> None:
    x, dy, weight, bias = operands(shape, dtype)
    wide, slope = x.astype(float), dy.astype(float)
    mean, var = RNG.standard_normal(shape[1]), RNG.uniform(1, 2, shape[1])
    running = [it.astype(np.float32) for it in (mean, var)]
    given = (*running, weight, bias)
    y = dlprim.batch_norm(x, *given, training, 0.2)
    found = statistics(wide) if training else tuple(it.astype(float) for it in running)
    bound = 1e-2 if dtype == "bfloat16" else 2e-5
    np.testing.assert_allclose(
        y.astype(float), normalised(wide, *found, weight, bias), rtol=bound, atol=bound
    )
    if training:
        count = x.size // shape[1]
        due = found[0], found[1] * count / (count - 1)
        for array, before, new in zip(running, (mean, var), due, strict=True):
            np.testing.assert_allclose(array, 0.8 * before + 0.2 * new, rtol=1e-4, atol=1e-5)

    dx, dw, db = dlprim.batch_norm_backward(dy, x, *running, weight, training)
    assert (dx.dtype, dw.dtype, db.dtype) == (x.dtype, np.float32, np.float32)
    found = statistics(wide) if training else tuple(it.astype(float) for it in running)
    inverse = 1 / np.sqrt(found[1] + EPS)
    hat, axes = (wide - along(found[0], x)) * along(inverse, x), (0, *range(2, x.ndim))
    front = slope * along(weight, x)
    expected = front * along(inverse, x)
    if training:
        terms = along(front.mean(axes), x) + hat * along((front * hat).mean(axes), x)
        expected = (front - terms) * along(inverse, x)
    np.testing.assert_allclose(dx.astype(float), expected, rtol=bound, atol=4 * bound)
    scale = np.sqrt(x.size / shape[1])
    np.testing.assert_allclose(dw, (slope * hat).sum(axes), rtol=1e-4, atol=1e-4 * scale)
    np.testing.assert_allclose(db, slope.sum(axes), rtol=1e-4, atol=1e-5 * scale)


def test_a_mean_far_from_zero_costs_no_accuracy() -> None:
    x, _, weight, bias = operands((4, 3, 20, 20), "float32", offset=1000)
    expected = normalised(x.astype(float), *statistics(x.astype(float)), weight, bias)
    found = dlprim.batch_norm(x, None, None, weight, bias, training=True)
    np.testing.assert_allclose(found, expected, atol=2e-3)
    constant = np.full((3, 2, 5, 8), 7, np.float32)
    np.testing.assert_array_equal(dlprim.batch_norm(constant, training=True), 0)


@pytest.mark.any_level
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(6, 5), (3, 2, 5, 8), (2, 17, 31, 33)], ids=str)
@pytest.mark.parametrize("value", [0.1, -77.7, 40000.1, 1e12])
def test_channels_of_one_value_have_no_variance(
    value: float, shape: tuple[int, ...], dtype: str
) -> None:
    x: Any = np.full(shape, value, np.float32)
    if dtype == "bfloat16":
        x = dlprim.to_bfloat16(x)
    mean, var = np.zeros(shape[1], np.float32), np.ones(shape[1], np.float32)
    y = dlprim.batch_norm(x, mean, var, training=True, momentum=1.0)
    np.testing.assert_array_equal(y.astype(float), 0)
    np.testing.assert_array_equal(var, 0)
    np.testing.assert_array_equal(mean, x.astype(np.float32).flat[0])


def test_small_variances_are_exact() -> None:
    x = 1e-18 * RNG.standard_normal((4, 3, 9, 9)).astype(np.float32)
    mean, var = np.zeros(3, np.float32), np.zeros(3, np.float32)
    dlprim.batch_norm(x, mean, var, training=True, momentum=1.0)
    due = statistics(x.astype(float))[1] * 324 / 323
    np.testing.assert_allclose(var, due, rtol=1e-5)


@pytest.mark.any_level
def test_in_place_and_nothing() -> None:
    for shape in ((2, 3, 4, 10), (5, 3, 2)):
        x, dy, weight, bias = operands(shape, "float32")
        expected = dlprim.batch_norm(x, None, None, weight, bias, True)
        gradients = dlprim.batch_norm_backward(dy, x, None, None, weight, True)
        found = dlprim.batch_norm_backward(dy, x, None, None, weight, True, out=dy)
        assert found.dx is dy
        np.testing.assert_array_equal(dy, gradients.dx)
        assert dlprim.batch_norm(x, None, None, weight, bias, True, out=x) is x
        np.testing.assert_array_equal(x, expected)
    running = np.ones((2, 3), np.float32)
    empty = np.ones((0, 3, 4), np.float32)
    assert dlprim.batch_norm(empty, *running, training=True).shape == (0, 3, 4)
    assert (running == 1).all()
    assert not dlprim.batch_norm_backward(empty, empty, training=True).dw.any()


@pytest.mark.any_level
@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({}, ValueError, "^running_mean and running_var are missing, .* or training=True"),
        ({"x": np.ones(3, np.float32)}, ValueError, r"^x has shape \(3,\), expected \(N, C, "),
        ({"x": np.ones((2, 3))}, TypeError, r"^x has dtype float64, .*astype\(np\.float32\)"),
        ({"weight": np.ones(4, np.float32)}, ValueError, r"^weight has shape \(4,\), expected \(3"),
        ({"running_mean": np.ones(3, np.float32)}, ValueError, "^one of running_mean and"),
        ({"training": 1}, TypeError, "^training is 1, expected True or False"),
        ({"momentum": 2.0}, ValueError, r"^momentum is 2\.0, expected a number in \[0, 1\]"),
    ],
)
def test_refusals(change: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        dlprim.batch_norm(**({"x": np.ones((2, 3, 4), np.float32)} | change))
