"""What the process that started this one says about it, before MPI is asked.

Launchers leave their numbers in the environment. With them a process knows whether there is any
need for MPI, whether the MPI library sees what the launcher meant, and which rank may print a
refusal before MPI has started. The names: MPICH, Intel MPI and Slurm's pmi2 (PMI_*), Open MPI
(OMPI_*), a step of Slurm (SLURM_STEP_NUM_TASKS, which a batch script itself does not have).
"""

from __future__ import annotations

import os
from collections.abc import Mapping

_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")


def launched_size(environment: Mapping[str, str] = os.environ) -> int:
    """The number of processes that a launcher started together; 1 without a launcher."""
    return _first(environment, _SIZES, 1)


def launched_rank(environment: Mapping[str, str] = os.environ) -> int:
    """The launcher's number of this process; 0 without a launcher."""
    return _first(environment, _RANKS, 0) if launched_size(environment) > 1 else 0


def _first(environment: Mapping[str, str], names: tuple[str, ...], default: int) -> int:
    for name in names:
        if environment.get(name, "").isdecimal():
            return int(environment[name])
    return default
