"""Three hundred drawn functions of NumPy: values against float64, gradients against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from drawn_functions import Program, drawn

import dlprim
from drawing import RNG

FUNCTIONS, IN_ONE, DIRECTIONS = 300, 10, 3


def leaves(found: dict[str, Any]) -> list[Any]:
    return [found["last"], *found["others"]]


def assert_value(program: Program, single: list[Any]) -> None:
    expected = leaves(program(*program.arrays))
    # What NumPy loses by float32 itself is what may be lost.
    with np.errstate(all="ignore"):
        rounded = leaves(program(*single))
    made = leaves(dlprim.compile(program.__call__)(*single))
    for one, exact, near in zip(made, expected, rounded, strict=True):
        assert np.shape(one) == np.shape(exact)
        assert one.dtype == (np.float32 if np.asarray(exact).dtype == np.float64 else np.int64)
        scale = np.max(np.abs(exact), initial=1.0)
        lost = np.max(np.abs(np.asarray(near, np.float64) - exact), initial=0.0)
        np.testing.assert_allclose(one, exact, rtol=0, atol=2e-5 * scale + 30 * lost)


def assert_gradient(program: Program, single: list[Any]) -> None:
    places = tuple(range(len(single)))
    value, found = dlprim.value_and_grad(program.total, places)(*single)
    np.testing.assert_allclose(value, program.total(*program.arrays), rtol=2e-4, atol=2e-4)
    for place, gradient in enumerate(found):
        assert gradient.shape == single[place].shape
        assert gradient.dtype == np.float32
        for _ in range(DIRECTIONS):
            way = RNG.uniform(-1, 1, gradient.shape)
            if RNG.integers(2):
                way *= np.eye(1, way.size, int(RNG.integers(way.size))).reshape(way.shape)
            expected, size = difference(program, place, way), np.sum(np.abs(gradient * way))
            np.testing.assert_allclose(
                np.sum(gradient * way), expected, rtol=0, atol=2e-3 * max(1.0, size)
            )


def difference(program: Program, place: int, way: Any) -> float:
    """Of the total, where one array goes a small step that way."""
    step, ends = 1e-6, []
    for sign in (1, -1):
        arrays = list(program.arrays)
        arrays[place] = arrays[place] + sign * step * way
        ends.append(program.total(*arrays))
    return float(ends[0] - ends[1]) / (2 * step)


@pytest.mark.parametrize("number", range(FUNCTIONS // IN_ONE))
def test_drawn_functions_agree_with_numpy_and_their_differences(number: int) -> None:
    for _ in range(IN_ONE):
        program = drawn(RNG)
        single = [it.astype(np.float32) for it in program.arrays]
        try:
            assert_value(program, single)
            assert_gradient(program, single)
        except Exception as error:
            raise AssertionError(f"{program!r}: {error}") from error
