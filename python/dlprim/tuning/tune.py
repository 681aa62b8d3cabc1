"""Tuning: the fastest loop nest of each pass, or form of a formula, by measurement, and kept."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

from dlprim import schedule_store as store
from dlprim.arguments.calls import KNOWN
from dlprim.arguments.scalars import integer, shown
from dlprim.functions import convolution, recurrent_stack
from dlprim.kernel.machine import threads
from dlprim.lang import CompiledFormula, Definition
from dlprim.primitives.conv import Conv2d
from dlprim.primitives.linear import Linear
from dlprim.primitives.rnn import RecurrentLayer
from dlprim.tuning.passes import Tunable, TunedPass, pass_of
from dlprim.tuning.search import Choices, Clock, Limits, Progress, Search, Winner


def tune(
    primitive: Tunable,
    budget_s: float = 10.0,
    *,
    workers: int = 1,
    passes: str | Iterable[str] | None = None,
    path: str | Path | None = None,
    progress: Progress | None = print,
    seed: int = 0,
    generations: int = 25,
    population: int = 100,
) -> dict[str, float]:
    """Search for the fastest loop nest of each pass, use it, and keep it for later runs.

    The search begins with what the cost model ranks highest and goes on to neighbours and common
    children of the fastest. A last comparison with the model's first choice decides: only what is
    measurably faster is set, else the model's choice is. ``primitive.schedules``, of a formula
    ``schedule``, shows the result.

    Later runs load it: a primitive of the same geometry, dtype and layout that is made without
    ``schedule``, on the same CPU model, instruction set and version of dlprim, and so the functions
    on plain arrays. A schedule that splits a sum in another place rounds in another place, so
    last bits may change when a primitive is tuned, and never with the number of threads.

    Parameters
    ----------
    primitive : Conv2d, Linear, LSTM, GRU or compiled formula
        A depthwise convolution has no loop nest to tune. Of a formula (`Definition.compile`) also
        the pieces and what runs its products are searched for.
    budget_s : float
        Seconds to take about, shared out among the passes.
    workers : int
        Threads to measure with. What is found is used for any number of threads.
    passes : str or iterable of str, optional
        "forward", "backward_data", "backward_weights", or of a recurrent layer the names of its
        products, as in ``primitive.schedules``; all of them by default.
    path : str or Path, optional
        Folder of the file, one for each CPU model and instruction set. By default, and always for
        loading, ``$DLPRIM_TUNE_DIR``, else ``dlprim`` in ``$XDG_CACHE_HOME`` or ``~/.cache``.
        With ``DLPRIM_TUNE=0`` in the environment nothing is loaded; 1 is the default, and any
        other value an error of whatever loads.
    progress : callable, optional
        Is given a line of text, with the seconds left, for every finding; None for silence.
        On a terminal where tqdm is installed the default shows a bar besides.
    seed : int
        What is tried depends on it and on the times that are measured.
    generations, population : int
        At most as many candidates as their product are tried for a pass; the tenth of a population
        that is fittest has children.

    Returns
    -------
    dict of float
        By pass, how many times as fast as the model's choice the pass now is; 1.0 where that
        choice stays. Empty where there is nothing to tune.

    Raises
    ------
    TypeError
        The primitive is none of these, or an argument is of the wrong type.
    ValueError
        A pass is unknown, or a number is out of range.
    OSError
        The file cannot be written. This is tried before anything is measured.

    Notes
    -----
    Sources: the search of loop nests by measurement follows arXiv 2304.12576, the evolution arXiv
    1802.04730 (children of three parents, mutations); candidates take turns with the best one.
    """
    _require_tunable(primitive)
    require_seconds("budget_s", budget_s)
    workers = integer("workers", workers, 1, 1025)
    limits = Limits(
        integer("seed", seed, 0),
        integer("generations", generations, 1),
        integer("population", population, 1),
    )
    if not (progress is None or callable(progress)):
        raise TypeError(f"progress is {shown(progress)}, expected a function of a line, or None")
    if not (path is None or isinstance(path, str | Path)):
        raise TypeError(f"path is {shown(path)}, expected a str or Path of a folder")
    nests = _nests(primitive, progress or (lambda line: None))
    if not nests:
        return {}
    chosen = _chosen(passes, nests)
    folder = store.default_folder() if path is None else Path(path)
    store.require_writable(folder)
    gains = {}
    # One worker is the calling thread, whose own time leaves out what others take.
    clock = thread_time if workers == 1 else perf_counter
    with threads(workers), _watched(budget_s, progress) as (now, report):
        end = now() + budget_s
        for index, which in enumerate(chosen):
            share = (end - now()) / (len(chosen) - index)
            stop = now() + share
            work = pass_of(primitive, which)
            winner = Search(work, clock, report, limits, now).run(_seeds(work, folder), stop)
            gains[which] = winner.gain
            if winner.tried:
                _keep(work, winner, folder)
    return gains


def _nests(primitive: Tunable, report: Progress) -> list[str]:
    if isinstance(primitive, CompiledFormula):
        if primitive.schedule:
            return ["formula"]
        report(f"{primitive.name or 'the formula'} has nothing to tune: no product, no pieces")
        return []
    nests = list(primitive.schedules)
    if nests and primitive.flops > 0:
        return nests
    reason = "no images" if nests else "depthwise"
    report(f"{primitive!r} has no loop nest to tune: {reason}")
    return []


def _require_tunable(primitive: Any) -> None:
    if isinstance(primitive, Conv2d | Linear | RecurrentLayer | CompiledFormula):
        return
    kind, hint = type(primitive).__name__, ""
    if type(primitive).__module__.startswith("dlprim.nn"):
        kind = f"dlprim.nn.{kind}"
        hint = " of dlprim itself; layers take what is found for their shapes, dtype and layout"
    elif isinstance(primitive, Definition):
        hint = " made by its compile method"
    raise TypeError(
        f"primitive is of type {kind}, expected a Conv2d, Linear, LSTM, GRU or CompiledFormula"
        f"{hint}"
    )


@contextmanager
def _watched(budget_s: float, progress: Progress | None) -> Iterator[tuple[Clock, Progress]]:
    """The clock of a search, which asks for the time at every candidate, and where lines go.

    By default, where somebody watches, the clock moves a bar that shows the time left.
    """
    tqdm: Any = None
    if progress is print and sys.stderr.isatty():
        with suppress(ImportError):
            tqdm = importlib.import_module("tqdm")
    if tqdm is None:
        yield perf_counter, progress or (lambda line: None)
        return
    form = "{percentage:3.0f} %|{bar}| {elapsed}<{remaining}"
    start = perf_counter()
    with tqdm.tqdm(total=budget_s, leave=False, dynamic_ncols=True, bar_format=form) as bar:

        def now() -> float:
            time = perf_counter()
            bar.update(min(time - start, budget_s) - bar.n)
            return time

        yield now, bar.write


def require_seconds(name: str, value: float) -> None:
    if not isinstance(value, int | float):
        raise TypeError(f"{name} is of type {type(value).__name__}, expected seconds")
    if not 0 < value < math.inf:
        raise ValueError(f"{name} is {value}, expected a positive number of seconds")


def _chosen(passes: str | Iterable[str] | None, known: list[str]) -> list[str]:
    if passes is None:
        return known
    if not isinstance(passes, Iterable):
        raise TypeError(f"passes is {shown(passes)}, expected names of passes")
    chosen = [passes] if isinstance(passes, str) else list(passes)
    for which in chosen:
        if which not in known:
            raise ValueError(f"passes names {which!r}, expected some of {', '.join(known)}")
    return chosen


def _seeds(work: TunedPass, folder: Path) -> list[Choices]:
    """What may be best already."""
    stored = store.load(folder).get(work.key)
    return [work.current, *([work.choices_of(stored["schedule"])] if stored else [])]


def _keep(work: TunedPass, winner: Winner, folder: Path) -> None:
    """In use from now on: by what was tuned, in the file, and in what the functions prepare."""
    work.use(winner.choices)
    entry = {"schedule": work.schedule_of(winner.choices), "gain": round(winner.gain, 3)}
    store.save(folder, {work.key: entry if winner.gain > 1 else None})
    KNOWN.clear()
    convolution._prepared.cache_clear()
    recurrent_stack._primitive.cache_clear()
