"""How every benchmark measures: verify, then alternate short stretches of all sides.

The machines are shared and their clocks move, so absolute figures drift by tens of percent. Two
sides that take turns every third of a millisecond drift together: the median of the ratios of
neighbours is stable where the ratio of the averages is not.
"""

import os
import random
import time
from collections.abc import Callable, Iterable
from statistics import median

import numpy as np

STRETCH = 3e-4  # seconds that one side runs before the other's turn
_LONG = 100  # times what is asked for: then making things once decides nothing
_UNIT_ROUNDOFF = 2.0**-24


def pin(core: int) -> None:
    """Run this process on one core; say so when the system refuses."""
    try:
        os.sched_setaffinity(0, {core})
    except OSError as error:
        print(f"not pinned to core {core}: {error}")


def verify(name: str, result: np.ndarray, exact: np.ndarray, bound: np.ndarray) -> None:
    """Stop unless ``|result - exact| <= bound`` everywhere; NaN fails."""
    error = np.abs(result - exact)
    if not np.all(error <= bound):
        worst = np.nanmax(error / bound)
        raise SystemExit(f"{name}: wrong result, {worst:.1f} times the error bound")


def sum_bound(terms: int, magnitude: np.ndarray) -> np.ndarray:
    """Error bound of a float32 sum of ``terms`` products whose absolute values add to
    ``magnitude``: the random-walk estimate with a factor of 8, never above the worst case."""
    return np.minimum(8 * terms**0.5, terms + 1) * _UNIT_ROUNDOFF * magnitude


def repeats_for(call: Callable[[], object], seconds: float = STRETCH) -> int:
    """How often to call so that it takes about ``seconds``."""
    first = seconds_per_call(call, 1)  # with what is made once
    if first > _LONG * seconds:
        return 1
    return max(1, round(seconds / max(seconds_per_call(call, 1), 1e-7)))


def seconds_per_call(call: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def timed(call: Callable[[], object]) -> Callable[[], float]:
    """A side for `alternate`: seconds per call, behind one that finds the other sides' caches."""
    repeats = repeats_for(call)

    def turn() -> float:
        call()
        return seconds_per_call(call, repeats)

    return turn


def alternate(sides: Iterable[Callable[[], float]], rounds: int) -> list[list[float]]:
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


def median_ratio(numerators: list[float], denominators: list[float]) -> float:
    """Median over rounds, of sides that took turns."""
    return median(a / b for a, b in zip(numerators, denominators, strict=True))


def geometric_mean(values: Iterable[float]) -> float:
    return float(np.exp(np.mean(np.log(list(values)))))
