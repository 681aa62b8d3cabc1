"""The machine's roofs: peaks of multiply-add and read bandwidth per cache level and of memory.

Every figure of the benchmark is a fraction of these, measured in its own run.
"""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import numpy as np

import dlprim
from dlprim import hardware
from dlprim.testing import fma_peak, read_bandwidth

STREAM_BYTES = 1 << 28  # far beyond any last-level cache share of one core
_ROUNDS = 9
_BETWEEN = ("avx2_vnni", "avx2_vnni_int8")  # which CPUs may lack that have higher ones
_LEVELS = ("avx2", *_BETWEEN, "avx512", "avx512_vnni", "avx512_bf16", "amx")
_INSTRUCTIONS = {
    "fma_avx2": ("avx2", "float32"),
    "fma_avx512": ("avx512", "float32"),
    "dot_int8": ("avx512_vnni", "uint8"),
    "dot_int8_avx2": ("avx2_vnni", "uint8"),
    "dot_bf16": ("avx512_bf16", "bfloat16"),
    "tiles_int8": ("amx", "uint8"),
    "tiles_bf16": ("amx", "bfloat16"),
}


@dataclass(frozen=True)
class Machine:
    """What belongs to every report."""

    cpu: str
    isa: str
    cores: int
    caches: dict[str, int]  # bytes
    peaks: dict[str, float] = field(default_factory=dict)  # GFLOP/s of one core, by instruction
    bandwidths: dict[str, float] = field(default_factory=dict)  # GB/s of one core, by level
    dlprim: str = dlprim.__version__
    numpy: str = np.__version__
    python: str = platform.python_version()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[str]:
        """For people."""
        size = hardware.size_in_words
        caches = ", ".join(f"{name} {size(it)}" for name, it in self.caches.items())
        found = [
            f"{self.cpu}, {self.cores} core{'s' * (self.cores != 1)}, {self.isa}",
            f"dlprim {self.dlprim}, NumPy {self.numpy}, Python {self.python}; caches: {caches}",
        ]
        peaks = ", ".join(f"{name} {it:.0f}" for name, it in self.peaks.items())
        rates = ", ".join(f"{name} {it:.0f}" for name, it in self.bandwidths.items())
        found += [f"peak of one core, GFLOP/s: {peaks}"] if peaks else []
        return found + ([f"reading of one core, GB/s: {rates}"] if rates else [])


def described(quick: bool = False) -> Machine:
    """This machine, measured in about a second; without vectors there is nothing to measure."""
    cores = len(os.sched_getaffinity(0))
    plain = Machine(hardware.cpu_name(), dlprim.isa(), cores, hardware.cache_bytes())
    if dlprim.isa() == "scalar":
        return plain
    rounds = 3 if quick else _ROUNDS
    return Machine(
        plain.cpu, plain.isa, cores, plain.caches, peaks(rounds), bandwidths(plain.caches, rounds)
    )


def usable_levels() -> list[str]:
    """The vector ISA levels of this CPU up to the one in use."""
    if dlprim.isa() == "scalar":
        return []
    return [
        level
        for level in _LEVELS[: _LEVELS.index(dlprim.isa()) + 1]
        if level not in _BETWEEN or dlprim.Brgemm(1, 1, 1, "int8", isa=level).isa == level
    ]


def peaks(rounds: int = _ROUNDS) -> dict[str, float]:
    """GFLOP/s of every multiply-add instruction that is usable, by name."""
    usable = usable_levels()
    return {
        name: median(fma_peak(isa, 0.01, dtype) for _ in range(rounds)) * 1e-9
        for name, (isa, dtype) in _INSTRUCTIONS.items()
        if isa in usable
    }


def bandwidths(caches: dict[str, int], rounds: int = _ROUNDS) -> dict[str, float]:
    """GB/s that one core reads from each cache of its own and from memory, by name."""
    sizes = {name: size // 2 for name, size in caches.items() if name != "L3"}  # which is shared
    return {
        name: 1e-9 * median(read_bandwidth(size, seconds=0.005) for _ in range(rounds))
        for name, size in (sizes | {"memory": STREAM_BYTES}).items()
    }
