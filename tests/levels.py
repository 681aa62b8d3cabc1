"""Which cases a run of the tests takes, by ISA level.

Without DLPRIM_MAX_ISA a run is on the CPU's own level and takes all of them. One that the variable
lowers repeats what a level can change: of every test a share of its cases, drawn by the level, so
that each level sees others, and always the same ones. Marks say more:

any_level    knows no ISA level, or goes through the levels itself: not repeated
every_level  tails, dtypes and edges of kernels, which each level has of its own: repeated whole
large        whole networks and long sums, which plain loops take minutes for: not at scalar

`--every-case` repeats everything on every level, as .ci/long does. Nothing here asks the CPU.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
EVERY_CASE = "DLPRIM_EVERY_CASE"  # in the environment of processes that tests start


@dataclass(frozen=True)
class Sizes:
    """What a lowered run takes of tests whose cases are drawn."""

    share: float = 0.4  # of the cases of a test
    most_products: float = math.inf  # of a case; a test that has only larger ones keeps one
    large: bool = True


SIZES = {"scalar": Sizes(share=0.15, most_products=1e6, large=False)}


@dataclass(frozen=True)
class Case:
    """What the draw knows of a case: its name, its test, its marks, how much it computes."""

    name: str
    test: Hashable
    marks: frozenset[str] = frozenset()
    products: int = 0


def place(case: Case, level: str) -> int:
    """Where a case stands in the order that is drawn."""
    return zlib.crc32(f"{level} {case.name}".encode())


def drawn(cases: Iterable[Case], level: str) -> set[str]:
    """Names of the cases that a run lowered to `level` takes: of each test at least one."""
    sizes = SIZES.get(level, Sizes())
    tests: dict[Hashable, list[Case]] = {}
    taken = set()
    for case in cases:
        if "every_level" in case.marks:
            taken.add(case.name)
        elif "any_level" not in case.marks and (sizes.large or "large" not in case.marks):
            tests.setdefault(case.test, []).append(case)
    for group in tests.values():
        small = [it for it in group if it.products <= sizes.most_products]
        small = small or [min(group, key=lambda it: it.products)]
        count = math.ceil(sizes.share * len(small))
        taken |= {it.name for it in sorted(small, key=lambda it: place(it, level))[:count]}
    return taken


def few(cases: Sequence[T], level: str) -> list[tuple[int, T]]:
    """Of cases that a test goes through itself on every level: those for this one, numbered."""
    whole = level not in SIZES or EVERY_CASE in os.environ
    share = 1 if whole else SIZES[level].share
    return list(enumerate(cases))[:: round(1 / share)]


def one_of_each(cases: Iterable[Case]) -> set[str]:
    """Names of one case of every test, the least of what it computes: `pytest -m quick`."""
    tests: dict[Hashable, Case] = {}
    for case in cases:
        first = tests.setdefault(case.test, case)
        if case.products < first.products:
            tests[case.test] = case
    return {it.name for it in tests.values()}
