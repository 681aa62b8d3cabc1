"""Where the time of a run of a network goes."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class StepTime(NamedTuple):
    """The kind and the name of a step, and the seconds that it took."""

    kind: str
    name: str
    seconds: float


class Profile:
    """The steps of one run; as text a table, with the kinds of steps and the slowest ones first.

    Attributes
    ----------
    steps : tuple of StepTime
        In the order in which they ran.
    """

    def __init__(self, steps: Sequence[tuple[str, str, float]]) -> None:
        self.steps = tuple(StepTime(*step) for step in steps)

    @property
    def seconds(self) -> float:
        """Of the run."""
        return sum(step.seconds for step in self.steps)

    def __str__(self) -> str:
        kinds: dict[str, list[float]] = {}
        for step in self.steps:
            kinds.setdefault(step.kind, []).append(step.seconds)
        rows = [(kind, f"{len(times)} steps", sum(times)) for kind, times in kinds.items()]
        slowest = sorted(self.steps, key=lambda step: -step.seconds)[:20]
        lines = [f"{len(self.steps)} steps, {1e3 * self.seconds:.3f} ms"]
        for kind, name, seconds in [*sorted(rows, key=lambda row: -row[2]), *slowest]:
            share = seconds / max(self.seconds, 1e-12)
            lines.append(f"{1e3 * seconds:10.3f} ms {share:6.1%}  {kind:14} {name}")
        return "\n".join(lines)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the trace that Chrome's ``about:tracing`` and Perfetto show."""
        events, start = [], 0.0
        for step in self.steps:
            event = {"name": step.name, "cat": step.kind, "ph": "X", "pid": 0, "tid": 0}
            events.append({**event, "ts": 1e6 * start, "dur": 1e6 * step.seconds})
            start += step.seconds
        Path(path).write_text(json.dumps({"traceEvents": events}))
