"""Three hundred drawn functions of NumPy: values against float64, gradients against differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from drawn_functions import Program, drawn

import dlprim
from drawing import RNG

FUNCTIONS, IN_ONE, DIRECTIONS = 300, 10, 3


def leaves(found: dict[str, Any]) -> list[Any]:
    return [found["last"], *found["others"]]


def assert_values(program: Program, single: list[Any], made: dict[str, Any]) -> None:
    expected = leaves(program(*program.arrays))
    # What NumPy loses by float32 itself is what may be lost.
    with np.errstate(all="ignore"):
        rounded = leaves(program(*single))
    for one, exact, near in zip(leaves(made), expected, rounded, strict=True):
        assert np.shape(one) == np.shape(exact)
        assert one.dtype == (np.float32 if np.asarray(exact).dtype == np.float64 else np.int64)
        scale = np.max(np.abs(exact), initial=1.0)
        lost = np.max(np.abs(np.asarray(near, np.float64) - exact), initial=0.0)
        np.testing.assert_allclose(one, exact, rtol=0, atol=2e-5 * scale + 30 * lost)


def assert_gradients(program: Program, single: list[Any], gradients: Sequence[Any]) -> None:
    for place, gradient in enumerate(gradients):
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
        ends.append(program.total(*arrays)[0])
    return float(ends[0] - ends[1]) / (2 * step)


@pytest.mark.parametrize("number", range(FUNCTIONS // IN_ONE))
def test_drawn_functions_agree_with_numpy_and_their_differences(number: int) -> None:
    """Some compiled alone, all with the gradient of a number that depends on every result."""
    for place in range(IN_ONE):
        program = drawn(RNG)
        single = [it.astype(np.float32) for it in program.arrays]
        step = dlprim.value_and_grad(program.total, tuple(range(len(single))), has_aux=True)
        try:
            if place % 3 == 0:
                assert_values(program, single, dlprim.compile(program.__call__)(*single))
            (value, results), gradients = step(*single)
            assert_values(program, single, results)
            total, _ = program.total(*program.arrays)
            np.testing.assert_allclose(value, total, rtol=2e-4, atol=2e-4)
            assert_gradients(program, single, gradients)
        except Exception as error:
            raise AssertionError(f"{program!r}: {error}") from error
