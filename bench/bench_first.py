"""The first result of a network file, and what stays in memory: beside ONNX Runtime.

Each side loads the file and calls it in a process of its own, on one thread, after its library was
imported and the file was read once. A figure is the median of the CPU time until the first result
is there. Memory is what is resident after the second call and was not before loading, over the
bytes of the file, which holds float32.

    python bench/threads_models.py models && python bench/bench_first.py models/*.onnx
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

_SIDES = ("dlprim", "dlprim bfloat16", "onnxruntime")


def _resident() -> int:
    text = Path("/proc/self/status").read_text()
    return 1024 * int(text[text.index("VmRSS:") :].split()[1])


def _drawn(ports: dict[str, tuple[Any, Any]]) -> dict[str, np.ndarray]:
    """Extents without a number are 1; whole numbers are below 100."""
    random, arrays = np.random.default_rng(0), {}
    for name, (shape, dtype) in ports.items():
        extents = [it if isinstance(it, int) else 1 for it in shape]
        if np.dtype(dtype).kind in "iu":
            arrays[name] = random.integers(0, 100, extents).astype(dtype)
        else:
            arrays[name] = random.standard_normal(extents).astype(dtype)
    return arrays


def _dlprim(path: Path, dtype: str | None) -> Any:
    import onnx  # noqa: F401, which the first load imports

    import dlprim
    import dlprim.onnx

    dlprim.set_num_threads(1)

    def first() -> Any:
        model = dlprim.onnx.load(path, dtype=dtype)
        arrays = _drawn({name: (it.shape, it.dtype) for name, it in model.inputs.items()})
        return lambda: model.run(arrays)

    return first


def _onnxruntime(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": bool}

    def first() -> Any:
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        ports = {it.name: (it.shape, kinds[it.type]) for it in session.get_inputs()}
        arrays = _drawn(ports)
        return lambda: session.run(None, arrays)

    return first


def serve(side: str, path: Path) -> None:
    """Print what one side takes, as JSON."""
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})
    first = (
        _onnxruntime(path)
        if side == "onnxruntime"
        else _dlprim(path, "bfloat16" if "bfloat16" in side else None)
    )
    path.read_bytes()
    before, start = _resident(), time.process_time()
    call = first()
    call()
    seconds = time.process_time() - start
    call()
    print(json.dumps({"seconds": seconds, "resident": _resident() - before}))


def _asked(side: str, path: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--serve", side, str(path)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, float] = json.loads(answer.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", choices=_SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.files[0])
        return
    for path in options.files:
        rounds = [{side: _asked(side, path) for side in _SIDES} for _ in range(options.rounds)]
        print(f"{path.name}, {path.stat().st_size / 2**20:.0f} MiB")
        for side in _SIDES:
            seconds = median(it[side]["seconds"] for it in rounds)
            ratio = median(it[side]["seconds"] / it["onnxruntime"]["seconds"] for it in rounds)
            memory = median(it[side]["resident"] for it in rounds) / path.stat().st_size
            print(f"  {side:16s} {seconds:6.2f} s, {ratio:5.2f} of ONNX Runtime's; ", end="")
            print(f"memory {memory:5.2f} of the file", flush=True)


if __name__ == "__main__":
    main()
