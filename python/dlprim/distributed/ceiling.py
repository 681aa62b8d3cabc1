"""How fast gradients could travel at best: the reduction alone, without a model beside it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

import numpy as np

from dlprim.arguments.arrays import FloatArray
from dlprim.distributed.data_parallel import DataParallel
from dlprim.distributed.group import Group
from dlprim.distributed.traffic import bus_bytes


@dataclass(frozen=True)
class Ceiling:
    """Medians of rounds of which each takes as long as its slowest rank."""

    bytes: int
    seconds: float
    mpi_seconds: float  # of MPI's own allreduce of one message
    ranks: int

    def __str__(self) -> str:
        def rate(seconds: float) -> float:
            return bus_bytes(self.bytes, self.ranks) / seconds / 1e9

        return (
            f"allreduce of {self.bytes} bytes on {self.ranks} ranks: "
            f"{1e3 * self.seconds:.3f} ms, bus bandwidth {rate(self.seconds):.2f} GB/s; "
            f"MPI_Allreduce {1e3 * self.mpi_seconds:.3f} ms, {rate(self.mpi_seconds):.2f} GB/s"
        )


class _Weights:
    def __init__(self, size: int) -> None:
        self.name = "weights"
        self.value: FloatArray = np.zeros(size, np.float32)
        self.gradient: FloatArray = np.ones(size, np.float32)

    def parameters(self) -> list[_Weights]:
        return [self]


def measure_ceiling(group: Group, size: int, rounds: int = 11) -> Ceiling:
    """Reduces ``size`` bytes of float32 (rounded up) some times, ours and MPI's in turns.

    Raises
    ------
    ValueError
        The group has no second rank.
    """
    if group.size == 1:
        raise ValueError("one rank has nobody to reduce with: start two or more with mpiexec -n R")
    weights = _Weights(-(-size // 4))
    series: list[tuple[float, float]] = []
    with DataParallel(weights, group, overlap="off") as parallel:
        for _ in range(rounds + 2):
            group.barrier()
            started = time.perf_counter()
            parallel.ready(weights)
            parallel.finish()
            ours = time.perf_counter() - started
            group.barrier()
            started = time.perf_counter()
            group.communicator.Allreduce(weights.gradient, weights.value)
            theirs = time.perf_counter() - started
            slowest = np.max(group.allgather((ours, theirs)), axis=0)
            series.append((float(slowest[0]), float(slowest[1])))
    ours_all, theirs_all = zip(*series[2:], strict=True)
    return Ceiling(weights.value.nbytes, median(ours_all), median(theirs_all), group.size)
