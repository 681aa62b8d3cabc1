"""One row: verified, then all its sides in turns, roofs included; a record of medians.

The roof of operations is the peak of the type's multiply-add, that of bytes the rate at which a
core reads a buffer as large as operands and results: both are sides that take turns with the
others, so a clock that moves, moves them too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import dlprim
from dlprim.bench.measuring import timing
from dlprim.bench.measuring.case import OWN_SIDES, Case, Record, Row, UnavailableError
from dlprim.bench.measuring.timing import Call, Turn
from dlprim.bench.measuring.verification import WrongResultError
from dlprim.testing import fma_peak, read_bandwidth

_QUIET = 0.02  # seconds until the threads of the side before have gone to sleep
_WARM = 0.02  # seconds until those of a side are awake, on cores of their own, and caches filled
_FEWEST = 3  # rounds
_LARGE, _LONG = (
    1 << 20,
    5e-3,
)  # bytes whose reading scatters in a shorter stretch than these seconds
_PEAK, _BYTES, _OURS, _NATIVE = "peak", "bytes", "dlprim", "native"


@dataclass(frozen=True)
class Turns:
    """How sides take turns."""

    threads: int = 1
    rounds: int = 15
    seconds: float = 5.0  # of a row, as long as the fewest rounds fit
    cpu_time: bool = False  # of this thread, in place of the clock

    def side(self, call: Call) -> Turn:
        """Threads of several libraries spin beside each other for a while: each waits for quiet."""
        if self.threads == 1:
            return timing.timed(call, time.thread_time if self.cpu_time else time.perf_counter)
        repeats, warm = timing.repeats_for(call), timing.repeats_for(call, _WARM)

        def turn() -> float:
            time.sleep(_QUIET)
            timing.seconds_per_call(call, warm)
            return timing.seconds_per_call(call, repeats)

        return turn


def measure(
    command: str, row: Row, turns: Turns, peers: Sequence[str], left_out: list[str]
) -> Record:
    """The record of a row; what becomes of a peer that cannot run it is added to ``left_out``.

    Raises
    ------
    WrongResultError
        Our result is not what it should be.
    """
    case = row.make()
    case.verify()
    sides: dict[str, Turn] = {_OURS: turns.side(case.ours), **_roofs(case, turns.threads)}
    if case.native is not None:
        sides[_NATIVE] = case.native
    for name in case.peers:
        if name in peers or name in OWN_SIDES:
            try:
                sides[name] = turns.side(_verified_peer(case, name))
            except (UnavailableError, WrongResultError) as error:
                left_out.append(f"{row.group}, {row.name}: {name} is left out: {error}")
    rounds = max(_FEWEST, min(turns.rounds, int(turns.seconds / _lap(sides))))
    series = dict(zip(sides, timing.alternate(sides.values(), rounds), strict=True))
    return _record(command, row, case, turns.threads, series)


def _verified_peer(case: Case, name: str) -> Call:
    call = case.peers[name]()
    result = call()
    if case.agrees is not None and name not in OWN_SIDES:
        case.agrees(result)
    return call


def _roofs(case: Case, threads: int) -> dict[str, Turn]:
    """Seconds that a row would take at the roofs that it has."""
    isa = case.isa or dlprim.isa()
    found: dict[str, Turn] = {}
    if isa == "scalar":
        return found
    if case.operations:
        found[_PEAK] = lambda: (
            case.operations / (fma_peak(isa, timing.STRETCH, case.peak_dtype) * threads)
        )
    if case.traffic:
        size = max(int(case.buffer or case.traffic), 64)
        stretch = timing.STRETCH if size < _LARGE else _LONG
        found[_BYTES] = lambda: case.traffic / (read_bandwidth(size, seconds=stretch) * threads)
    return found


def _lap(sides: Mapping[str, Turn]) -> float:
    """Seconds of one turn of each side."""
    begin = time.perf_counter()
    for turn in sides.values():
        turn()
    return max(time.perf_counter() - begin, 1e-9)


def _record(
    command: str, row: Row, case: Case, threads: int, series: Mapping[str, list[float]]
) -> Record:
    ours = series.get(_NATIVE, series[_OURS])
    compared = {
        name: timing.ratios(values, series[_OURS])
        for name, values in series.items()
        if name not in (_PEAK, _BYTES, _OURS, _NATIVE)
    }
    roofs = {name: timing.ratios(series[name], ours) for name in (_PEAK, _BYTES) if name in series}
    if roofs:
        bound = [max(values) for values in zip(*roofs.values(), strict=True)]
        roofs["of_bound"] = bound
    if _PEAK in roofs:
        roofs["of_peak"] = roofs[_PEAK]
    fractions = {name: roofs[name] for name in ("of_peak", "of_bound") if name in roofs}
    seconds = median(ours)
    figures: dict[str, Any] = {name: median(values) for name, values in fractions.items()}
    if case.operations:
        figures["gflops"] = case.operations / seconds * 1e-9
        if _PEAK in series:
            figures["peak_gflops"] = case.operations / median(series[_PEAK]) * 1e-9
        if case.traffic:
            figures["intensity"] = case.operations / case.traffic
    return Record(
        command, row.group, row.name, row.dtype, threads, row.count, len(ours), seconds * 1e3,
        ratios={name: median(values) for name, values in compared.items()},
        noise={name: timing.noise(it) for name, it in (fractions | compared).items()},
        notes=dict(case.notes), **figures,
    )  # fmt: skip
