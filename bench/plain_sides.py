"""The sides of a row of plain functions, in this process or each in one of its own.

On one thread all sides take turns in one process. With more, each library keeps threads that wait
for work and spin meanwhile, on the cores that the next side needs: then every side has a process,
which is left alone for a moment before its turn.
"""

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import Any

import dlprim
import harness
from plain_case import PlainCase, Shape
from torch_peer import load_torch

Key = tuple[Shape, str, str]  # what a PlainCase is made of

_QUIET = 0.02  # seconds until the threads of the side before have stopped spinning
_WARM = 0.1  # seconds of work until the system has spread the threads of a side over the cores


def _call(key: Key, side: str, threads: int) -> Callable[[], object]:
    case = PlainCase(*key)
    if side == "dlprim":
        dlprim.set_num_threads(threads)
        return case.ours()
    return case.numpys() if side == "numpy" else case.torchs(load_torch(threads))


@cache
def _timed(key: Key, side: str, threads: int) -> Callable[[], float]:
    return harness.timed(_call(key, side, threads))


def _turn(key: Key, side: str, threads: int) -> float:
    timed = _timed(key, side, threads)
    end = time.perf_counter() + _WARM
    while time.perf_counter() < end:
        timed()
    return timed()


class Sides:
    """Sides for `harness.alternate`, row by row."""

    def __init__(self, names: list[str], threads: int) -> None:
        self._threads = threads
        spawning = multiprocessing.get_context("spawn")
        self._pools: dict[str, Any] = {
            name: ProcessPoolExecutor(1, spawning) if threads > 1 else None for name in names
        }

    def of(self, key: Key) -> list[Callable[[], float]]:
        return [self._side(key, name, pool) for name, pool in self._pools.items()]

    def close(self) -> None:
        for pool in self._pools.values():
            if pool is not None:
                pool.shutdown()

    def _side(self, key: Key, name: str, pool: Any) -> Callable[[], float]:
        if pool is None:
            return harness.timed(_call(key, name, self._threads))

        def turn() -> float:
            time.sleep(_QUIET)
            seconds: float = pool.submit(_turn, key, name, self._threads).result()
            return seconds

        turn()  # makes the operands
        return turn
