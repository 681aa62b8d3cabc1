"""Ten thousand shapes of one model from eight Python threads, with a fork amid them.

Each thread takes its own part of all heights and widths, so that networks are made, found and
evicted while others run. Some results are compared, to the bit, with those of a model that meets no
other shape; a child of fork meets more shapes and computes the same.

    python tests/threads_of_shapes.py
"""

from __future__ import annotations

import os
import random
import sys
import threading
from itertools import product
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "onnx"))

import streamed_models

import dlprim
import dlprim.onnx

_THREADS = 8
_SIDES = range(10, 110)
_KEPT = 50  # results of each thread that are compared


def _run(model: dlprim.onnx.OnnxModel, plane: tuple[int, int]) -> np.ndarray:
    result: np.ndarray = model.run(streamed_models.inputs("images", 1, *plane))[0]
    return result


def _wrong(results: dict[tuple[int, int], np.ndarray]) -> list[tuple[int, int]]:
    """Those that a model which meets nothing else does not give."""
    made = streamed_models.model("images")
    return [
        plane
        for plane, result in results.items()
        if not np.array_equal(_run(dlprim.onnx.load(made), plane), result)
    ]


def _forked(model: dlprim.onnx.OnnxModel, planes: list[tuple[int, int]]) -> bool:
    """Whether a child computes what the parent does, of shapes that were not there before."""
    child = os.fork()
    if child == 0:
        results = {plane: _run(model, plane) for plane in planes}
        os._exit(bool(_wrong(results)))
    return os.waitpid(child, 0)[1] == 0


def main() -> None:
    planes = list(product(_SIDES, _SIDES))
    random.Random(0).shuffle(planes)
    model = dlprim.onnx.load(streamed_models.model("images"))
    results: dict[tuple[int, int], np.ndarray] = {}
    errors: list[BaseException] = []

    def work(part: list[tuple[int, int]]) -> None:
        try:
            for count, plane in enumerate(part):
                result = _run(model, plane)
                if count % (len(part) // _KEPT) == 0:
                    results[plane] = result
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=work, args=(planes[start::_THREADS],)) for start in range(_THREADS)
    ]
    for thread in threads:
        thread.start()
    fits = _forked(model, [(9, 9), (9, 130), (130, 9)])
    for thread in threads:
        thread.join()
    wrong = _wrong(results)
    print(f"{len(planes)} shapes, {len(results)} results compared: {len(wrong)} wrong")
    if wrong or errors or not fits:
        raise SystemExit(f"wrong: {wrong[:5]}; errors: {errors[:3]}; the child was right: {fits}")


if __name__ == "__main__":
    main()
