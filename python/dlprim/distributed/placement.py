"""Where ranks run: hosts, cores and threads, and what is wrong with them.

A launcher that binds every rank to one core makes all threads of that rank share it, and one that
binds nothing lets all ranks of a host share all cores. Neither is an error and both are slow, so a
run says where it is and warns.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import groupby

import dlprim
from dlprim.distributed.group import Group


@dataclass(frozen=True)
class Placement:
    """Of one rank."""

    rank: int
    host: str
    threads: int
    cores: tuple[int, ...]  # that the operating system lets it use

    def __str__(self) -> str:
        return (
            f"rank {self.rank} on {self.host}: {_counted(self.threads, 'thread')}, "
            f"{_counted(len(self.cores), 'core')} ({_ranges(self.cores)})"
        )


def placements(group: Group) -> list[Placement]:
    """Of all ranks, on every rank."""
    cores = tuple(sorted(os.sched_getaffinity(0)))
    return group.allgather(Placement(group.rank, group.host, dlprim.get_num_threads(), cores))


def complaints(everywhere: list[Placement]) -> list[str]:
    """A sentence for every rank and host with fewer cores than threads."""
    found = [
        f"rank {it.rank} on {it.host} has {_counted(it.threads, 'thread')} for "
        f"{_counted(len(it.cores), 'core')}: give it more cores (mpiexec -bind-to core:T with "
        "MPICH, --map-by slot:PE=T with Open MPI, srun --cpus-per-task=T) or set DLPRIM_NUM_THREADS"
        for it in everywhere
        if len(it.cores) < it.threads
    ]
    if found:
        return found
    for host, here in groupby(sorted(everywhere, key=lambda it: it.host), lambda it: it.host):
        ranks = list(here)
        threads = sum(it.threads for it in ranks)
        cores = len(set().union(*(it.cores for it in ranks)))
        if cores < threads:
            found.append(
                f"the {len(ranks)} ranks on {host} have {_counted(threads, 'thread')} for "
                f"{_counted(cores, 'core')}: set DLPRIM_NUM_THREADS or start fewer ranks"
            )
    return found


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _ranges(cores: tuple[int, ...]) -> str:
    """0-3,8 for (0, 1, 2, 3, 8)."""
    runs = groupby(enumerate(cores), lambda pair: pair[1] - pair[0])
    ends = [(run[0][1], run[-1][1]) for run in (list(pairs) for _, pairs in runs)]
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in ends)
