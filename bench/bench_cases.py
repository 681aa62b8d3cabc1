"""Small models from files of cases: the CPU time of a call beside ONNX Runtime's, one thread each.

Cases are what Python scripts in a folder run by `onnxruntime.InferenceSession`: the model of each
session and the arrays of its first call. Scripts run as they are, with what they print left out.
Of each case the results of both sides are compared before they take turns; a case that ONNX Runtime
or dlprim refuses, or where they differ, is named and not measured.

    python bench/bench_cases.py DIR
    python bench/bench_cases.py DIR --only loop control --rounds 31
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import runpy
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

# What the libraries read once: held before they are loaded.
import held_isa

# isort: split

import numpy as np
import onnx
import onnxruntime

import dlprim
import dlprim.onnx
from dlprim.bench.measuring import timing

_CLOSE = 5e-3  # of the largest element, as float16 and sums of bytes have it
_LEAST_TURN = 2e-3  # seconds: the clock of a thread costs a call of the system


@dataclass(frozen=True)
class Case:
    name: str
    model: bytes
    feed: dict[str, Any]


@dataclass(frozen=True)
class Record:
    name: str
    ratio: float  # of dlprim's CPU time to ONNX Runtime's
    microseconds: float
    peer_microseconds: float


def _name(script: Path, number: int, model: bytes, feed: dict[str, Any]) -> str:
    graph = onnx.load_from_string(model).graph
    operators = list(dict.fromkeys(it.op_type for it in graph.node))
    listed = ", ".join(operators[:4]) + (", ..." if len(operators) > 4 else "")
    shapes = ", ".join("x".join(map(str, np.shape(it))) or "one" for it in feed.values())
    return f"{script.stem} {number}: {listed} of {shapes or 'nothing'}"


def collect(script: Path) -> list[Case]:
    """The model and the first arrays of every session that a script runs."""
    cases: list[Case] = []
    session = onnxruntime.InferenceSession

    class Recorded(session):  # type: ignore[misc, valid-type]
        def __init__(self, model: Any, *arguments: Any, **settings: Any) -> None:
            super().__init__(model, *arguments, **settings)
            self.model = model if isinstance(model, bytes) else Path(model).read_bytes()

        def run(self, names: Any, feed: dict[str, Any], *others: Any) -> Any:
            results = super().run(names, feed, *others)
            if self.model:
                cases.append(
                    Case(_name(script, len(cases), self.model, feed), self.model, dict(feed))
                )
                self.model = b""
            return results

    onnxruntime.InferenceSession = Recorded
    sys.path.insert(0, str(script.parent))
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.path.remove(str(script.parent))
        onnxruntime.InferenceSession = session
    return cases


def _differ(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, list):
        return len(ours) != len(theirs) or any(map(_differ, ours, theirs))
    if theirs is None:
        return ours is not None
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if ours.shape != theirs.shape or ours.dtype.kind != theirs.dtype.kind:
        return True
    if theirs.dtype.kind not in "biuf":
        return not np.array_equal(ours, theirs)
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    scale = np.abs(theirs[np.isfinite(theirs)]).max(initial=0)
    return not np.allclose(ours, theirs, rtol=0, atol=_CLOSE * scale, equal_nan=True)


def _sides(case: Case) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Calls of dlprim and of ONNX Runtime; an error where one refuses or both differ."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(case.model, options, providers=["CPUExecutionProvider"])
    model = dlprim.onnx.load(case.model)
    ours, theirs = model.run(case.feed), session.run(None, case.feed)
    if _differ(ours, theirs):
        raise ValueError("the results differ")
    return (lambda: model.run(case.feed)), (lambda: session.run(None, case.feed))


def _turns(call: Callable[[], Any]) -> Callable[[], float]:
    """Seconds of this thread per call."""

    def seconds(repeats: int) -> float:
        start = time.thread_time()
        for _ in range(repeats):
            call()
        return (time.thread_time() - start) / repeats

    seconds(2)
    repeats = max(1, round(_LEAST_TURN / max(seconds(1), 1e-7)))

    def turn() -> float:
        call()
        return seconds(repeats)

    return turn


def measure(case: Case, rounds: int) -> Record:
    ours, theirs = timing.alternate(map(_turns, _sides(case)), rounds)
    ratio = timing.median_ratio(ours, theirs)
    return Record(case.name, ratio, 1e6 * median(ours), 1e6 * median(theirs))


def run(scripts: list[Path], rounds: int) -> Iterator[Record]:
    for script in scripts:
        for case in collect(script):
            try:
                record = measure(case, rounds)
            except Exception as error:
                print(f"  left out  {case.name}: {str(error).splitlines()[0][:120]}")
                continue
            print(
                f"{record.ratio:7.2f}  {record.microseconds:10.1f} us, ONNX Runtime "
                f"{record.peer_microseconds:10.1f}  {record.name}",
                flush=True,
            )
            yield record


def print_summary(records: list[Record]) -> None:
    mean = timing.geometric_mean(it.ratio for it in records)
    above = sorted((it for it in records if it.ratio > 1), key=lambda it: -it.ratio)
    print(f"{len(records)} cases, geometric mean {mean:.2f}, above 1: {len(above)}")
    for record in above:
        print(f"{record.ratio:7.2f}  {record.name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="of scripts; a name that starts by _ is none")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these scripts, without .py")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each side per case")
    parser.add_argument("--core", type=int, default=0, help="core to run on")
    parser.add_argument("--json", type=Path, default=Path("bench_cases.jsonl"), metavar="FILE")
    held_isa.add_to(parser)
    options = parser.parse_args()
    timing.place([options.core], 1)
    dlprim.set_num_threads(1)
    scripts = sorted(it for it in options.folder.glob("*.py") if not it.name.startswith("_"))
    if options.only:
        scripts = [it for it in scripts if it.stem in options.only]
    records = list(run(scripts, options.rounds))
    if not records:
        parser.error("expected a folder of scripts that run onnxruntime")
    print_summary(records)
    options.json.write_text("".join(json.dumps(asdict(it)) + "\n" for it in records))


if __name__ == "__main__":
    main()
