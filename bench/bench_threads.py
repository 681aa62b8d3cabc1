"""Two threads on a machine that somebody else uses too: after pauses, beside programs, in pools.

Every side runs in processes of its own, so that nobody's threads stand in another's way, and waits
for work as its library does by itself; all are held to as many CPUs as threads. Sides take turns,
stretch by stretch; each stretch begins with rest and calls that are not timed. A figure is a
median over rounds. Nothing is timed before all sides computed what ONNX Runtime does.

    python bench/bench_threads.py --rows pause processes --models S C --before old/bin/python
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

# Before NumPy: the processes inherit what --isa says.
import held_isa

# isort: split

import threads_models
from dlprim import hardware
from threads_bench import Bench
from threads_rows import ROWS
from threads_sides import Side, verify

_PEERS = ("onnxruntime", "openvino")
_FOLDER = Path(tempfile.gettempdir()) / "dlprim-bench-threads"


def _held_to(cores: int) -> list[int]:
    """The CPUs that this process and those that it starts may use from now on."""
    usable = sorted(os.sched_getaffinity(0))[:cores]
    if len(usable) < cores:
        raise SystemExit(f"{cores} threads need as many CPUs; here are {len(usable)}")
    os.sched_setaffinity(0, usable)
    return usable


def _sides(options: argparse.Namespace) -> dict[str, Side]:
    found = {"dlprim": Side("dlprim")}
    if options.before:
        found["before"] = Side("before", options.before)
    return found | {name: Side(name) for name in options.peers}


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    models = threads_models.MODELS
    parser.add_argument("--models", nargs="+", choices=models, default=list(models))
    parser.add_argument("--before", help="Python of an older build's environment")
    parser.add_argument("--peers", nargs="*", choices=_PEERS, default=list(_PEERS))
    parser.add_argument("--threads", type=int, default=2, help="and CPUs")
    held_isa.add_to(parser)
    parser.add_argument("--seconds", type=float, default=2, help="of a stretch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--groups", nargs="+", default=[""], help="of compare_builds.py")
    parser.add_argument("--folder", type=Path, default=_FOLDER, help="of the model files")
    parser.add_argument("--json", type=Path, help="where the figures go")
    return parser.parse_args()


def main() -> None:
    options = _flags()
    paths = {name: threads_models.file_of(name, options.folder) for name in options.models}
    cores = _held_to(options.threads)
    sides = _sides(options)
    print(f"{hardware.cpu_name()}, CPUs {cores}, {options.threads} threads, {sys.executable}")
    for path in paths.values():
        verify(list(sides.values()), options.threads, path)
    bench = Bench(
        sides, paths, options.threads, cores, options.seconds, options.rounds, options.groups
    )
    for row in options.rows:
        ROWS[row](bench)
    short = sum(not figure.reached for figure in bench.figures)
    print(f"{short} of {sum(bool(figure.bar) for figure in bench.figures)} bars are not reached")
    if options.json:
        bench.write(options.json, cpu=hardware.cpu_name(), threads=options.threads)


if __name__ == "__main__":
    main()
