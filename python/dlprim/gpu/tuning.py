"""`tune` on a GPU: the search of `dlprim.tuning` over the genes of kernels, kept by device."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
import torch
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources

from dlprim.arguments.arrays import FloatArray
from dlprim.gpu.arrays import interprets
from dlprim.gpu.kernels import Kernel
from dlprim.gpu.steps import Steps
from dlprim.tuning import store
from dlprim.tuning.moves import Decision
from dlprim.tuning.search import Choices, Limits, Pass, Search
from dlprim.tuning.tune import require_seconds

_RANKED = 32  # tiles of the model whose genes are tried
_BESIDES = {"warps": (4, 8), "order": (8, 4, 16, 1)}  # of products


class _Work(Pass):
    """What runs is kernels with the choices they are made of."""

    def __init__(self, steps: Steps, buffers: dict[str, Any], numbers: dict[str, int]) -> None:
        self._steps, self._numbers = steps, numbers
        self._written = sorted(set().union(*(step.stored for step in steps.steps)))
        self._given = {
            name: it.clone() if name in self._written else it for name, it in buffers.items()
        }
        arrays = [steps.arrays[name].dtype.replace("bfloat", "float") for name in self._written]
        super().__init__(steps.name, [np.empty(1, dtype) for dtype in arrays])

    def made(self, choices: Choices, spare: Any = None) -> Any:
        full = self._steps.full(choices)
        try:
            core = full, self._steps.made(full)
            self.run(core)
        except (OutOfResources, CompilationError, ValueError):
            return None
        return core

    def decisions(self, core: tuple[Choices, list[list[Kernel]]]) -> dict[str, Decision]:
        return {name: Decision(chosen, self._options(name), {}) for name, chosen in core[0].items()}

    def _options(self, name: str) -> list[str]:
        _, number, gene = name.split()
        at = int(number) - 1
        besides = _BESIDES.get(gene, ()) if self._steps.steps[at].factors else ()
        ranked = (getattr(it, gene) for it in self._steps.ranked[at][:_RANKED])
        return list(dict.fromkeys(map(str, [*ranked, *besides])))

    def run(self, core: Any) -> Any:
        buffers = dict(self._given)
        self._steps.launch(buffers, self._numbers, core[1])
        return buffers

    def result(self, core: Any) -> list[FloatArray]:
        before = {name: it.clone() for name, it in self._given.items() if name in self._written}
        buffers = self.run(core)
        made = [buffers[name].float().cpu().numpy().copy() for name in self._written]
        for name, it in before.items():
            self._given[name].copy_(it)
        return made


def tune(
    steps: Steps, operands: tuple[dict[str, Any], dict[str, int]], seconds: float, **keywords: Any
) -> float:
    """As `Steps.tune` says; what wins is kept beside the CPU's, by the device's name."""
    require_seconds("seconds", seconds)
    progress = keywords.pop("progress", print) or (lambda line: None)
    folder = store.default_folder()
    store.require_writable(folder)
    work = _Work(steps, *operands)

    def clock() -> float:
        if not interprets():
            torch.cuda.synchronize()
        return perf_counter()

    search = Search(work, clock, progress, Limits(**keywords))
    winner = search.run([steps.schedule], perf_counter() + seconds)
    if winner.tried:
        steps.use(winner.choices)
        entry = {"schedule": winner.choices, "gain": round(winner.gain, 3)}
        store.save(folder, {steps.stored_as: entry if winner.gain > 1 else None})
    return winner.gain
