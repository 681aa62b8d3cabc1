"""The search of `tune` by clocks that tests make, and the candidates it thinks of."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim.tuning import moves
from dlprim.tuning.moves import Decision
from dlprim.tuning.search import Choices, Limits, Pass, Search, Winner
from tuning_cases import SHAPES, assert_close, every_pass, result, variants

SMALL = Limits(seed=0, generations=4, population=30)


class Imagined(Pass):
    """A pass of the convolution SHAPES of which a call takes as long as `cost` says."""

    def __init__(
        self,
        which: str,
        cost: Callable[[str], float],
        wrong: Callable[[str], bool] = lambda _: False,
    ) -> None:
        super().__init__(which, [np.zeros(3, np.float32)])
        self.cost, self.wrong = cost, wrong
        self.conv = dlprim.Conv2d(**SHAPES)
        self.model, self.loops = self.conv.schedules[which], self.conv._core.loops(which)
        self.options = self.conv._core.candidates(which, 8)
        self.seconds, self.tried = 0.0, list[str]()
        self.cores: dict[str, Any] = {}  # of each schedule, which a search asks for again and again

    def made(self, choices: Choices, spare: Any = None) -> Any:
        schedule = choices.get(self.which, self.model)
        if schedule not in self.cores:
            core = self.conv._new_core()
            try:
                core.set_schedule(self.which, schedule)
            except ValueError:
                core = None
            self.cores[schedule] = core
        return self.cores[schedule]

    def decisions(self, core: Any) -> dict[str, Decision]:
        return {self.which: Decision(core.schedules[self.which], self.options, self.loops)}

    def run(self, core: Any) -> None:
        schedule = core.schedules[self.which]
        self.seconds += self.cost(schedule)
        self.tried.append(schedule)
        self._outs[0][:] = 2 if self.wrong(schedule) else 1

    def searched(self, limits: Limits = SMALL) -> tuple[Winner, list[str]]:
        """Who wins in an hour by its own clock, and what was reported."""
        lines, clock = list[str](), lambda: self.seconds
        return Search(self, clock, lines.append, limits, clock).run([], 3600.0), lines


@every_pass
def test_fastest_wins(which: str) -> None:
    core = dlprim.Conv2d(**SHAPES)._core
    shared = {t: moves.tasks(t, core.loops(which)) for t in core.candidates(which, 20)}
    least = next(iter(shared.values()))  # the default's; a first level may be the parts of a sum
    firsts = [moves.parse(t)[:3] for t, n in shared.items() if n >= least]
    letters = next(levels for levels in firsts if levels != firsts[0])

    def cost(schedule: str) -> float:
        return 0.5 if moves.parse(schedule)[:3] == letters else 1.0

    work = Imagined(which, cost)
    winner, lines = work.searched()
    found = winner.choices[which]
    assert (cost(work.model), cost(found), winner.gain) == (1.0, 0.5, 2.0)
    assert winner.tried > 4
    assert lines[-1].startswith(which)
    assert found in lines[-1]


@every_pass
@pytest.mark.parametrize("others", [1.0, 0.995, 3.0])
def test_default_stays_unless_another_is_clearly_faster(which: str, others: float) -> None:
    work = Imagined(which, lambda schedule: 1.0 if schedule in same else others)
    same = {work.model, moves.normal(work.model, work.loops)}
    winner, _ = work.searched()
    assert (winner.choices, winner.gain) == ({which: work.model}, 1.0)
    assert winner.tried > 4


def test_what_computes_something_else_never_wins() -> None:
    outermost = dlprim.Conv2d(**SHAPES).schedules["forward"][0].lower()

    def differs(schedule: str) -> bool:
        return moves.parse(schedule)[0].letter != outermost

    winner, lines = Imagined("forward", lambda s: 0.5 if differs(s) else 1.0, differs).searched()
    assert not differs(winner.choices["forward"])
    assert any("computes something else" in line for line in lines)


def test_threads_find_as_many_tasks_as_the_model_leaves_them() -> None:
    work = Imagined("forward", lambda s: 1 + moves.tasks(s, work.loops))
    winner, _ = work.searched()
    least = min(32, moves.tasks(work.model, work.loops))
    assert moves.tasks(winner.choices["forward"], work.loops) >= least


def test_searches_with_one_seed_try_the_same() -> None:
    def runs(seed: int) -> list[str]:
        work = Imagined("forward", lambda s: 1 + len(s) % 7 / 10)
        work.searched(SMALL._replace(seed=seed))
        return work.tried

    assert runs(1) == runs(1) != runs(2)


def test_generations_and_population_limit_what_is_tried() -> None:
    winner, _ = Imagined("forward", lambda _: 1.0).searched(Limits(0, 3, 5))
    assert winner.tried == 15


def test_drift_of_the_machine_decides_nothing() -> None:
    """All are equally fast on a machine that becomes slower from call to call."""
    work = Imagined("forward", lambda _: 1e-3 * 1.001 ** len(work.tried))
    winner, _ = work.searched()
    assert winner.gain == 1.0
    assert winner.tried > 4


# ---------------------------------------------------------------- neighbours


@every_pass
@variants
def test_neighbours_are_refused_or_compute_the_same(which: str, layout: str, dtype: str) -> None:
    conv = dlprim.Conv2d(**SHAPES, layout=layout, dtype=dtype)
    extents, expected = conv._core.loops(which), result(conv, which)
    random, schedule, accepted = Random(1), conv.schedules[which], set()
    for _ in range(150):
        neighbour = moves.mutate(schedule, extents, random)
        levels = moves.parse(neighbour)
        assert moves.text_of(levels) == neighbour
        assert moves.normal(neighbour, extents) == neighbour
        assert {level.letter for level in levels} == extents.keys()
        try:
            conv._core.set_schedule(which, neighbour)
        except ValueError:
            continue
        assert conv.schedules[which] == neighbour
        schedule = neighbour
        if neighbour not in accepted:
            accepted.add(neighbour)
            assert_close(result(conv, which), expected, dtype)
    assert len(accepted) > 5


@pytest.mark.parametrize(
    ("text", "name", "tasks"),
    [
        ("N K c8 P", "N K P c8", 3 * 4 * 5),
        ("n k c p", "n k c p", 1),
        ("N2 P3 n K9 c2 p K", "N2 P3 n c2 p K", 2 * 2 * 4),
        ("C4 N9 K4 P5 C", "C4 C n3 k4 p5", 2 * 4),
    ],
)
def test_normal_form(text: str, name: str, tasks: int) -> None:
    extents = {"n": 3, "k": 4, "c": 8, "p": 5}
    assert moves.normal(text, extents) == name
    assert moves.tasks(text, extents) == moves.tasks(name, extents) == tasks


@pytest.mark.parametrize(
    ("parents", "made"),
    [
        (("n k c p", "N4 n K2 k c p", "N k C p"), "N4 k2 C p"),
        (("P5 N p k", "n2 p10 p3 k", "p P n K"), "p10 n2 P3 K c8"),
    ],
)
def test_children_have_something_of_all_parents(parents: list[str], made: str) -> None:
    extents = {"n": 12, "k": 4, "c": 8, "p": 20}
    assert moves.crossed(parents, extents) == made
