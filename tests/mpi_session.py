"""A pytest plugin for runs under mpiexec: the first failure of a rank ends all of them.

Otherwise the other ranks would wait in the next exchange until the timeout of the whole run.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
from mpi4py import MPI


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: Any, call: Any, report: Any) -> None:
    if isinstance(call.excinfo.value, pytest.skip.Exception):
        return
    world = MPI.COMM_WORLD
    name = getattr(node, "nodeid", node)
    sys.__stderr__.write(f"rank {world.rank} of {world.size}, {name}:\n{report.longreprtext}\n")
    sys.__stderr__.flush()
    if world.size > 1:
        world.Abort(1)
