"""Where the time of a step goes: by layer and pass, as a fraction of the machine's peak."""

from __future__ import annotations

from typing import Any

import dlprim
from dlprim.nn.module import Module
from dlprim.nn.watching import times
from dlprim.testing import fma_peak

_PEAK_SECONDS = 0.2
_STEPS = 5  # that times are the means of


class Profile:
    """The times of a model for a batch, by layer and pass, of steps without an update.

    Parameters
    ----------
    model : Module
    x : array
        A batch of what it takes.
    training : bool
        Whether there is a backward pass, too.

    Attributes
    ----------
    work : dict of (str, str) to Work
        By layer and pass.
    """

    def __init__(self, model: Module, x: Any, training: bool) -> None:
        self.work = times(model, x, training, _STEPS)
        self._training = training

    def lines(self, dtype: str) -> list[str]:
        """A table, what costs most first; seconds are of a step."""
        peak = self._peak(dtype)
        total = sum(work.seconds for work in self.work.values())
        width = max((len(name) for name, _ in self.work), default=5)
        found = [f"{'layer':{width}}  {'pass':16}  ms/step  share  GFLOP/s   peak"]
        for (name, which), work in sorted(self.work.items(), key=lambda it: -it[1].seconds):
            rate = work.flops / work.seconds if work.seconds else 0.0
            arithmetic = f"{rate / 1e9:7.0f}  {100 * rate / peak:4.0f} %" if work.flops else ""
            found.append(
                f"{name:{width}}  {which:16}  {1e3 * work.seconds:7.2f}  "
                f"{100 * work.seconds / total:4.1f} %  {arithmetic}".rstrip()
            )
        for which in dict.fromkeys(it for _, it in self.work):
            seconds = sum(it.seconds for (_, its), it in self.work.items() if its == which)
            found.append(f"all layers, {which}: {1e3 * seconds:.1f} ms/step")
        if not self._training:
            found.append("inference; a step is a batch of training")
        threads = dlprim.get_num_threads()
        measured = f"mean of {_STEPS} steps; peak: {peak / 1e9:.0f} GFLOP/s on {threads} threads"
        return [*found, measured]

    def records(self) -> list[dict[str, Any]]:
        """The same for a result file."""
        return [
            {
                "record": "profile",
                "layer": name,
                "pass": which,
                "seconds_per_step": work.seconds,
                "flops_per_step": work.flops,
            }
            for (name, which), work in self.work.items()
        ]

    def _peak(self, dtype: str) -> float:
        if dlprim.isa() == "scalar":
            return float("inf")
        return fma_peak(seconds=_PEAK_SECONDS, dtype=dtype) * dlprim.get_num_threads()
