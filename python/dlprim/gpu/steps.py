"""Kernels that run one after the other on arrays that have names, with their genes, and `tune`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
import torch
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources

from dlprim import schedule_store as store
from dlprim.arguments.arrays import FloatArray
from dlprim.gpu import choice
from dlprim.gpu.arrays import interprets
from dlprim.gpu.kernels import Kernel, kernels_of
from dlprim.gpu.mapping import PARTS, Step, Tile
from dlprim.gpu.tree import Array, count
from dlprim.tuning.moves import Decision
from dlprim.tuning.search import Choices, Limits, Pass, Search
from dlprim.tuning.tune import require_seconds

_RANKED = 32  # tiles of the model whose genes are tried
_BESIDES = {"warps": (4, 8), "order": (8, 4, 16, 1)}  # of products
_Made: TypeAlias = tuple[list[Tile], list[list[Kernel]]]


class Steps(ABC):
    """What `Brgemm` and formulas are: steps, and for each the kernels of its genes.

    Attributes
    ----------
    name : str
    schedule : dict of str
        The genes of every kernel, by name.
    """

    def __init__(
        self, name: str, steps: Sequence[Step], arrays: Mapping[str, Array], precision: str
    ) -> None:
        self.name, self.steps, self.arrays, self.precision = name, steps, arrays, precision
        # Kernels count places by 32 bits.
        most = {array: it.span for array, it in arrays.items()}
        for it in steps:
            loops = (*it.outer, *it.rows), it.columns, (*it.batch, *it.k)
            most["a loop"] = max(most.get("a loop", 0), *map(count, loops))
        for what, extent in most.items():
            if extent >= 2**31:
                raise ValueError(f"{what} spans {extent} elements, expected less than 2^31")
        on = choice.device()
        self.ranked = [choice.tiles_for(it, arrays, on, precision) for it in steps]
        lie = " ".join(f"{name}={''.join(map(str, it))}" for name, it in arrays.items())
        what = " ".join(it.described() for it in steps)
        # What its schedule is called in the file of schedules.
        self.stored_as = f"gpu {on.name} {precision} {name} {what} {lie}".replace(", ", ",")
        try:
            self.use((store.stored(self.stored_as) if store.has_entries() else None) or {})
        except ValueError as error:
            store.ignore(self.stored_as, str(error))
            self.use({})

    def made(self, schedule: Mapping[str, str]) -> _Made:
        """Tiles, where a schedule says nothing the model's, and their kernels.

        ValueError where genes are no positive integers.
        """
        tiles, kernels = list[Tile](), list[list[Kernel]]()
        for number, (it, ranked) in enumerate(zip(self.steps, self.ranked, strict=True), 1):
            genes = ranked[0]._asdict().items()
            tile = Tile(*(int(schedule.get(f"kernel {number} {name}", by)) for name, by in genes))
            if min(tile) < 1:
                raise ValueError(f"genes are {list(tile)}, expected positive integers")
            name = f"{self.name or 'formula'}_{number}"
            tiles.append(tile)
            kernels.append(kernels_of(it, tile, self.arrays, self.precision, name))
        return tiles, kernels

    def use(self, schedule: Mapping[str, str]) -> None:
        """From the next call on."""
        self.tiles, self.kernels = self.made(schedule)

    @property
    def schedule(self) -> dict[str, str]:
        return _schedule(self.tiles)

    def new(self, name: str, device: Any) -> Any:
        it = self.arrays[name]
        return torch.empty(it.shape, dtype=getattr(torch, it.dtype), device=device)

    def launch(
        self,
        buffers: dict[str, Any],
        numbers: Mapping[str, int],
        kernels: Sequence[Sequence[Kernel]] | None = None,
    ) -> None:
        """On tensors by name; results and what is between them are added where they are missing."""
        device = next(iter(buffers.values())).device
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            for step, of_step in zip(self.steps, kernels or self.kernels, strict=True):
                for name in step.stored - buffers.keys():
                    buffers[name] = self.new(name, device)
                for kernel in of_step:
                    if kernel.scratch:
                        buffers[PARTS] = torch.empty(kernel.scratch, device=device)
                    arrays = [buffers[name] for name in kernel.arrays]
                    kernel.launch(arrays, [numbers[name] for name in kernel.numbers])

    def explain(self) -> str:
        """Of every step what it is mapped to, its genes, and the text of its kernels."""
        lines, at = [], 0
        for number, (it, tile) in enumerate(zip(self.steps, self.tiles, strict=True), 1):
            first, at = at + 1, at + len(it.statements)
            which = f"statement {at}" if at == first else f"statements {first} to {at}"
            genes = ", ".join(f"{name} {by}" for name, by in tile._asdict().items())
            lines += [f"{which}: {it.described()}", f"  kernel {number}: {genes}"]
            lines += [kernel.source for kernel in self.kernels[number - 1]]
        return "\n".join(lines)

    def tune(self, *arrays: Any, seconds: float = 30.0, **keywords: Any) -> float:
        """Measure other genes on these arrays, use the fastest and keep them for this device.

        `seconds`, `generations`, `population`, `seed` and `progress` are as of `dlprim.tune`; what
        a call takes by name may be given, too. Returns how many times as fast as the model's choice
        it now is. No array is changed.
        """
        require_seconds("seconds", seconds)
        progress = keywords.pop("progress", print) or (lambda line: None)
        limits = {name: keywords.pop(name) for name in keywords.keys() & Limits._fields}
        folder = store.default_folder()
        store.require_writable(folder)
        work = _Work(self, *self.operands(*arrays, **keywords))
        search = Search(work, _clock, progress, Limits(**limits))
        winner = search.run([self.schedule], perf_counter() + seconds)
        if winner.tried:
            self.use(winner.choices)
            entry = {"schedule": winner.choices, "gain": round(winner.gain, 3)}
            store.save(folder, {self.stored_as: entry if winner.gain > 1 else None})
        return winner.gain

    @abstractmethod
    def operands(self, *arrays: Any, **named: Any) -> tuple[dict[str, Any], dict[str, int]]:
        """What a call on these arrays launches kernels on."""


def _schedule(tiles: Sequence[Tile]) -> dict[str, str]:
    return {
        f"kernel {number} {gene}": str(value)
        for number, tile in enumerate(tiles, 1)
        for gene, value in tile._asdict().items()
    }


def _clock() -> float:
    if not interprets():
        torch.cuda.synchronize()
    return perf_counter()


class _Work(Pass):
    """What is tuned, on copies of what it writes."""

    def __init__(self, steps: Steps, buffers: dict[str, Any], numbers: dict[str, int]) -> None:
        self._steps, self._given, self._numbers = steps, buffers, numbers
        self._written = sorted(set().union(*(it.stored for it in steps.steps)))
        self._spare = self._copied()
        types = [steps.arrays[name].dtype.replace("bfloat", "float") for name in self._written]
        super().__init__(steps.name, [np.empty(1, dtype) for dtype in types])

    def _copied(self) -> dict[str, Any]:
        given = self._given.items()
        return {name: it.clone() if name in self._written else it for name, it in given}

    def made(self, choices: Choices, spare: Any = None) -> Any:
        try:
            core = self._steps.made(choices)
            self.run(core)
        except (OutOfResources, CompilationError, ValueError):
            return None
        return core

    def decisions(self, core: _Made) -> dict[str, Decision]:
        of = _schedule(core[0]).items()
        return {name: Decision(chosen, self._options(name), {}) for name, chosen in of}

    def _options(self, name: str) -> list[str]:
        _, number, gene = name.split()
        at = int(number) - 1
        besides = _BESIDES.get(gene, ()) if self._steps.steps[at].factors else ()
        ranked = (getattr(it, gene) for it in self._steps.ranked[at][:_RANKED])
        return list(dict.fromkeys(map(str, [*ranked, *besides])))

    def run(self, core: _Made) -> None:
        self._steps.launch(self._spare, self._numbers, core[1])

    def result(self, core: _Made) -> list[FloatArray]:
        self._spare = self._copied()
        self.run(core)
        return [self._spare[name].float().cpu().numpy().copy() for name in self._written]
