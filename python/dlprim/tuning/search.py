"""Search by measurement for the loop nests that are fastest on the machine at hand.

Machines are shared and clocks move, so absolute times drift by tens of percent. Two schedules that
take turns every third of a millisecond drift together: the median of the ratios of neighbours
holds still where the ratio of the averages does not. All that is decided here is decided by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from random import Random
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dlprim import _core
from dlprim.arguments.arrays import Array, FloatArray
from dlprim.arguments.floats import to_float32
from dlprim.tuning import moves

_STRETCH = 3e-4  # seconds that one side runs before the other's turn
_ROUNDS = (3, 9)  # of a comparison in the search, at least and at most
_FINAL_ROUNDS = (7, 45)  # of the one that decides
_COMPARISONS = 20  # that there should be time for
_FINAL_SHARE = 0.2  # of the time of a pass
_FASTER = 0.99  # ratio of times from which on one schedule counts as faster
_WON = 0.75  # of the rounds of the last comparison
_PARENTS = 4  # of the best so far, whose neighbours are tried
_FRUITLESS = 300  # neighbours in succession that were known already: there are no others
# Tasks that every schedule leaves to threads, or as many as the model's choice: it will be used
# with more of them than it was measured with.
_TASKS = 32
# Of the largest result, by how much two sums in different order may differ.
_TOLERANCE = {4: 1e-3, 2: 2e-2, 1: 0}  # by the bytes of an element

Core: TypeAlias = _core.Conv2d | _core.Linear | _core.Rnn
Clock: TypeAlias = Callable[[], float]
Progress: TypeAlias = Callable[[str], object]


class Winner(NamedTuple):
    schedule: str
    gain: float  # times as fast as the model's choice
    tried: int  # schedules that were compared; 0: too little time to know anything


class Pass:
    """A pass on operands that stay the same, of whichever copy of the convolution is given."""

    def __init__(self, which: str, run: Callable[[Any], None], out: Array) -> None:
        self.which, self.run = which, run
        self._out = out

    def result(self, core: Core) -> FloatArray:
        """As float32; NaN where the pass writes nothing."""
        self._out.view(np.uint8).fill(0xFF)
        self.run(core)
        if self._out.itemsize == 2:
            return to_float32(self._out, dtype="bfloat16")
        return self._out.astype(np.float32)

    def agree(self, result: FloatArray, expected: FloatArray) -> bool:
        tolerance = _TOLERANCE[self._out.itemsize] * float(np.nanmax(np.abs(expected)))
        return np.allclose(result, expected, rtol=0, atol=tolerance, equal_nan=True)


class Search:
    """The search for one pass, on two new copies of the convolution that take turns."""

    def __init__(
        self,
        work: Pass,
        copies: tuple[Core, Core],
        clock: Clock,
        report: Progress,
    ) -> None:
        self._work, self._clock, self._report = work, clock, report
        self._which, self._call = work.which, work.run
        self._best, self._rival = copies
        self._extents = self._best.loops(self._which)
        self._model = self._best.schedules[self._which]
        self._default = moves.normal(self._model, self._extents)
        self._costs = {self._default: 1.0}  # times in relation to the default's, as far as known
        self._repeats = 1
        self._rounds = _ROUNDS[0]
        self._expected = work.result(self._best)

    def run(self, seeds: Iterable[str], end: float) -> Winner:
        """Search until about ``end``, a time of perf_counter."""
        search_end = end - _FINAL_SHARE * (end - perf_counter())
        best, model = self._default, self._model
        self._calibrate(search_end)
        for schedule in self._proposals(seeds, search_end):
            ratio = self._compared(schedule, search_end)
            self._costs[schedule] = self._costs[best] * ratio
            if ratio < _FASTER:
                best = schedule
                self._best, self._rival = self._rival, self._best
                gain = 1 / self._costs[best]
                self._say(f"{best!r} seems {gain:.2f} times as fast as {model!r}")
        tried = sum(math.isfinite(cost) for cost in self._costs.values()) - 1
        ratio = 1.0 if best == self._default else self._decided(end)
        if ratio < _FASTER:
            self._say(f"{best!r} is {1 / ratio:.2f} times as fast as {model!r}, and set")
            return Winner(best, 1 / ratio, tried)
        self._say(f"{model!r} stays")
        return Winner(model, 1.0, tried)

    def _calibrate(self, end: float) -> None:
        """How long to measure. The first call does not count: it is the first to touch memory."""
        self._seconds(self._best)
        self._repeats = max(1, round(_STRETCH / self._seconds(self._best)))
        start = perf_counter()
        self._seconds(self._best)
        now = perf_counter()
        affordable = int((end - now) / (2 * _COMPARISONS * (now - start)))
        self._rounds = min(max(affordable, _ROUNDS[0]), _ROUNDS[1])

    def _proposals(self, seeds: Iterable[str], end: float) -> Iterator[str]:
        """Schedules not tried before, until none is new: the seeds, then neighbours of the best.

        What is given out is set on the rival.
        """
        random = Random(0)
        seen = {self._default}
        least = min(_TASKS, moves.tasks(self._default, self._extents))
        fitting = [seed for seed in seeds if self._takes(seed)]
        waiting = [moves.normal(seed, self._extents) for seed in reversed(fitting)]
        fruitless = 0
        while fruitless < _FRUITLESS and perf_counter() < end:
            if waiting:
                schedule = waiting.pop()
            else:
                parents = sorted(self._costs, key=self._costs.__getitem__)[:_PARENTS]
                schedule = moves.mutate(random.choice(parents), self._extents, random)
            fruitless += 1
            if schedule in seen:
                continue
            seen.add(schedule)
            if moves.tasks(schedule, self._extents) >= least and self._takes(schedule):
                fruitless = 0
                yield schedule

    def _takes(self, schedule: str) -> bool:
        """Set it on the rival, unless it does not fit the pass."""
        try:
            self._rival.set_schedule(self._which, schedule)
        except ValueError:
            return False
        return True

    def _compared(self, schedule: str, end: float) -> float:
        """Time of the rival in relation to the best; infinite where the end came too soon.

        What is not faster need not be right. What would win has to be: a search gets into corners
        that no test has seen, and what it finds is used without a further look.
        """
        self._call(self._rival)
        ratio = math.inf
        for _ in range(2):  # once more for a better one: of many tries some are lucky
            ratios: list[float] = []
            for each in self._ratios(self._rival, self._best):
                ratios.append(each)
                # What is far behind after few rounds will not catch up.
                if len(ratios) == self._rounds or median(ratios) > 1 + 0.2 / len(ratios):
                    break
                if perf_counter() >= end:
                    return math.inf
            ratio = median(ratios)
            if ratio >= _FASTER:
                return ratio
        if self._work.agree(self._work.result(self._rival), self._expected):
            return ratio
        self._say(f"{schedule!r} computes something else and is left out")
        return math.inf

    def _decided(self, end: float) -> float:
        """Time of the best in relation to the default; 1 unless it is faster beyond doubt."""
        self._rival.set_schedule(self._which, self._model)
        self._call(self._rival)
        least, most = _FINAL_ROUNDS
        ratios: list[float] = []
        for each in self._ratios(self._best, self._rival):
            ratios.append(each)
            if len(ratios) == most or (len(ratios) >= least and perf_counter() >= end):
                break
        won = sum(each < 1 for each in ratios)
        return median(ratios) if won >= _WON * len(ratios) else 1.0

    def _ratios(self, one: Core, other: Core) -> Iterator[float]:
        """Without end: the time of one in relation to the other's right before and after it."""
        before = self._seconds(other)
        while True:
            own, after = self._seconds(one), self._seconds(other)
            yield 2 * own / (before + after)
            before = after

    def _seconds(self, core: Core) -> float:
        start = self._clock()
        for _ in range(self._repeats):
            self._call(core)
        return max(self._clock() - start, 1e-9)

    def _say(self, line: str) -> None:
        self._report(f"{self._which}, {len(self._costs) - 1} tried: {line}")
