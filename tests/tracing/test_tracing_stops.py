"""`dlprim.stop_gradient`: x itself, and no gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn
from drawing import RNG


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape, np.float32)


def test_outside_of_traces_it_is_x_itself() -> None:
    for x in (normal(3), np.arange(3), np.float32(2)):
        assert dlprim.stop_gradient(x) is x
    for wrong in (None, [1.0], "x"):
        with pytest.raises(TypeError, match=r"^x is of type .*, expected an array"):
            dlprim.stop_gradient(wrong)


def test_no_gradient_passes() -> None:
    x, y = normal(4, 3), normal(4, 3)

    def f(x: Any, y: Any) -> Any:
        return np.sum(x * dlprim.stop_gradient(x * y) + dlprim.stop_gradient(y))

    value, (dx, dy) = dlprim.value_and_grad(f, wrt=(0, 1))(x, y)
    np.testing.assert_allclose(value, np.sum(x * x * y + y), rtol=1e-5)
    np.testing.assert_allclose(dx, x * y, rtol=1e-6)
    np.testing.assert_array_equal(dy, np.zeros_like(y))


def test_gradients_of_gradients_stop_too() -> None:
    x = normal(5)

    def slope(x: Any) -> Any:
        return dlprim.grad(lambda x: np.sum(x**3 * dlprim.stop_gradient(x)))(x)

    np.testing.assert_allclose(slope(x), 3 * x**3, rtol=1e-5)
    twice = dlprim.grad(lambda x: np.sum(slope(x)))(x)  # the factor x is still a constant
    np.testing.assert_allclose(twice, 6 * x**2, rtol=1e-5)


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_compiled_it_is_x(dtype: Any) -> None:
    x, i = np.float32([0.5, -2, 3]), np.arange(3)
    found = dlprim.compile(
        lambda x, i: (dlprim.stop_gradient(x) * 2, dlprim.stop_gradient(i)), dtype
    )
    y, same = found(x, i)
    np.testing.assert_array_equal(y.astype(np.float32), 2 * x)
    np.testing.assert_array_equal(same, i)


class Rounded(nn.Module):
    """A straight-through estimator behind a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        y = self.fc(x)
        return y + dlprim.stop_gradient(np.round(y) - y)


def test_a_straight_through_estimator() -> None:
    nn.seed(0)
    model, x, dy = Rounded(), 3 * normal(4, 3), normal(4, 3)
    y = model(x)
    weight = model.fc.weight
    exact = x @ weight.value.T + model.fc.bias.value
    np.testing.assert_allclose(y, np.round(exact), atol=1e-5)
    dx = model.backward(dy)
    np.testing.assert_allclose(dx, dy @ weight.value, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(weight.gradient, dy.T @ x, rtol=1e-4, atol=1e-5)
