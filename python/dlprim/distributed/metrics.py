"""Where the seconds of a training step go, over all ranks, and what that means for scaling.

A step lasts as long as on its slowest rank, so that every figure is a maximum over the ranks
before it is a median over the steps. Communication has two figures, because only the exposed one
costs anything.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dlprim.distributed.data_parallel import DataParallel
from dlprim.distributed.group import Group
from dlprim.distributed.prediction import StepProfile
from dlprim.distributed.traffic import bus_bytes
from dlprim.files import opened


@dataclass(frozen=True)
class StepSeconds:
    """Of one step on one rank."""

    forward: float  # with the loss
    backward: float  # without what stood still for communication
    communication: float  # during which a bucket was on its way
    exposed: float  # of which nothing was computed
    optimiser: float
    input: float = 0.0  # making the batch

    @property
    def step(self) -> float:
        """All of it."""
        return self.input + self.forward + self.backward + self.exposed + self.optimiser


@dataclass(frozen=True)
class Summary:
    """Of the steps of a run; seconds are medians over steps of the slowest rank's."""

    ranks: int
    samples_per_step: int  # of all ranks
    steps: int
    step: float
    step_p10: float
    step_p90: float
    forward: float
    backward: float
    communication: float
    exposed: float
    optimiser: float
    input: float
    bytes_reduced: int  # per step, as they travel
    bus_bandwidth: float  # bytes per second
    buckets: tuple[tuple[int, float], ...]  # rank 0's, of the last step; see `Traffic`

    @property
    def samples_per_s(self) -> float:
        """Of all ranks together."""
        return self.samples_per_step / self.step

    def efficiency(self, baseline: Summary) -> float:
        """Throughput per rank against that of another run."""
        return self.samples_per_s / self.ranks / (baseline.samples_per_s / baseline.ranks)

    def profile(self) -> StepProfile:
        """What `prediction` needs to know of this run."""
        return StepProfile(self.step - self.exposed, self.buckets)

    def record(self) -> dict[str, Any]:
        """For a JSON file; `read_summary` reads it again."""
        return asdict(self) | {"samples_per_s": self.samples_per_s}

    def lines(self, baseline: Summary | None = None) -> list[str]:
        """To print."""
        rate = self.samples_per_s
        found = [
            f"{rate:.1f} samples/s on {self.ranks} rank(s), {rate / self.ranks:.1f} per rank; "
            f"step {1e3 * self.step:.1f} ms (p10 {1e3 * self.step_p10:.1f}, "
            f"p90 {1e3 * self.step_p90:.1f})",
            f"forward {1e3 * self.forward:.1f} ms, backward {1e3 * self.backward:.1f}, "
            f"communication {1e3 * self.communication:.1f} of which exposed "
            f"{1e3 * self.exposed:.1f} ({100 * self.exposed / self.step:.1f} % of the step), "
            f"optimiser {1e3 * self.optimiser:.1f}, input {1e3 * self.input:.1f}",
        ]
        if self.ranks > 1:
            found.append(
                f"{self.bytes_reduced / 1e6:.1f} MB reduced per step, bus bandwidth "
                f"{self.bus_bandwidth / 1e9:.2f} GB/s"
            )
        if baseline is not None:
            efficiency = self.efficiency(baseline)
            found.append(
                f"scaling efficiency {efficiency:.3f}, speed-up "
                f"{efficiency * self.ranks / baseline.ranks:.2f} over {baseline.ranks} rank(s)"
            )
        return found


def summarize(parallel: DataParallel, steps: list[StepSeconds], samples_per_step: int) -> Summary:
    """On every rank, from every rank's steps; all must have made equally many, at least one."""
    group: Group = parallel.group
    rows = [[it.step, *asdict(it).values()] for it in steps]
    slowest = np.max(group.allgather(np.array(rows)), axis=0)
    medians = np.median(slowest, axis=0).tolist()
    parts = dict(zip(("step", *StepSeconds.__dataclass_fields__), medians, strict=True))
    p10, p90 = np.percentile(slowest[:, 0], (10, 90)).tolist()
    size, communication = parallel.traffic.bytes, parts["communication"]
    return Summary(
        ranks=group.size,
        samples_per_step=samples_per_step,
        steps=len(steps),
        step_p10=p10,
        step_p90=p90,
        bytes_reduced=size,
        bus_bandwidth=bus_bytes(size, group.size) / communication if communication > 0 else 0.0,
        buckets=group.allgather(parallel.traffic.buckets)[0],
        **parts,
    )


def read_summary(path: Path) -> Summary:
    """The summary in the last line of a JSON Lines file, as it stands or under "scaling".

    Raises
    ------
    OSError
        The file cannot be read.
    ValueError
        It holds no summary.
    """
    try:
        with opened(path) as (file, _):
            text = file.read().decode()
    except OSError as error:
        raise OSError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ValueError(f"{path} holds no record of a run with its step times") from error
    try:
        lines = text.strip().splitlines()
        record = json.loads(lines[-1])
        record = record.get("scaling", record)
        fields = {name: record[name] for name in Summary.__dataclass_fields__}
        fields["buckets"] = tuple((int(size), float(lead)) for size, lead in fields["buckets"])
    except (IndexError, KeyError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{path} holds no record of a run with its step times") from error
    return Summary(**fields)
