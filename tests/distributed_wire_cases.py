"""bfloat16 on the wire: what rounding takes from a message is owed, within a run and after it.

`test_distributed.py` runs this file as it runs distributed_cases.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distributed_cases import SHAPES, Loose, gradients_of, reduced
from dlprim.distributed import DataParallel, Group
from dlprim.distributed.overlap import OVERLAPS


def test_state_goes_on_with_what_rounding_owes(group: Group) -> None:
    def run(states: list[Any], step: int) -> tuple[list[Any], Any, list[bool]]:
        module = Loose(SHAPES)
        with DataParallel(module, group, 4096, "off", "bfloat16") as parallel:
            fits = [parallel.load_state_dict(state) for state in states]
            found = reduced(parallel, module, group.rank, step)
            return found, parallel.state_dict(), fits

    _, state, _ = run([], 0)
    expected, later, _ = run([], 1)
    fresh = not state  # nothing is on a wire
    assert fresh == (group.communicator is None)
    found, _, fits = run([state], 1)
    assert fits == [True]
    assert fresh or not all(map(np.array_equal, found, expected))
    for wrong in ({}, {"plan": state.get("plan")}, state | {"lost": np.ones(3, np.float32)}):
        found, again, fits = run([state, wrong], 1)
        assert fits == [True, fresh and "plan" not in wrong]
        for name, array in later.items():
            np.testing.assert_array_equal(again[name], array)
        for mine, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_bfloat16_wire_keeps_what_it_rounds_away(group: Group, overlap: str) -> None:
    """One step is off by the rounding of bfloat16, the mean of many steps hardly at all."""
    if group.communicator is None:
        pytest.skip("a group of one sends nothing, so nothing is rounded for a wire")
    module, steps = Loose(SHAPES), 15
    everyone = map(gradients_of, range(group.size))
    exact = [sum(parts) / group.size for parts in zip(*everyone, strict=True)]
    totals = [np.zeros(shape) for shape in SHAPES]
    with DataParallel(module, group, 4096, overlap, "bfloat16") as parallel:
        for _ in range(steps):
            results = reduced(parallel, module, group.rank)
            for total, result in zip(totals, results, strict=True):
                total += result
        everywhere = group.allgather(results)
    for rank in range(group.size):
        for mine, other in zip(results, everywhere[rank], strict=True):
            np.testing.assert_array_equal(mine, other)
    largest = np.max([np.abs(part).max() for part in gradients_of(0) if part.size])
    for total, result, expected in zip(totals, results, exact, strict=True):
        np.testing.assert_allclose(result, expected, atol=4 * 2.0**-8 * largest)
        np.testing.assert_allclose(total / steps, expected, atol=4 * 2.0**-8 * largest / steps)
