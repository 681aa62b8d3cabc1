"""Several threads of Python on one network."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

import dlprim
from dlprim.graph.compiled import CompiledGraph

Arrays = list[np.ndarray[Any, Any]]


def check_two_threads(compiled: CompiledGraph, given: tuple[Arrays, Arrays], times: int) -> None:
    """Each gets the first result for its own arrays, so often, while the other one runs."""
    expected = [compiled.run(arrays)[0] for arrays in given]
    wrong: list[int] = []

    def run(place: int) -> None:
        for _ in range(times):
            if not np.array_equal(compiled.run(given[place])[0], expected[place]):
                wrong.append(place)

    with dlprim.threads(2):
        threads = [threading.Thread(target=run, args=(place,)) for place in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
