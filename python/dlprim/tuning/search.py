"""Search by measurement for the loop nests, mappings and pieces that are fastest on this machine.

An evolution, as in Tensor Comprehensions (arXiv 1802.04730): children of three of the fittest, and
their mutations. It begins with what the cost models rank highest. Nothing is measured twice.

Machines are shared and clocks move, so absolute times drift by tens of percent. Two candidates that
take turns every third of a millisecond drift together: the median of the ratios of neighbours
holds still where the ratio of the averages does not. All that is decided here is decided by it.
In front of its turn each makes a call that does not count: what the other has left in the caches
suits some orders of loops and not others.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from random import Random
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dlprim.arguments.arrays import Array, FloatArray
from dlprim.arguments.floats import to_float32
from dlprim.tuning import moves
from dlprim.tuning.moves import Decision

_STRETCH = 3e-4  # seconds that one side runs before the other's turn
_ROUNDS = (3, 9)  # of a comparison in the search, at least and at most
_FINAL_ROUNDS = (7, 45)  # of the one that decides
_COMPARISONS = 20  # that there should be time for
_FINAL_SHARE = 0.2  # of the time of a pass at most
_FASTER = 0.99  # ratio of times from which on one candidate counts as faster
_WON = 0.75  # of the rounds of a comparison that decides
_PARENTS = 0.1  # of the population, whose children and neighbours are tried
_CROSSED = 0.5  # of the candidates have three parents, the others one,
_MUTATED = 0.5  # and of these so many are mutated besides
_FRUITLESS = 300  # candidates in succession that were known already: there are no others
# Tasks that every schedule leaves to threads, or as many as the model's choice: it will be used
# with more of them than it was measured with.
_TASKS = 32
# Of the largest result, by how much two sums in different order may differ.
_TOLERANCE = {4: 1e-3, 2: 2e-2}  # by the bytes of an element; integers are exact

Choices: TypeAlias = dict[str, str]  # by the names of decisions
Key: TypeAlias = frozenset[tuple[str, str]]
Clock: TypeAlias = Callable[[], float]
Progress: TypeAlias = Callable[[str], object]


class Winner(NamedTuple):
    choices: Choices
    gain: float  # times as fast as the model's choices
    tried: int  # candidates that were compared; 0: too little time to know anything


class Limits(NamedTuple):
    """What a search depends on besides times."""

    seed: int = 0
    generations: int = 25
    population: int = 100


class Pass(ABC):
    """What is tuned, on operands that stay the same: a core is what runs by certain choices."""

    def __init__(self, which: str, outs: Sequence[Array], reads: Sequence[bool] = (False,)) -> None:
        self.which, self._outs, self._reads = which, outs, reads

    @abstractmethod
    def made(self, choices: Choices, spare: Any = None) -> Any:
        """A core by these choices, the model's where there are none; None where they do not fit.

        The spare core is not used otherwise any more.
        """

    @abstractmethod
    def decisions(self, core: Any) -> dict[str, Decision]: ...

    @abstractmethod
    def run(self, core: Any) -> None: ...

    def result(self, core: Any) -> list[FloatArray]:
        """As float32; NaN where the pass writes nothing, unless it adds to what stands there."""
        for out, is_read in zip(self._outs, self._reads, strict=True):
            out.reshape(-1).view(np.uint8).fill(0 if is_read else 0xFF)
        self.run(core)
        return [
            to_float32(out, dtype="bfloat16") if out.itemsize == 2 else out.astype(np.float32)
            for out in self._outs
        ]

    def agree(self, result: list[FloatArray], expected: list[FloatArray]) -> bool:
        for out, one, other in zip(self._outs, result, expected, strict=True):
            finite = np.abs(other[np.isfinite(other)])
            share = (
                0.0 if out.dtype.kind in "iu" and out.itemsize != 2 else _TOLERANCE[out.itemsize]
            )
            tolerance = share * float(finite.max(initial=0))
            if not np.allclose(one, other, rtol=0, atol=tolerance, equal_nan=True):
                return False
        return True


class _Known(NamedTuple):
    cost: float  # time in relation to that of the model's choices
    decisions: dict[str, Decision]


class Search:
    """The search for one pass. ``clock`` times calls, ``now`` says how much of the budget is left.

    Given the times, it is the same for the same limits.
    """

    def __init__(
        self,
        work: Pass,
        clock: Clock,
        report: Progress,
        limits: Limits = Limits(),  # noqa: B008 (a constant)
        now: Clock = perf_counter,
    ) -> None:
        self._work, self._clock, self._report, self._now = work, clock, report, now
        self._limits, self._random = limits, Random(limits.seed)
        self._core, self._spare = work.made({}), None
        self._default = work.decisions(self._core)
        self._known = {_key(self._default): _Known(1.0, self._default)}
        self._best = _key(self._default)
        self._repeats, self._rounds = 1, _ROUNDS[0]
        self._end = math.inf
        self._expected = work.result(self._core)

    def run(self, seeds: Iterable[Choices], end: float) -> Winner:
        """Search until about ``end``, a time of ``now``."""
        model, self._end = self._best, end
        search_end = end - self._calibrate(end)
        for rival, decisions in self._candidates(seeds, search_end):
            ratio, key = self._compared(rival, decisions, search_end), _key(decisions)
            self._known[key] = _Known(self._known[self._best].cost * ratio, decisions)
            if ratio < _FASTER:
                self._core, self._spare, self._best = rival, self._core, key
                self._say(f"{1 / self._known[key].cost:.2f} times as fast: {_shown(decisions)}")
        tried = sum(math.isfinite(it.cost) for it in self._known.values()) - 1
        ratio = 1.0 if self._best == model else self._decided()
        decisions = self._known[self._best].decisions if ratio < _FASTER else self._default
        if ratio < _FASTER:
            self._say(f"set, as it is {1 / ratio:.2f} times as fast: {_shown(decisions)}")
        else:
            ratio = 1.0
            self._say(f"the model's choice stays: {_shown(decisions)}")
        return Winner({name: it.chosen for name, it in decisions.items()}, 1 / ratio, tried)

    def _calibrate(self, end: float) -> float:
        """How long to measure, and the seconds that the last comparison takes."""
        self._repeats = max(1, round(_STRETCH / self._seconds(self._core)))
        start = self._now()
        self._seconds(self._core)
        now = self._now()
        turn, left = max(now - start, 1e-9), end - now
        final = min(_FINAL_SHARE * left, 2 * _FINAL_ROUNDS[1] * turn)
        affordable = (left - final) / (2 * _COMPARISONS * turn)
        self._rounds = int(min(max(affordable, _ROUNDS[0]), _ROUNDS[1]))
        return final

    def _candidates(
        self, seeds: Iterable[Choices], end: float
    ) -> Iterator[tuple[Any, dict[str, Decision]]]:
        """Those not tried before, until none is new: seeds, what the models rank, children."""
        seen, fruitless, given = {self._best}, 0, 0
        waiting = [*seeds, *_ranked(self._default)][::-1]
        most = self._limits.generations * self._limits.population
        while fruitless < _FRUITLESS and given < most and self._now() < end:
            choices = waiting.pop() if waiting else self._child()
            fruitless += 1
            core = self._work.made(choices, self._spare)
            if core is None:
                continue
            self._spare, decisions = core, self._work.decisions(core)
            if _key(decisions) not in seen and _leaves_tasks(decisions):
                fruitless, given = 0, given + 1
                yield core, decisions
            seen.add(_key(decisions))

    def _child(self) -> Choices:
        random = self._random
        count = max(3, round(_PARENTS * self._limits.population))
        fittest = sorted(self._known.values(), key=lambda it: it.cost)[:count]
        parents = [it.decisions for it in fittest if math.isfinite(it.cost)]
        crosses = len(parents) >= 3 and random.random() < _CROSSED
        made = moves.child(parents, random) if crosses else random.choice(parents)
        if not crosses or random.random() < _MUTATED:
            made = moves.changed(made, random)
        return {name: it.chosen for name, it in made.items()}

    def _compared(self, rival: Any, decisions: dict[str, Decision], end: float) -> float:
        """Time of the rival in relation to the best; infinite where the end came too soon.

        What is not faster need not be right. What would win has to be: a search gets into corners
        that no test has seen, and what it finds is used without a further look.
        """
        ratio = math.inf
        # A better one is looked at again, and for longer: of many tries some are lucky.
        for rounds, share in ((self._rounds, 0.0), (2 * self._rounds, _WON)):
            ratios: list[float] = []
            for each in self._ratios(rival, self._core):
                ratios.append(each)
                # What is far behind after few rounds will not catch up.
                if len(ratios) == rounds or np.median(ratios) > 1 + 0.2 / len(ratios):
                    break
                if self._now() >= end:
                    return math.inf
            ratio = float(np.median(ratios))
            if ratio >= _FASTER or _won(ratios) < share:
                return max(ratio, _FASTER)
        if self._work.agree(self._work.result(rival), self._expected):
            return ratio
        self._say(f"left out, as it computes something else: {_shown(decisions)}")
        return math.inf

    def _decided(self) -> float:
        """Time of the best in relation to the default; 1 unless it is faster beyond doubt."""
        default = self._work.made({name: it.chosen for name, it in self._default.items()})
        least, most = _FINAL_ROUNDS
        ratios: list[float] = []
        for each in self._ratios(self._core, default):
            ratios.append(each)
            if len(ratios) == most or (len(ratios) >= least and self._now() >= self._end):
                break
        return float(np.median(ratios)) if _won(ratios) >= _WON else 1.0

    def _ratios(self, one: Any, other: Any) -> Iterator[float]:
        """Without end: the time of one in relation to the other's right before and after it."""
        before = self._seconds(other)
        while True:
            own, after = self._seconds(one), self._seconds(other)
            yield 2 * own / (before + after)
            before = after

    def _seconds(self, core: Any) -> float:
        self._work.run(core)
        start = self._clock()
        for _ in range(self._repeats):
            self._work.run(core)
        return max(self._clock() - start, 1e-9)

    def _say(self, line: str) -> None:
        left = max(self._end - self._now(), 0)
        tried = len(self._known) - 1
        self._report(f"{self._work.which}, {tried} tried, {left:.1f} s left: {line}")


def _won(ratios: list[float]) -> float:
    return sum(each < 1 for each in ratios) / len(ratios)


def _key(decisions: dict[str, Decision]) -> Key:
    return frozenset((name, it.normal) for name, it in decisions.items())


def _shown(decisions: dict[str, Decision]) -> str:
    return "; ".join(f"{name} {it.chosen!r}" for name, it in decisions.items())


def _ranked(decisions: dict[str, Decision]) -> Iterator[Choices]:
    """With one other choice of all that the models rank, in turns."""
    for options in zip_longest(*(it.options[1:] for it in decisions.values())):
        for name, option in zip(decisions, options, strict=True):
            if option is not None:
                yield {name: option}


def _leaves_tasks(decisions: dict[str, Decision]) -> bool:
    return all(
        moves.tasks(it.chosen, it.loops) >= min(_TASKS, moves.tasks(it.options[0], it.loops))
        for it in decisions.values()
        if it.loops
    )
