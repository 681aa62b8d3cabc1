"""The rows of `bench_threads.py`: what two threads cost after a pause, beside others, in a pool.

Each takes the run and adds its figures to it; `ROWS` names them. Figures of dlprim have bars, those
of an older build and of the peers stand beside them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np

import threads_programs
from threads_bench import Bench, Workers
from threads_sides import busy, measured, working

_PAUSE = 0.2
_OURS = "dlprim"


def pause(bench: Bench) -> None:
    """Calls after a pause against calls in a row; a tenth of a millisecond more is no matter."""

    def turn(workers: Workers) -> tuple[float, float]:
        [rested] = measured(workers, do="times", seconds=bench.seconds, pause=_PAUSE)
        [pressed] = measured(workers, do="times", seconds=bench.seconds)
        return median(rested), median(pressed)

    for model, path in bench.chosen("S", "C", "MLP", "R").items():
        with bench.processes(bench.sides, path=str(path)) as sides:
            found = bench.in_turns({name: partial(turn, it) for name, it in sides.items()})
        for name, pairs in found.items():
            rested, pressed = (median(times) for times in zip(*pairs, strict=True))
            more = rested - pressed
            note = f"{1e3 * rested:.2f} / {1e3 * pressed:.2f} ms, {1e3 * more:+.2f} ms"
            what, value = f"{model} {name}: after {_PAUSE} s / in a row", rested / pressed
            if name == _OURS:
                bench.at_most("pause", what, value, 1.15, note, besides=more <= 1e-4)
            else:
                bench.say("pause", what, value, note)


def _disturbed(
    bench: Bench, row: str, what: str, models: tuple[str, ...], bars: tuple[float, float],
    turn: Callable[[Workers], tuple[float, float]], count: int,
) -> None:  # fmt: skip
    """Calls a second with something else on the cores, against alone and against the peers'."""
    for model, path in bench.chosen(*models).items():
        with bench.processes(bench.sides, count, path=str(path)) as sides:
            found = bench.in_turns({name: partial(turn, it) for name, it in sides.items()})
        rates: dict[str, float] = {}
        for name, pairs in found.items():
            disturbed, alone = (median(values) for values in zip(*pairs, strict=True))
            rates[name] = disturbed
            note = f"{disturbed:.1f} / {alone:.1f} calls/s"
            share = median(part / whole for part, whole in pairs)
            if name == _OURS:
                bench.at_least(row, f"{model} {name}: {what} / alone", share, bars[0], note)
            else:
                bench.say(row, f"{model} {name}: {what} / alone", share, note)
        if best := bench.peer_of(rates):
            note = f"the better is {best[0]}"
            value = rates[_OURS] / best[1]
            bench.at_least(row, f"{model}: {what}, times the better peer", value, bars[1], note)


def processes(bench: Bench) -> None:
    """Two processes at once, each with as many threads as there are cores."""

    def turn(workers: Workers) -> tuple[float, float]:
        [alone] = measured(workers[:1], do="rate", seconds=bench.seconds)
        return sum(measured(workers, do="rate", seconds=bench.seconds)), alone

    _disturbed(bench, "processes", "two processes", ("S", "C", "R"), (0.9, 1.1), turn, count=2)


def beside_busy(bench: Bench) -> None:
    """Beside a program that keeps one core for itself."""

    def turn(workers: Workers) -> tuple[float, float]:
        [alone] = measured(workers, do="rate", seconds=bench.seconds)
        with busy(bench.cores[-1]):
            [beside] = measured(workers, do="rate", seconds=bench.seconds)
        return beside, alone

    _disturbed(bench, "busy", "beside a busy core", ("S", "C", "R"), (0.65, 1.05), turn, count=1)


def _pair(bench: Bench, row: str, other: str, bar: float, spread: float | None) -> None:
    """A linear layer and another library's operation in turns, against each in its own process."""
    kinds = (("linear",), (other,), ("linear", other))
    for name, side in bench.builds().items():
        with contextlib.ExitStack() as stack:
            turns: dict[str, Callable[[], list[Any]]] = {}
            for kind in kinds:
                made = stack.enter_context(bench.processes({name: side}, kinds=kind))
                if made:
                    ask = partial(measured, made[name], do="times", seconds=bench.seconds)
                    turns[" ".join(kind)] = ask
            if len(turns) < len(kinds):
                continue
            found = bench.in_turns(turns)
        times = [np.concatenate([it[0] for it in series]) for series in found.values()]
        linear, peer, both = (float(np.median(it)) for it in times)
        note = f"{1e3 * both:.3f} / ({1e3 * linear:.3f} + {1e3 * peer:.3f}) ms"
        late = float(np.quantile(times[2], 0.9)) / both
        what, value = f"{name}: linear and {other} in turns / apart", both / (linear + peer)
        if name != _OURS:
            bench.say(row, what, value, f"{note}, p90 / median {late:.2f}")
            continue
        bench.at_most(row, what, value, bar, note)
        if spread is None:
            bench.say(row, f"{name}: p90 / median of the pair", late)
        else:
            bench.at_most(row, f"{name}: p90 / median of the pair", late, spread)


def blas(bench: Bench) -> None:
    _pair(bench, "blas", "dot", 1.15, 1.5)


def torch(bench: Bench) -> None:
    _pair(bench, "torch", "torch", 1.1, None)


def caller(bench: Bench) -> None:
    """A call from another Python thread than the first, which waits meanwhile."""

    def turn(workers: Workers) -> tuple[float, float]:
        first, other = workers
        [own] = measured([first], do="times", seconds=bench.seconds)
        [elsewhere] = measured([other], elsewhere=True, do="times", seconds=bench.seconds)
        return median(elsewhere), median(own)

    for model, path in bench.chosen("S").items():
        with bench.processes(bench.sides, 2, path=str(path)) as sides:
            found = bench.in_turns({name: partial(turn, it) for name, it in sides.items()})
        for name, pairs in found.items():
            elsewhere, own = (median(times) for times in zip(*pairs, strict=True))
            note = f"{1e3 * elsewhere:.2f} / {1e3 * own:.2f} ms"
            what, value = f"{model} {name}: another thread / the first", elsewhere / own
            if name == _OURS:
                bench.at_most("caller", what, value, 1.05, note)
            else:
                bench.say("caller", what, value, note)


def callers(bench: Bench) -> None:
    """Several Python threads call one model at once; ONNX Runtime's session may be shared, too."""
    sides = {name: it for name, it in bench.sides.items() if it.library != "openvino"}
    for model, path in bench.chosen("S").items():
        for count, bar in ((2, 1.05), (8, 1.05)):
            ask = partial(measured, do="rate", seconds=bench.seconds, callers=count)
            with bench.processes(sides, path=str(path)) as made:
                found = bench.in_turns({name: partial(ask, it) for name, it in made.items()})
            rates = {name: median(it[0] for it in series) for name, series in found.items()}
            for name, rate in rates.items():
                bench.say("callers", f"{model} {name}: {count} callers, calls/s", rate)
            if best := bench.peer_of(rates):
                what, value = f"{model}: {count} callers, times {best[0]}", rates[_OURS] / best[1]
                bench.at_least("callers", what, value, bar)


def step(bench: Bench) -> None:
    """ResNet-50's training step, N = 16: seconds alone, and of each of two at once."""
    seconds = 4 * bench.seconds  # a step takes one or two

    def turn(workers: Workers) -> tuple[float, float]:
        [alone] = measured(workers[:1], do="rate", seconds=seconds)
        both = measured(workers, do="rate", seconds=seconds)
        return 1 / alone, len(both) / sum(both)

    with bench.processes(bench.builds(), 2, kinds=("step",)) as sides:
        found = bench.in_turns({name: partial(turn, it) for name, it in sides.items()})
    cases = (("alone", 1.25), ("each of two processes", 1.8))
    for place, (what, bar) in enumerate(cases):
        times = {name: median(pair[place] for pair in pairs) for name, pairs in found.items()}
        for name, value in times.items():
            bench.say("step", f"{name}: {what}, s", value)
        if "before" in times:
            value = times["before"] / times[_OURS]
            bench.at_least("step", f"{what}: before / now", value, bar)


def oversubscribed(bench: Bench) -> None:
    """More threads than cores, against as many."""
    bars = {2 * bench.threads: 0.9, 4 * bench.threads: 0.85}
    for model, path in bench.chosen("S").items():
        for name, side in bench.sides.items():
            with contextlib.ExitStack() as stack:
                turns: dict[str, Callable[[], list[Any]]] = {}
                for threads in (bench.threads, *bars):
                    made = stack.enter_context(working(side, threads, path=str(path)))
                    ask = partial(measured, made, do="rate", seconds=bench.seconds)
                    turns[str(threads)] = ask
                found = bench.in_turns(turns)
            rates = {key: median(it[0] for it in series) for key, series in found.items()}
            few = rates[str(bench.threads)]
            for threads, bar in bars.items():
                many = rates[str(threads)]
                what = f"{model} {name}: {threads} threads / {bench.threads}"
                note = f"{many:.1f} / {few:.1f} calls/s"
                if name == _OURS:
                    bench.at_least("oversubscribed", what, many / few, bar, note)
                else:
                    bench.say("oversubscribed", what, many / few, note)


ROWS: dict[str, Callable[[Bench], None]] = {
    "pause": pause,
    "processes": processes,
    "busy": beside_busy,
    "blas": blas,
    "torch": torch,
    "caller": caller,
    "step": step,
    "callers": callers,
    "ranks": threads_programs.ranks,
    "oversubscribed": oversubscribed,
    "groups": threads_programs.groups,
}
