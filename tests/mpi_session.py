"""A pytest plugin for runs under mpiexec: the groups to test with, and the end of all ranks with
the first failure of one.

Otherwise the other ranks would wait in the next exchange until the timeout of the whole run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from mpi4py import MPI

from dlprim.distributed import Group


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


@pytest.fixture(params=["alone", "self", "world"])
def group(request: pytest.FixtureRequest) -> Iterator[Group]:
    communicators: dict[str, Any] = {
        "alone": None,
        "self": MPI.COMM_SELF.Dup(),
        "world": MPI.COMM_WORLD.Dup(),
    }
    communicator = communicators[request.param]
    yield Group(communicator, timeout=60)
    if communicator is not None:
        communicator.Free()
