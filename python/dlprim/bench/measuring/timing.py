"""Clocks and turns: short stretches of all sides in alternation, medians of ratios.

The machines are shared and their clocks move, so absolute figures drift by tens of percent. Two
sides that take turns every third of a millisecond drift together: the median of the ratios of
neighbours is stable where the ratio of the averages is not.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Sequence
from statistics import median

import numpy as np

STRETCH = 3e-4  # seconds that one side runs before the other's turn
_LONG = 100  # times what is asked for: then making things once decides nothing
_DEVIATIONS = 1.4826 * 1.2533  # from the median deviation to the standard error of a median

Call = Callable[[], object]
Turn = Callable[[], float]


def place(cores: Iterable[int], threads: int, core: int | None = None) -> None:
    """Run this process on one core, by default the first of some, or on all of them.

    Raises
    ------
    OSError
        The system refuses the core.
    """
    every = set(cores)
    one = min(every) if core is None else core
    os.sched_setaffinity(0, {one} if threads == 1 else every)


def repeats_for(call: Call, seconds: float = STRETCH) -> int:
    """How often to call so that it takes about ``seconds``."""
    first = seconds_per_call(call, 1)  # with what is made once
    if first > _LONG * seconds:
        return 1
    return max(1, round(seconds / max(seconds_per_call(call, 1), 1e-7)))


def seconds_per_call(call: Call, repeats: int, clock: Turn = time.perf_counter) -> float:
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats


def timed(call: Call, clock: Turn = time.perf_counter, seconds: float = STRETCH) -> Turn:
    """A side for `alternate`: seconds per call, behind one that finds the other sides' caches."""
    repeats = repeats_for(call, seconds)

    def turn() -> float:
        call()
        return seconds_per_call(call, repeats, clock)

    return turn


def alternate(sides: Iterable[Turn], rounds: int) -> list[list[float]]:
    """What each side returned in each round; the sides take turns, each round in another order:
    whoever runs behind a side that heats the core, or fills its caches, is up to 5 % slower."""
    sides = list(sides)
    series: list[list[float]] = [[] for _ in sides]
    drawn, order = random.Random(0), list(range(len(sides)))
    for _ in range(rounds):
        drawn.shuffle(order)
        for i in order:
            series[i].append(sides[i]())
    return series


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Median over rounds, of sides that took turns."""
    return median(ratios(numerators, denominators))


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(numerators, denominators, strict=True)]


def noise(values: Sequence[float]) -> float:
    """Standard error of the median of the values, as a fraction of it, from their deviations."""
    middle = median(values)
    deviation = median(abs(value - middle) for value in values)
    return float(_DEVIATIONS * deviation / middle / len(values) ** 0.5)


def geometric_mean(values: Iterable[float]) -> float:
    return float(np.exp(np.mean(np.log(list(values)))))
