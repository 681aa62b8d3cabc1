"""Kernels that run one after the other on arrays that have names, with their genes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any

import torch

from dlprim.gpu import choice
from dlprim.gpu.kernels import Kernel, kernels_of
from dlprim.gpu.mapping import PARTS, Step, Tile
from dlprim.gpu.tree import Array, count
from dlprim.tuning import store


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
        self.name, self.steps, self.arrays, self._precision = name, steps, arrays, precision
        # Kernels count places by 32 bits.
        for array, it in arrays.items():
            if it.span >= 2**31:
                raise ValueError(f"{array} spans {it.span} elements, expected less than 2^31")
        for step in steps:
            most = max(map(count, (step.outer + step.rows, step.columns, step.batch + step.k)))
            if most >= 2**31:
                raise ValueError(
                    f"{name or 'the formula'} goes over {most} elements in a loop, "
                    "expected less than 2^31"
                )
        self._device = choice.device()
        stored = store.stored(self.stored_as) if store.has_entries() else None
        try:
            self.use(stored or {})
        except ValueError as error:
            store.ignore(self.stored_as, str(error))
            self.use({})

    @property
    def stored_as(self) -> str:
        """What its schedule is called in the file of schedules."""
        lie = " ".join(f"{name}={''.join(map(str, it))}" for name, it in self.arrays.items())
        what = " ".join(step.described() for step in self.steps)
        text = f"gpu {self._device.name} {self._precision} {self.name} {what} {lie}"
        return text.replace(", ", ",")

    def genes_of(self, number: int, on: choice.Device) -> Sequence[Tile]:
        """Of a step, the model's choice first."""
        return choice.tiles_for(self.steps[number], self.arrays, on, self._precision)

    @cached_property
    def ranked(self) -> list[Sequence[Tile]]:
        """By step, on this device."""
        return [self.genes_of(number, self._device) for number in range(len(self.steps))]

    def full(self, schedule: Mapping[str, str]) -> dict[str, str]:
        """With the model's choice of what it does not say."""
        return {
            f"kernel {number} {gene}": str(schedule.get(f"kernel {number} {gene}", value))
            for number, genes in enumerate(self.ranked, 1)
            for gene, value in genes[0]._asdict().items()
        }

    def made(self, schedule: Mapping[str, str]) -> list[list[Kernel]]:
        """By genes that are all said; ValueError where they are no positive integers."""
        made = []
        for number in range(len(self.steps)):
            values = [int(schedule[f"kernel {number + 1} {gene}"]) for gene in Tile._fields]
            if min(values) < 1:
                raise ValueError(f"genes are {values}, expected positive integers")
            made.append(self.kernels_of(number, Tile(*values)))
        return made

    def kernels_of(self, number: int, genes: Tile) -> list[Kernel]:
        name = f"{self.name or 'formula'}_{number + 1}"
        return kernels_of(self.steps[number], genes, self.arrays, self._precision, name)

    def use(self, schedule: Mapping[str, str]) -> None:
        """From the next call on."""
        self.schedule = self.full(schedule)
        self.kernels = self.made(self.schedule)

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
        lines, at = [], 1
        for number, (step, kernels) in enumerate(zip(self.steps, self.kernels, strict=True), 1):
            last = at + len(step.statements) - 1
            which = f"statement {at}" if at == last else f"statements {at} to {last}"
            own = f"kernel {number} "
            genes = [f"{it[len(own) :]} {by}" for it, by in self.schedule.items() if own in it]
            lines += [f"{which}: {step.described()}", f"  kernel {number}: {', '.join(genes)}"]
            lines += [kernel.source for kernel in kernels]
            at = last + 1
        return "\n".join(lines)

    def tune(self, *arrays: Any, seconds: float = 30.0, **keywords: Any) -> float:
        """Measure other genes on these arrays, use the fastest and keep them for this device.

        `seconds`, `generations`, `population`, `seed` and `progress` are as of `dlprim.tune`; what
        a call takes by name may be given, too. Returns how many times as fast as the model's choice
        it now is. No array is changed.
        """
        from dlprim.gpu.tuning import tune  # which imports this

        names = keywords.keys() & {"generations", "population", "seed", "progress"}
        search = {name: keywords.pop(name) for name in names}
        return tune(self, self.operands(*arrays, **keywords), seconds, **search)

    @abstractmethod
    def operands(self, *arrays: Any, **named: Any) -> tuple[dict[str, Any], dict[str, int]]:
        """What a call on these arrays launches kernels on."""
