"""Tuning of primitives: the fastest loop nest of each pass, found by measurement and kept."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter, thread_time

from dlprim.arguments.scalars import shown
from dlprim.functions import convolution, recurrent_stack
from dlprim.kernel.machine import threads
from dlprim.primitives.conv import Conv2d
from dlprim.primitives.linear import Linear
from dlprim.primitives.rnn import RecurrentLayer
from dlprim.tuning import store
from dlprim.tuning.passes import Tunable, pass_of
from dlprim.tuning.search import Progress, Search, Winner

_SEEDS = 8  # of the cost model's ranking


def tune(
    primitive: Tunable,
    budget_s: float = 10.0,
    *,
    workers: int = 1,
    passes: str | Iterable[str] | None = None,
    path: str | Path | None = None,
    progress: Progress | None = print,
) -> dict[str, float]:
    """Search for the fastest loop nest of each pass, use it, and keep it for later runs.

    The search begins with what the cost model ranks highest and goes on to neighbours of the best.
    A last comparison with the model's first choice decides: only a schedule that is measurably
    faster is set, else the model's choice is. ``primitive.schedules`` shows the result.

    Later runs load it: a primitive of the same geometry, dtype and layout that is made without
    ``schedule``, on the same CPU model, instruction set and version of dlprim, and so the functions
    on plain arrays. A schedule that splits a sum in another place rounds in another place, so
    last bits may change when a primitive is tuned, and never with the number of threads.

    Parameters
    ----------
    primitive : Conv2d, Linear, LSTM or GRU
        A depthwise convolution has no loop nest to tune.
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
        Is given a line of text for every finding; None for silence.

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
        A pass is unknown, or `budget_s` or `workers` is out of range.
    OSError
        The file cannot be written. This is tried before anything is measured.

    Notes
    -----
    Source: the search of loop nests by measurement follows arXiv 2304.12576.
    """
    if not isinstance(primitive, Conv2d | Linear | RecurrentLayer):
        kind, hint = type(primitive).__name__, ""
        if type(primitive).__module__.startswith("dlprim.nn"):
            kind = f"dlprim.nn.{kind}"
            hint = " of dlprim itself; layers take what is found for their shapes, dtype and layout"
        raise TypeError(
            f"primitive is of type {kind}, expected a Conv2d, Linear, LSTM or GRU{hint}"
        )
    _require_numbers(budget_s, workers)
    if not (progress is None or callable(progress)):
        raise TypeError(f"progress is {shown(progress)}, expected a function of a line, or None")
    if not (path is None or isinstance(path, str | Path)):
        raise TypeError(f"path is {shown(path)}, expected a str or Path of a folder")
    report: Progress = progress or (lambda line: None)
    if not primitive.schedules or primitive.flops == 0:
        reason = "no images" if primitive.schedules else "depthwise"
        report(f"{primitive!r} has no loop nest to tune: {reason}")
        return {}
    chosen = _chosen(passes, list(primitive.schedules))
    folder = store.default_folder() if path is None else Path(path)
    store.require_writable(folder)
    gains = {}
    end = perf_counter() + budget_s
    with threads(workers):
        for index, which in enumerate(chosen):
            share = (end - perf_counter()) / (len(chosen) - index)
            stop = perf_counter() + share
            winner = _search(primitive, which, workers, report).run(
                _seeds(primitive, which, folder), stop
            )
            gains[which] = winner.gain
            if winner.tried:
                _keep(primitive, which, winner, folder)
    return gains


def _require_numbers(budget_s: float, workers: int) -> None:
    if not isinstance(budget_s, int | float):
        raise TypeError(f"budget_s is of type {type(budget_s).__name__}, expected seconds")
    if not 0 < budget_s < math.inf:
        raise ValueError(f"budget_s is {budget_s}, expected a positive number of seconds")
    if not isinstance(workers, int):
        raise TypeError(f"workers is of type {type(workers).__name__}, expected an integer")
    if not 1 <= workers <= 1024:
        raise ValueError(f"workers is {workers}, expected 1 to 1024 threads")


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


def _search(primitive: Tunable, which: str, workers: int, report: Progress) -> Search:
    """On copies, so that what the primitive does for others meanwhile is not disturbed."""
    copies = primitive._new_core(), primitive._new_core()
    # One worker is the calling thread, whose own time leaves out what other programs take.
    clock = thread_time if workers == 1 else perf_counter
    return Search(pass_of(primitive, which), copies, clock, report)


def _seeds(primitive: Tunable, which: str, folder: Path) -> list[str]:
    """What may be best already, and what the model ranks highest."""
    stored = store.load(folder).get(_key(primitive, which))
    known = [primitive.schedules[which], *([stored["schedule"]] if stored else [])]
    return known + primitive._core.candidates(which, _SEEDS)


def _key(primitive: Tunable, which: str) -> str:
    algorithm = primitive.algorithms[which] if isinstance(primitive, Conv2d) else "direct"
    return store.key(which, primitive._stored_as, algorithm)


def _keep(primitive: Tunable, which: str, winner: Winner, folder: Path) -> None:
    """In use from now on: in the primitive, in the file, and in what the functions prepare."""
    primitive._core.set_schedule(which, winner.schedule)
    entry = {"schedule": winner.schedule, "gain": round(winner.gain, 3)}
    store.save(folder, {_key(primitive, which): entry if winner.gain > 1 else None})
    convolution._prepared.cache_clear()
    recurrent_stack._primitive.cache_clear()
