"""Starts a program on several ranks, with a time limit, or skips where that is not possible."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LIMIT = 120  # seconds


def mpiexec() -> str:
    """The launcher beside this Python, of the same environment as mpi4py, or that of the system."""
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip('mpi4py is not installed: pip install "dlprim[mpi-local]"')
    if found is None:
        pytest.skip('there is no mpiexec: pip install "dlprim[mpi-local]"')
    return found


def launch(ranks: int, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs this Python with the arguments on so many ranks.

    A run beyond the limit is a failed test; what it had printed is in the exception.
    """
    settings = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH")))),
        # Open MPI refuses root and more ranks than cores unless told otherwise.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    command = [mpiexec(), "-n", str(ranks), sys.executable, *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env=settings | environment,
        stdin=subprocess.DEVNULL,
        check=False,
    )
