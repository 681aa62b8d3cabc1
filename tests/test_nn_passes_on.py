"""Writes between forward and backward are seen through layers that pass their input on."""

from __future__ import annotations

import numpy as np
import pytest

from dlprim import nn

THROUGH = {"flatten": nn.Flatten, "dropout": lambda: nn.Dropout(0.0)}


@pytest.mark.parametrize("through", THROUGH)
def test_x_that_a_later_layer_reads_is_not_written(through: str) -> None:
    model = nn.Sequential(THROUGH[through](), nn.Linear(8, 3))
    x = np.ones((4, 8), np.float32)
    y = model(x)
    x[...] = 2
    with pytest.raises(RuntimeError, match=r"^x of Sequential was written"):
        model.backward(np.ones_like(y))


@pytest.mark.parametrize("through", THROUGH)
def test_a_result_that_an_earlier_layer_reads_may_be_written(through: str) -> None:
    """It is the caller's, and the way back has values of its own."""
    layer = nn.Linear(8, 3, activation="tanh")
    model = nn.Sequential(layer, THROUGH[through]())
    x = np.ones((4, 8), np.float32)
    y = model(x)
    dx = model.backward(np.ones_like(y))
    gradient = layer.weight.gradient.copy()
    y = model(x)
    y -= 1
    np.testing.assert_array_equal(model.backward(np.ones_like(y)), dx)
    np.testing.assert_array_equal(layer.weight.gradient, gradient)


def test_x_may_be_written_behind_what_drops() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 3))
    x = np.ones((4, 8), np.float32)
    y = model(x)
    x[...] = 2
    assert model.backward(np.ones_like(y)).shape == (4, 8)
