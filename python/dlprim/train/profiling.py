"""Where the time of a step goes: by layer and pass, as a fraction of the machine's peak."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dlprim
from dlprim.nn.module import Module
from dlprim.testing import fma_peak

_PEAK_SECONDS = 0.2
_TESTS = 5


@dataclass
class Work:
    """Of one layer in one pass."""

    seconds: float = 0.0
    flops: float = 0.0
    calls: int = 0


class Profile:
    """A timer for `dlprim.nn.Context`."""

    def __init__(self) -> None:
        self.work: dict[tuple[str, str], Work] = {}

    @contextmanager
    def timer(self, name: str, which: str, flops: float) -> Iterator[None]:
        """Around the work of a layer."""
        begin = time.perf_counter()
        yield
        work = self.work.setdefault((name, which), Work())
        work.seconds += time.perf_counter() - begin
        work.flops += flops
        work.calls += 1

    def of_tests(self, model: Module, test: Callable[[Any], float], dtype: str) -> list[str]:
        """`lines` of a model's inference on its test samples, after a test that packed weights."""
        model.context.timer = self.timer
        for _ in range(_TESTS):
            test(model)
        model.context.timer = None
        text = f"inference; a step is all test samples, {_TESTS} of them after one not measured"
        return [text, *self.lines(_TESTS, dtype)]

    def lines(self, steps: int, dtype: str) -> list[str]:
        """A table, what costs most first; seconds are of a step."""
        peak = self._peak(dtype)
        total = sum(work.seconds for work in self.work.values())
        width = max((len(name) for name, _ in self.work), default=5)
        found = [f"{'layer':{width}}  {'pass':16}  ms/step  share  GFLOP/s   peak"]
        for (name, which), work in sorted(self.work.items(), key=lambda it: -it[1].seconds):
            rate = work.flops / work.seconds if work.seconds else 0.0
            arithmetic = f"{rate / 1e9:7.0f}  {100 * rate / peak:4.0f} %" if work.flops else ""
            found.append(
                f"{name:{width}}  {which:16}  {1e3 * work.seconds / steps:7.2f}  "
                f"{100 * work.seconds / total:4.1f} %  {arithmetic}".rstrip()
            )
        for which, work in self._passes().items():
            found.append(f"all layers, {which}: {1e3 * work.seconds / steps:.1f} ms/step")
        return [*found, f"peak: {peak / 1e9:.0f} GFLOP/s on {dlprim.get_num_threads()} threads"]

    def records(self, steps: int) -> list[dict[str, Any]]:
        """The same for a result file."""
        return [
            {
                "record": "profile",
                "layer": name,
                "pass": which,
                "seconds_per_step": work.seconds / steps,
                "flops_per_step": work.flops / steps,
            }
            for (name, which), work in self.work.items()
        ]

    def _passes(self) -> dict[str, Work]:
        found: dict[str, Work] = {}
        for (_, which), work in self.work.items():
            found.setdefault(which, Work()).seconds += work.seconds
        return found

    def _peak(self, dtype: str) -> float:
        if dlprim.isa() == "scalar":
            return float("inf")
        return fma_peak(seconds=_PEAK_SECONDS, dtype=dtype) * dlprim.get_num_threads()
