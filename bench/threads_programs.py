"""The rows of `bench_threads.py` that run whole programs: MPI's ranks, and the other benchmarks."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from dlprim.bench.measuring import timing
from threads_bench import Bench
from threads_sides import environment, measured

_EPOCHS = 10
_FIRST = 2  # epochs in which code is generated and threads are begun
_COMPARE = Path(__file__).parent / "compare_builds.py"


def _training_rate(python: str, threads: int, more: dict[str, str]) -> float:
    """Samples a second of two ranks together: the median of epochs."""
    beside = Path(python).parent / "mpiexec"
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        raise SystemExit("mpiexec is missing: pip install 'dlprim[mpi-local]'")
    command = [mpiexec, "-n", "2", python, "-m", "dlprim.train", "--model", "cnn"]
    command += ["--epochs", str(_EPOCHS), "--json", "-"]
    done = subprocess.run(
        command, env=environment(threads, **more), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    rates: list[float] = [it["samples_per_s"] for it in records if it["record"] == "epoch"]
    return median(rates[_FIRST:])


def ranks(bench: Bench) -> None:
    """Two ranks as they are started plainly, and of one thread each."""
    one = {"OMP_NUM_THREADS": "1"}
    for name, side in bench.builds().items():
        turns: dict[str, Callable[[], float]] = {
            "plain": partial(_training_rate, side.python, bench.threads, {}),
            "one": partial(_training_rate, side.python, bench.threads, one),
        }
        found = bench.in_turns(turns)
        plain, single = median(found["plain"]), median(found["one"])
        what, note = f"{name}: plain / one thread each", f"{plain:.0f} / {single:.0f} samples/s"
        if name == "dlprim":
            bench.at_least("ranks", what, plain / single, 0.97, note)
        else:
            bench.say("ranks", what, plain / single, note)


def groups(bench: Bench) -> None:
    """All benchmarks and ConvNeXt-tiny in a row: the older build's time over this one's."""
    before = bench.builds().get("before")
    if before is None:
        print("groups: left out without --before")
        return
    _compare(bench, before.python)
    ask: Callable[..., list[Any]] = partial(measured, do="times", seconds=bench.seconds)
    for path in bench.chosen("C").values():
        with bench.processes(bench.builds(), path=str(path)) as sides:
            found = bench.in_turns({name: partial(ask, it) for name, it in sides.items()})
        times = {name: [median(it[0]) for it in series] for name, series in found.items()}
        value = timing.median_ratio(times["before"], times["dlprim"])
        bench.at_least("groups", "C in a row: before / now", value, 1.08)


def _compare(bench: Bench, before: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        to = Path(folder) / "ratios.json"
        command = [sys.executable, str(_COMPARE), "--before", before, "--json", str(to)]
        command += ["--threads", str(bench.threads), "--groups", *bench.groups]
        subprocess.run(command, check=True, env=environment(bench.threads))
        ratios: dict[str, list[float]] = json.loads(to.read_text())
    found: dict[str, list[float]] = defaultdict(list)
    for row, values in ratios.items():
        found[row.partition("|")[0]].append(median(values))
    means = {name: timing.geometric_mean(values) for name, values in found.items()}
    worst = min(means, key=means.__getitem__)
    mean = timing.geometric_mean(means.values())
    bench.at_least("groups", "all groups: before / now, mean", mean, 1.0)
    bench.at_least("groups", "all groups: before / now, least", means[worst], 0.97, worst)
