"""Schedules, their neighbours and their children: the steps that a search among loop nests takes.

A schedule is a text such as "K4 n c8 p K" (cpp/primitives/loop_nest.h): levels from the outside
in, each the letter of a loop with a step, 1 where there is none; a letter that comes again blocks
its loop further, a capital one is shared by threads. Whether a nest can be followed, only the core
knows: what is made here is well-formed, and may be refused.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import NamedTuple, TypeAlias


class Level(NamedTuple):
    letter: str  # lower case
    step: int
    parallel: bool


Levels: TypeAlias = list[Level]
Extents: TypeAlias = Mapping[str, int]  # of every loop, by its letter


class Decision(NamedTuple):
    """What a cost model has decided, or somebody instead of it."""

    chosen: str
    options: Sequence[str]  # the model's choice first
    loops: Extents  # of a schedule, which may be any other, too; else empty

    @property
    def normal(self) -> str:
        return normal(self.chosen, self.loops) if self.loops else self.chosen


Decisions: TypeAlias = Mapping[str, Decision]  # by name


def changed(decisions: Decisions, random: Random) -> dict[str, Decision]:
    """With another choice for one of them, a neighbour where it is a schedule."""
    open_ones = [name for name, one in decisions.items() if one.loops or one.options[1:]]
    if not open_ones:
        return dict(decisions)
    name = random.choice(open_ones)
    one = decisions[name]
    if one.loops:
        chosen = mutate(one.chosen, one.loops, random)
    else:
        chosen = random.choice([option for option in one.options if option != one.chosen])
    return {**decisions, name: one._replace(chosen=chosen)}


def child(parents: Sequence[Decisions], random: Random) -> dict[str, Decision]:
    """Each choice from one of three parents; of schedules of the same loops all have a part."""
    first, *others = random.sample(parents, 3)
    made = {}
    for name, one in first.items():
        alike = [one, *(it[name] for it in others if name in it and it[name].loops == one.loops)]
        if one.loops:
            texts = [alike[number % len(alike)].normal for number in range(3)]
            made[name] = one._replace(chosen=crossed(texts, one.loops))
        else:
            made[name] = one._replace(chosen=random.choice(alike).chosen)
    return made


def parse(text: str) -> Levels:
    """The levels of a schedule as the core writes it."""
    return [
        Level(letter.lower(), int(step or 1), letter.isupper())
        for letter, step in re.findall(r"([A-Za-z])(\d*)", text)
    ]


def text_of(levels: Levels) -> str:
    return " ".join(
        (level.letter.upper() if level.parallel else level.letter)
        + (str(level.step) if level.step != 1 else "")
        for level in levels
    )


def normal(text: str, extents: Extents) -> str:
    """The one name of a nest: levels of a single iteration are left out, or come last.

    A schedule has to name every loop, so loops of which no level is left get one at the end.
    """
    sizes = {letter: max(extent, 1) for letter, extent in extents.items()}
    kept = []
    for level in parse(text):
        if level.step < sizes[level.letter]:
            kept.append(level)
            sizes[level.letter] = level.step
    named = {level.letter for level in kept}
    still = [Level(letter, size, False) for letter, size in sizes.items() if letter not in named]
    return text_of(kept + still)


def tasks(text: str, extents: Extents) -> int:
    """What threads can share: the iterations of the parallel levels taken together."""
    sizes = {letter: max(extent, 1) for letter, extent in extents.items()}
    count = 1
    for level in parse(text):
        if level.parallel:
            count *= -(-sizes[level.letter] // level.step)
        sizes[level.letter] = min(level.step, sizes[level.letter])
    return count


def mutate(text: str, extents: Extents, random: Random) -> str:
    """A neighbour of a schedule, in normal form; at times the schedule itself.

    Two levels change places, a step changes, a level of blocking comes or goes, or threads begin
    or cease to share one.
    """
    levels = parse(normal(text, extents))
    move = random.choice((_swapped, _stepped, _blocked, _unblocked, _toggled))
    return normal(text_of(_descending(move(levels, extents, random))), extents)


def crossed(parents: Sequence[str], extents: Extents) -> str:
    """The order of the first schedule, the steps of the second, what threads share of the third.

    Levels of a loop correspond from the outside in; what has no counterpart stays as it is.
    """
    order, *others = parents
    steps, shared = (_by_letter(parse(text)) for text in others)
    levels = []
    for letter, step, parallel in parse(order):
        other, third = (next(it[letter], None) for it in (steps, shared))
        levels.append(
            Level(letter, other.step if other else step, third.parallel if third else parallel)
        )
    return normal(text_of(_descending(levels)), extents)


def _by_letter(levels: Levels) -> dict[str, Iterator[Level]]:
    by_letter: dict[str, Levels] = defaultdict(list)
    for level in levels:
        by_letter[level.letter].append(level)
    return {letter: iter(those) for letter, those in by_letter.items()}


def _descending(levels: Levels) -> Levels:
    """With the steps of each loop in the order in which they have to come: the largest first."""
    steps: dict[str, list[int]] = {}
    for level in levels:
        steps.setdefault(level.letter, []).append(level.step)
    for sizes in steps.values():
        sizes.sort()
    return [level._replace(step=steps[level.letter].pop()) for level in levels]


def _swapped(levels: Levels, extents: Extents, random: Random) -> Levels:
    if len(levels) < 2:
        return levels
    first = random.randrange(len(levels) - 1)
    inner, outer = levels[first : first + 2]
    return [*levels[:first], outer, inner, *levels[first + 2 :]]


def _stepped(levels: Levels, extents: Extents, random: Random) -> Levels:
    place = random.randrange(len(levels))
    level = levels[place]
    step = random.choice(_steps_near(level.step, extents[level.letter]))
    return [*levels[:place], level._replace(step=step), *levels[place + 1 :]]


def _blocked(levels: Levels, extents: Extents, random: Random) -> Levels:
    level = random.choice(levels)
    step = random.choice(_steps_near(level.step, extents[level.letter]))
    place = random.randrange(len(levels) + 1)
    return [*levels[:place], level._replace(step=step), *levels[place:]]


def _unblocked(levels: Levels, extents: Extents, random: Random) -> Levels:
    letters = [level.letter for level in levels]
    places = [place for place, letter in enumerate(letters) if letters.count(letter) > 1]
    if not places:
        return levels
    place = random.choice(places)
    return levels[:place] + levels[place + 1 :]


def _toggled(levels: Levels, extents: Extents, random: Random) -> Levels:
    place = random.randrange(len(levels))
    level = levels[place]
    return [*levels[:place], level._replace(parallel=not level.parallel), *levels[place + 1 :]]


def _steps_near(step: int, extent: int) -> list[int]:
    """Double and half the step twice, so that these are drawn often, and the extent's divisors."""
    extent = max(extent, 1)
    small = [divisor for divisor in range(1, math.isqrt(extent) + 1) if extent % divisor == 0]
    divisors = {*small, *(extent // divisor for divisor in small)}
    near = [min(2 * step, extent), max(step // 2, 1)]
    return [*near, *near, *sorted(divisors)]
