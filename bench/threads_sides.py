"""The processes that `bench_threads.py` asks, and what they are made of."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dlprim.bench.measuring import verification

_WORKER = Path(__file__).parent / "threads_worker.py"
# What tells a library how many threads it has, or how they wait: the benchmark says the first and
# nothing the second.
_UNSET = (
    "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "OMP_PROC_BIND", "OMP_PLACES", "GOMP_SPINCOUNT",
    "GOMP_CPU_AFFINITY", "KMP_BLOCKTIME", "MKL_NUM_THREADS", "DLPRIM_NUM_THREADS",
)  # fmt: skip
_CLOSE = 1e-3  # of the largest result


class MissingError(Exception):
    """A side has not what it would need."""


class Side(NamedTuple):
    """A library in an interpreter."""

    name: str  # dlprim, before, onnxruntime, openvino
    python: str = sys.executable

    @property
    def library(self) -> str:
        return "dlprim" if self.name == "before" else self.name


def environment(threads: int, **more: str) -> dict[str, str]:
    """Of a process that is measured."""
    kept = {name: value for name, value in os.environ.items() if name not in _UNSET}
    return kept | {"OPENBLAS_NUM_THREADS": str(threads), "DLPRIM_TUNE": "0"} | more


class Worker:
    """A running process of a side, of a program that answers questions."""

    def __init__(self, side: Side, threads: int, program: Path = _WORKER) -> None:
        self.side = side
        self._process = subprocess.Popen(
            [side.python, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env=environment(threads),
        )  # fmt: skip

    def put(self, **question: Any) -> None:
        assert self._process.stdin is not None
        print(json.dumps(question), file=self._process.stdin, flush=True)

    def get(self) -> Any:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"the process of {self.side.name} ended")
        return json.loads(answer)

    def ask(self, **question: Any) -> Any:
        self.put(**question)
        return self.get()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextlib.contextmanager
def working(side: Side, threads: int, count: int = 1, **made: Any) -> Iterator[list[Worker]]:
    """Processes that have made the same thing.

    Raises
    ------
    MissingError
        The side has not got a package.
    """
    workers = [Worker(side, threads) for _ in range(count)]
    try:
        for worker in workers:  # in turns: making things measures, too
            missing = worker.ask(do="make", library=side.library, threads=threads, **made)
            if missing:
                raise MissingError(f"{side.name} has no {missing}")
        yield workers
    finally:
        for worker in workers:
            worker.close()


def measured(workers: list[Worker], elsewhere: bool = False, **question: Any) -> list[Any]:
    """The answers of processes that are asked at the same time, after calls that are not timed."""
    for each in ({"do": "settle"}, question):
        for worker in workers:
            worker.put(elsewhere=elsewhere, **each)
        answers = [worker.get() for worker in workers]
    return answers


@contextlib.contextmanager
def busy(core: int) -> Iterator[None]:
    """Another program that never pauses, on one core."""
    program = f"import os\nos.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.wait()


def verify(sides: list[Side], threads: int, path: Path) -> None:
    """Stop unless every side computes what ONNX Runtime does."""
    results = []
    for side in [Side("onnxruntime"), *sides]:
        with (
            tempfile.TemporaryDirectory() as folder,
            working(side, threads, path=str(path)) as [worker],
        ):
            to = Path(folder) / "result.npy"
            worker.ask(do="save", to=str(to))
            results.append(np.load(to))
    exact = results[0]
    bound = np.full(exact.shape, _CLOSE * np.abs(exact).max())
    for side, result in zip(sides, results[1:], strict=True):
        verification.verify(f"{path.stem} of {side.name}", result, exact, bound)
