"""What is measured: a row before it is made, and a case with its operands and all its sides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dlprim.bench.measuring.timing import Call, Turn

# Sides of our own that a case may have besides peers, in every run.
OWN_SIDES = ("function", "direct", "copy", "plain")


class UnavailableError(Exception):
    """A peer cannot run a row; the sentence says why."""


@dataclass
class Case:
    """Operands in memory, and every side that computes with them.

    Operands are random: zeros would run at another clock.
    """

    ours: Call
    verify: Callable[[], None]  # raises WrongResultError
    peers: Mapping[str, Callable[[], Call]] = field(default_factory=dict)  # made if asked for
    agrees: Callable[[Any], None] | None = None  # of a peer's result, as verify of ours
    operations: float = 0  # of products, two for each multiply-add
    traffic: float = 0  # bytes that any program reads and writes: operands and results once
    buffer: float = 0  # bytes of what is read over and over, where that is less than the traffic
    peak_dtype: str = "float32"  # whose multiply-add is the roof
    isa: str | None = None
    native: Turn | None = None  # seconds of a call where they are measured without Python
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """A line of the report; its operands are made when its turn comes."""

    group: str  # rows of a group have means in the summary
    name: str
    dtype: str
    make: Callable[[], Case]
    count: int = 1  # how often the layer occurs in its network


@dataclass(frozen=True)
class Record:
    """What was measured. `ratios` are times as fast as another side; noise is relative."""

    command: str
    group: str
    name: str
    dtype: str
    threads: int
    count: int
    rounds: int
    milliseconds: float
    gflops: float | None = None
    peak_gflops: float | None = None  # of all threads
    of_peak: float | None = None
    of_bound: float | None = None  # of the roofline's bound: the slower of peak and bytes
    intensity: float | None = None  # operations per byte
    ratios: Mapping[str, float] = field(default_factory=dict)
    noise: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        return self.command, self.group, self.name, self.dtype, self.threads

    def as_json(self) -> dict[str, Any]:
        """With four digits of what was measured."""
        return {name: _rounded(it) for name, it in asdict(self).items() if it not in (None, {})}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(it) for name, it in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value
