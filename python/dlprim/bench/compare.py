"""Two reports: what changed beyond the noise, in ratios, which machines and clocks leave alone.

Fractions of the peak and of the roofline's bound, and how many times as fast as each peer, were
measured in turns; times and GFLOP/s were not, and are not compared. A change counts if it is larger
than ``least`` and than three standard errors of both medians.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from dlprim.bench.measuring.case import Record
from dlprim.bench.measuring.timing import geometric_mean
from dlprim.bench.report import Report

_ERRORS = 3


class Change(NamedTuple):
    """Of one figure of a row: above 1 it became better."""

    key: tuple[str, str, str, str, int]
    figure: str
    before: float
    after: float
    noise: float  # relative, of both

    @property
    def factor(self) -> float:
        return self.after / self.before

    def is_beyond(self, least: float) -> bool:
        return abs(math.log(self.factor)) > max(math.log1p(least), _ERRORS * self.noise)

    def line(self) -> str:
        command, group, name, dtype, _ = self.key
        return (
            f"{self.factor:6.2f}  {self.before:8.3f} -> {self.after:8.3f} {self.figure:16s} "
            f"{command} {group}, {name}, {dtype}"
        )


def changes(before: Report, after: Report) -> Iterator[Change]:
    """Of every figure that both have."""
    known = {row.key: row for row in before.rows}
    for row in after.rows:
        if row.key in known:
            old, new = figures(known[row.key]), figures(row)
            for name in old.keys() & new.keys():
                errors = (it.noise.get(name.removeprefix("x "), 0) for it in (known[row.key], row))
                yield Change(row.key, name, old[name], new[name], math.hypot(*errors))


def figures(row: Record) -> dict[str, float]:
    """The ratios of a row, by name."""
    found = {f"x {name}": value for name, value in row.ratios.items()}
    fractions = {"of_peak": row.of_peak, "of_bound": row.of_bound}
    return {name: it for name, it in fractions.items() if it} | found


def lines(before: Report, after: Report, least: float) -> list[str]:
    """For people: the machines if they differ, what changed, worst first, and means."""
    found = []
    if before.machine.cpu != after.machine.cpu or before.machine.isa != after.machine.isa:
        found.append(
            f"The CPUs differ, {before.machine.cpu} ({before.machine.isa}) and "
            f"{after.machine.cpu} ({after.machine.isa}): ratios may differ by that."
        )
    every = sorted(changes(before, after), key=lambda it: it.factor)
    if not every:
        return [*found, "The reports have no row in common."]
    beyond = [it for it in every if it.is_beyond(least)]
    found += [it.line() for it in beyond]
    for name in sorted({it.figure for it in every}):
        factors = [it.factor for it in every if it.figure == name]
        mean = geometric_mean(factors)
        found.append(f"{name}: {mean:.3f} times as before, geometric mean of {len(factors)} rows")
    worse = sum(it.factor < 1 for it in beyond)
    keys = {row.key for row in before.rows}, {row.key for row in after.rows}
    found.append(
        f"{worse} figures worse and {len(beyond) - worse} better by more than {least:.0%} and the "
        f"noise, of {len(every)}; {len(keys[0] - keys[1])} rows are gone, "
        f"{len(keys[1] - keys[0])} new."
    )
    return found
