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
WARM = 2  # steps that generate code and touch memory for the first time


@dataclass
class Work:
    """Of one layer in one pass."""

    seconds: float = 0.0
    flops: float = 0.0
    calls: int = 0


class Profile:
    """A timer for `dlprim.nn.Context`, which forgets the first steps as soon as others follow."""

    def __init__(self) -> None:
        self.work: dict[tuple[str, str], Work] = {}
        self._seen = self._left_out = 0

    def after_step(self, others_follow: bool) -> None:
        """To be called after each."""
        self._seen += 1
        if self._seen == WARM and others_follow:
            self.work, self._left_out = {}, WARM

    @property
    def steps(self) -> int:
        """That were measured."""
        return max(self._seen - self._left_out, 1)

    @contextmanager
    def timer(self, name: str, which: str, flops: float) -> Iterator[None]:
        """Around the work of a layer."""
        begin = time.perf_counter()
        yield
        work = self.work.setdefault((name, which), Work())
        work.seconds += time.perf_counter() - begin
        work.flops += flops
        work.calls += 1

    def of_tests(self, model: Module, test: Callable[[Module], float], dtype: str) -> list[str]:
        """`lines` of a model's inference on its test samples, after a test that packed weights."""
        model.context.timer = self.timer
        for _ in range(_TESTS):
            test(model)
            self.after_step(others_follow=False)
        model.context.timer = None
        return ["inference; a step is all test samples", *self.lines(dtype)]

    def lines(self, dtype: str) -> list[str]:
        """A table, what costs most first; seconds are of a step."""
        steps = self.steps
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
        measured = f"mean of {steps} steps" + (f" after {WARM}" if self._left_out else "")
        threads = dlprim.get_num_threads()
        return [*found, f"{measured}; peak: {peak / 1e9:.0f} GFLOP/s on {threads} threads"]

    def records(self) -> list[dict[str, Any]]:
        """The same for a result file."""
        return [
            {
                "record": "profile",
                "layer": name,
                "pass": which,
                "seconds_per_step": work.seconds / self.steps,
                "flops_per_step": work.flops / self.steps,
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
