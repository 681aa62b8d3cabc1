"""The processes that train together, as one small object; one process alone is the same object.

It narrows MPI to what training needs: who am I, and a few exchanges among all ranks. Each of them
is started without blocking and waited for with patience and a limit (`waiting`), so no exchange
can hang for ever.
"""

from __future__ import annotations

import importlib
import pickle
import platform
import threading
from typing import Any, NoReturn

import numpy as np

from dlprim.arguments.arrays import Array
from dlprim.distributed.failure import abort_after_uncaught_exceptions, deliver_output
from dlprim.distributed.launcher import launched_size
from dlprim.distributed.waiting import wait

DEFAULT_TIMEOUT = 600.0  # seconds; a first step may generate code and load data on one rank only
_THREAD_LEVELS = ("single", "funneled", "serialized", "multiple")


def mpi() -> Any:
    """mpi4py's module, imported only where MPI is used, as importing it starts MPI."""
    return importlib.import_module("mpi4py.MPI")


class LauncherError(RuntimeError):
    """The launcher's and MPI's ideas of this job differ, or mpi4py is missing in it."""


class Group:
    """Ranks 0 to size - 1, each a process.

    Parameters
    ----------
    communicator : mpi4py.MPI.Comm, optional
        Who belongs to the group; None for this process alone, without MPI.
    timeout : float
        Seconds after which an exchange that does not end raises TimeoutError.

    Attributes
    ----------
    rank, size : int
        This process's number in the group, and how many there are.
    local_rank, local_size : int
        The same among the ranks on this host.
    host : str
        The name of the host.
    communicator
        As given.
    """

    def __init__(self, communicator: Any = None, timeout: float = DEFAULT_TIMEOUT) -> None:
        if not timeout > 0:
            raise ValueError(f"timeout is {timeout}, expected seconds > 0")
        self.communicator = communicator
        self.timeout = timeout
        self.host = platform.node()
        self.rank, self.size = 0, 1
        self.local_rank, self.local_size = 0, 1
        if communicator is not None:
            self.rank, self.size = communicator.Get_rank(), communicator.Get_size()
            hosts = self.allgather(self.host)
            self.local_rank = hosts[: self.rank].count(self.host)
            self.local_size = hosts.count(self.host)

    @classmethod
    def world(cls, timeout: float = DEFAULT_TIMEOUT) -> Group:
        """All processes that the launcher (mpiexec, srun) started; without one, this process.

        From then on an exception that nothing catches ends the whole job, because the other ranks
        would wait for this one.

        Raises
        ------
        LauncherError
            mpi4py cannot be imported in a process that was started as one of several, or the MPI
            library that mpi4py uses sees another number of processes than the launcher started.
        """
        expected = launched_size()
        if expected == 1:
            return cls(timeout=timeout)
        try:
            found = mpi()
        except (ImportError, RuntimeError) as error:
            raise LauncherError(
                f"This process was started as one of {expected}, but mpi4py cannot be imported "
                f'({error}): pip install "dlprim[mpi]" for the MPI of this system, or '
                '"dlprim[mpi-local]" where there is none'
            ) from error
        if found.COMM_WORLD.Get_size() != expected:
            library = found.Get_library_version().splitlines()[0].strip()
            raise LauncherError(
                f"The launcher started {expected} processes, but MPI ({library}) sees "
                f"{found.COMM_WORLD.Get_size()}: start them with the mpiexec of that library, or "
                "under Slurm with srun --mpi=pmix or pmi2"
            )
        abort_after_uncaught_exceptions(found.COMM_WORLD.Abort)
        return cls(found.COMM_WORLD, timeout)

    @property
    def thread_level(self) -> str:
        """What MPI allows threads: "single", "funneled", "serialized" or "multiple"."""
        if self.communicator is None:
            return _THREAD_LEVELS[-1]
        order = [getattr(mpi(), f"THREAD_{level.upper()}") for level in _THREAD_LEVELS]
        return _THREAD_LEVELS[order.index(mpi().Query_thread())]

    @property
    def library(self) -> str:
        """The name and version of the MPI library; "none" without MPI."""
        if self.communicator is None:
            return "none"
        return " ".join(mpi().Get_library_version().split("\n")[0].replace(":", " ").split())

    def duplicate(self) -> Group:
        """The same ranks with messages of their own, which never meet those of this group."""
        if self.communicator is None:
            return self
        return Group(self.communicator.Dup(), self.timeout)

    def wait(self, request: Any, what: str, idle: threading.Event | None = None) -> None:
        """Waits for an MPI request, with patience and this group's limit; see `waiting`."""
        wait(request, what, self.timeout, idle)

    def broadcast(self, array: Array, root: int = 0) -> None:
        """Overwrites ``array`` (C-contiguous, any dtype) with that of rank ``root``."""
        if self.size > 1 and array.size > 0:
            everything = array.reshape(-1).view(np.uint8)
            self.wait(self.communicator.Ibcast(everything, root), "a broadcast")

    def allgather(self, value: Any) -> list[Any]:
        """The values of all ranks in their order; anything that pickle takes."""
        if self.size == 1:
            return [value]
        mine = np.frombuffer(pickle.dumps(value), np.uint8)
        sizes = np.empty(self.size, np.int64)
        own_size = np.array([mine.size], np.int64)
        self.wait(self.communicator.Iallgather(own_size, sizes), "an allgather")
        everything = np.empty(sizes.sum(), np.uint8)
        target = [everything, sizes.tolist()]
        self.wait(self.communicator.Iallgatherv(mine, target), "an allgather")
        parts = np.split(everything, np.cumsum(sizes)[:-1])
        return [pickle.loads(part.tobytes()) for part in parts]

    def gather(self, array: Array) -> Array | None:
        """The arrays of all ranks, ``(size, *shape)``, on rank 0, and None on the others.

        They are contiguous and have the same shape and dtype everywhere.
        """
        if self.size == 1:
            return array[None]
        everything = None
        if self.rank == 0:
            everything = np.empty((self.size, *array.shape), array.dtype)
        self.wait(self.communicator.Igather(array, everything), "a gather")
        return everything

    def scatter(self, everything: Array | None, own: Array) -> None:
        """The inverse of `gather`: overwrites ``own`` by this rank's row of rank 0's array."""
        if self.size == 1:
            assert everything is not None
            own[...] = everything[0]
        else:
            self.wait(self.communicator.Iscatter(everything, own), "a scatter")

    def barrier(self) -> None:
        """Returns when every rank is here."""
        if self.size > 1:
            self.wait(self.communicator.Ibarrier(), "a barrier")

    def abort(self, status: int = 1) -> NoReturn:
        """Ends all processes of the job, after what this one has printed."""
        if self.communicator is not None:
            deliver_output()
            self.communicator.Abort(status)
        raise SystemExit(status)
