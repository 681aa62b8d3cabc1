"""Loads and runs the models named on standard input, one a line, within bounded memory and time.

Each gives a line of JSON: whether it was refused or ran, in which words and how long. What dies by
a signal gives none, which its parent sees.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import dlprim
import dlprim.onnx

_BYTES = 1 << 30  # beyond what the imports have taken
_MAX_BYTES = 1 << 26  # what models are granted, whose steps take copies
_SECONDS = 60


def _bounded() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + _BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _outcome(path: str, arrays: list[np.ndarray]) -> dict[str, Any]:
    expected: tuple[type[Exception], ...] = (ValueError,)
    start = time.perf_counter()
    try:
        model = dlprim.onnx.load(path, max_bytes=_MAX_BYTES)
        expected = (ValueError, TypeError)  # a damaged model may take other inputs
        model(*arrays)
        kind, words = "ran", ""
    except Exception as error:
        refused = isinstance(error, expected)
        kind, words = ("refused" if refused else "raised"), f"{type(error).__name__}: {error}"
    seconds = time.perf_counter() - start
    return {"path": path, "kind": kind, "words": words[:2000], "seconds": seconds}


def main() -> None:
    warnings.simplefilter("ignore")
    dlprim.set_num_threads(1)
    shapes = json.loads(sys.argv[1])
    arrays = [np.linspace(-1, 1, int(np.prod(it))).reshape(it).astype("f4") for it in shapes]
    _bounded()
    for line in sys.stdin:
        signal.alarm(_SECONDS)
        print(json.dumps(_outcome(line.strip(), arrays)), flush=True)
        signal.alarm(0)


if __name__ == "__main__":
    main()
