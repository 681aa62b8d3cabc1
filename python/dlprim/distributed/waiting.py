"""Waiting for MPI without taking a core from the computation, and never for ever.

MPI libraries wait by spinning. A communication thread that spins takes half of a core that also
computes, and one that wakes up often still takes a part of it. So what waits beside a computation
asks a few times in a row, which catches what is about to end, and then sleeps between questions.
Asking is also what moves the bytes: most MPI libraries make no progress on their own, and a message
of several parts costs a nap for each. So what waits while nothing is computed asks without pause,
but offers its core to others in between, and sleeps only when the wait is long. A wait that
outlasts its limit is an exception: the peer is gone or does something else, and a job that says so
is worth more than one that hangs.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

_EAGER = 64  # questions before the first sleep, some ten microseconds in all
_NAP = 1e-3  # seconds beside a computation
_PATIENT = 0.02  # seconds without a sleep while nothing is computed,
_DROWSY = 0.02  # then naps of this part of the time waited so far,
_LONGEST_NAP = 5e-3  # or of this


def wait(request: Any, what: str, limit: float, idle: threading.Event | None = None) -> None:
    """Returns when `request` is complete.

    Parameters
    ----------
    request : mpi4py.MPI.Request
    what : str
        Named in the error message.
    limit : float
        Seconds to wait at most.
    idle : threading.Event, optional
        Set while nothing is computed on this core; by default it is the caller who computes.

    Raises
    ------
    TimeoutError
        The limit has passed. The request is still active: MPI cannot be used further.
    """
    for _ in range(_EAGER):
        if request.Test():
            return
    begin = busy_until = time.monotonic()
    while not request.Test():
        now = time.monotonic()
        if now - begin > limit:
            raise TimeoutError(
                f"waited {limit:g} seconds for the other ranks in {what}: one of them has stopped "
                "or takes other steps than this one"
            )
        rested = now - busy_until
        if idle is not None and not idle.is_set():
            idle.wait(_NAP)
            busy_until = time.monotonic()
        elif rested < _PATIENT:
            os.sched_yield()
        else:
            time.sleep(min(_DROWSY * rested, _LONGEST_NAP))
