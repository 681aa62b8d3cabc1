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


def test_a_polynomial_begins_with_a_power_of_zero() -> None:
    x = np.array([1, 2, 3], np.float32)
    gradient = dlprim.grad(lambda x: np.sum(sum(c * x**k for k, c in enumerate((1.0, 2.0, 3.0)))))
    np.testing.assert_allclose(gradient(x), 2 + 6 * x, rtol=1e-6)


def test_what_is_not_above_zero_has_no_gradient() -> None:
    x = np.array([0, 1, -1], np.float32)
    for function in (lambda x: np.maximum(x, 0), lambda x: np.maximum(0.0, x), dlprim.relu):
        np.testing.assert_array_equal(dlprim.grad(lambda x, f=function: np.sum(f(x)))(x), [0, 1, 0])
