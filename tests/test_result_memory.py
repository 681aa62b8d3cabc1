"""Memory of large results: used again when nobody holds it, and never while somebody does."""

from __future__ import annotations

import numpy as np

import dlprim

X = np.full((512, 512), 2, np.float32)


def test_memory_that_nobody_holds_is_used_again() -> None:
    places = set()
    for _ in range(8):
        places.add(dlprim.relu(X).ctypes.data)
    assert len(places) == 1


def test_results_that_are_held_keep_their_values() -> None:
    held = [dlprim.relu(X * factor) for factor in range(6)]
    views = [held.pop()[3:5] for _ in range(2)]
    dlprim.relu(X * 100)
    assert len({each.ctypes.data for each in held}) == 4
    for factor, each in enumerate(held):
        assert (each == 2 * factor).all()
    assert (views[0] == 10).all()
    assert (views[1] == 8).all()
