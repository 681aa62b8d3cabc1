"""When buckets are reduced: beside the backward pass, or after it.

The two differ only in who drives the steps of a reduction and when. Buckets go one at a time and
in the order of their numbers, so that all ranks exchange the same bucket whatever their pace.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from dlprim.distributed.group import Group

Steps = Iterator[Any]
OVERLAPS = ("thread", "off")


class AfterBackward:
    """Runs reductions that are submitted one after the other, and none before `drain`.

    That is what overlap is measured against.

    Attributes
    ----------
    busy_seconds : float
        From the start to the end of each reduction, added up.
    """

    def __init__(self, group: Group) -> None:
        self.busy_seconds = 0.0
        self._group = group
        self._waiting: deque[Callable[[], Steps]] = deque()

    def submit(self, start: Callable[[], Steps]) -> None:
        """Takes a reduction, to be started now or later."""
        self._waiting.append(start)

    def check(self) -> None:
        """Raises what went wrong so far."""

    def drain(self) -> None:
        """Returns when all is done; raises what went wrong."""
        while self._waiting:
            self.busy_seconds += run_to_end(self._group, self._waiting.popleft()())

    def close(self) -> None:
        """Lets go of what runs beside the caller; nothing may be submitted any more."""


class BesideBackward(AfterBackward):
    """A thread of its own waits for MPI while the caller computes; mpi4py releases the GIL."""

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self._queue: queue.SimpleQueue[Callable[[], Steps] | threading.Event | None]
        self._queue = queue.SimpleQueue()
        self._failure: BaseException | None = None
        self._idle = threading.Event()
        self._thread = threading.Thread(target=self._work, name="dlprim-communication", daemon=True)
        self._thread.start()

    def submit(self, start: Callable[[], Steps]) -> None:
        self._queue.put(start)

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def drain(self) -> None:
        done = threading.Event()
        self._idle.set()
        self._queue.put(done)
        done.wait()
        self._idle.clear()
        self.check()

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (task := self._queue.get()) is not None:
            if isinstance(task, threading.Event):
                task.set()
            elif self._failure is None:
                try:
                    self.busy_seconds += run_to_end(self._group, task(), self._idle)
                except BaseException as error:  # handed to the thread that computes
                    self._failure = error


def run_to_end(group: Group, steps: Steps, idle: threading.Event | None = None) -> float:
    """Drives a reduction to its end and returns the seconds it took; `idle` as for `wait`."""
    started = time.perf_counter()
    for request in steps:
        group.wait(request, "the reduction of gradients", idle)
    return time.perf_counter() - started
