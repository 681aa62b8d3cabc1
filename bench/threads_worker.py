"""One side of `bench_threads.py`, in a process of its own: answers questions on stdin.

A question and its answer are a line of JSON each. ``make`` makes what is measured; ``settle`` runs
it untimed until the system has spread the threads over the cores; ``times`` and ``rate`` measure.
Libraries wait for work as they do by themselves: people meet that, and no other side's threads
are in this process. A library is imported when something of it is made and not before.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import numpy as np

Call = Callable[[], Any]

_QUIET = 0.1  # seconds until threads of the side before sleep: ONNX Runtime's spin for 50 ms
_WARM = 0.1  # seconds of work until threads that woke on one core have got one each
_MOST = 100_000  # times that an answer holds
_TORCH_ELEMENTS = 1 << 18  # a sum of them takes about 0.03 ms


def _model(library: str, threads: int, path: str) -> Call:
    """A call that runs the file and gives its first result."""
    x = np.load(Path(path).with_suffix(".npz"))["x"]
    if library == "dlprim":
        import dlprim
        import dlprim.onnx

        dlprim.set_num_threads(threads)
        model = dlprim.onnx.load(path)
        return lambda: model(x)
    if library == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, {"x": x})[0]
    import openvino

    properties = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": "f32",  # it takes bfloat16 unasked where the CPU has it
    }
    compiled = openvino.Core().compile_model(path, "CPU", properties)
    request = compiled.create_infer_request()
    return lambda: request.infer({"x": x}, share_inputs=True, share_outputs=True)[0]


def _operand(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def _linear(threads: int) -> Call:
    import dlprim

    dlprim.set_num_threads(threads)
    x, w = _operand(256, 512), _operand(512, 512)
    return lambda: dlprim.linear(x, w)


def _dot(threads: int) -> Call:
    """NumPy's; how many threads OpenBLAS has, the environment says (`threads_sides.Side`)."""
    x, w = _operand(256, 512), _operand(512, 512)
    return lambda: np.dot(x, w)


def _torch(threads: int) -> Call:
    import torch

    torch.set_num_threads(threads)
    a, b, c = (torch.from_numpy(_operand(_TORCH_ELEMENTS)) for _ in range(3))
    return lambda: torch.add(a, b, out=c)


def _step(threads: int) -> Call:
    import checkout  # noqa: F401, before what is measured
    import dlprim
    from dlprim.bench.networks.sides import Ours, Setting, batch_of

    dlprim.set_num_threads(threads)
    setting = Setting("resnet50", "float32", batch=16)
    ours = Ours(setting)
    src, targets = batch_of(setting, 0)
    return lambda: ours.train(src, targets)


_KINDS = {"linear": _linear, "dot": _dot, "torch": _torch, "step": _step}


def _made(question: dict[str, Any]) -> Call:
    """A call of what the question names; several names are called in turns."""
    if "path" in question:
        return _model(question["library"], question["threads"], question["path"])
    calls = [_KINDS[name](question["threads"]) for name in question["kinds"]]
    if len(calls) == 1:
        return calls[0]
    first, second = calls

    def both() -> None:
        first()
        second()

    return both


def _settle(call: Call) -> None:
    time.sleep(_QUIET)
    end = time.perf_counter() + _WARM
    call()
    while time.perf_counter() < end:
        call()


def _times(call: Call, seconds: float, pause: float = 0) -> list[float]:
    """Seconds of each call in a stretch, each after a sleep if there is a pause."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end and len(found) < _MOST:
        if pause:
            time.sleep(pause)
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return found


def _rate(call: Call, seconds: float, callers: int = 1) -> float:
    """Calls a second: of this thread, or of several others that begin at once."""
    if callers == 1:
        return _calls_until(call, time.perf_counter() + seconds)
    barrier, rates = Barrier(callers), [0.0] * callers

    def run(place: int) -> None:
        call()  # the first of a thread
        barrier.wait()
        rates[place] = _calls_until(call, time.perf_counter() + seconds)

    threads = [Thread(target=run, args=(place,)) for place in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(rates)


def _calls_until(call: Call, end: float) -> float:
    """Calls a second from now on, the one that runs at the end included, and at least one."""
    begin = now = time.perf_counter()
    calls = 0
    while now < end or calls == 0:
        call()
        calls += 1
        now = time.perf_counter()
    return calls / (now - begin)


_MEASURES: dict[str, Callable[..., Any]] = {"settle": _settle, "times": _times, "rate": _rate}


class Worker:
    """What one process has made."""

    def __init__(self) -> None:
        self._call: Call = lambda: None
        self._other = ThreadPoolExecutor(1)  # a thread that is not the first

    def answer(self, question: dict[str, Any]) -> Any:
        do = question.pop("do")
        if do == "make":
            return self._make(question)
        if do == "save":
            return np.save(question["to"], np.asarray(self._call()))
        measure = _MEASURES[do]
        if question.pop("elsewhere", False):
            return self._other.submit(measure, self._call, **question).result()
        return measure(self._call, **question)

    def _make(self, question: dict[str, Any]) -> str | None:
        """What is missing here, or None."""
        try:
            self._call = _made(question)
        except ModuleNotFoundError as error:
            return str(error.name)
        self._call()
        return None


def serve(answer: Callable[[dict[str, Any]], Any]) -> None:
    """Answers questions until nobody asks any more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed is no answer
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    serve(Worker().answer)
