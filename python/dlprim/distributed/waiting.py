"""Waiting for MPI without taking a core from the computation, and never for ever.

MPI libraries wait by spinning. A communication thread that spins takes half of a core that also
computes, so what waits beside a computation asks a few times in a row, which catches what is about
to end, and then sleeps between questions. Asking is also what moves the bytes: most MPI libraries
make no progress on their own, and a message of several parts costs a nap for each. So what waits
while nothing is computed asks without pause, but offers its core to others in between, and sleeps
only when the wait is long. A wait that outlasts its limit is an exception: the peer is gone or does
something else, and a job that says so is worth more than one that hangs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

_EAGER = 64  # questions before the first sleep, some ten microseconds in all
_PATIENT = 0.02  # seconds without a sleep while nothing is computed
_FIRST_NAP = 2e-5  # seconds
_LONGEST_NAP = 5e-4
_DROWSY = 0.02  # of the time waited so far: the longest nap of a wait that is long already
_DEEPEST_NAP = 5e-3


def always() -> bool:
    """The computation waits too."""
    return True


def wait(request: Any, what: str, limit: float, is_idle: Callable[[], bool] = always) -> None:
    """Returns when `request` is complete.

    Parameters
    ----------
    request : mpi4py.MPI.Request
    what : str
        Named in the error message.
    limit : float
        Seconds to wait at most.
    is_idle : callable
        Whether nothing is computed on this core meanwhile; asked again and again.

    Raises
    ------
    TimeoutError
        The limit has passed. The request is still active: MPI cannot be used further.
    """
    for _ in range(_EAGER):
        if request.Test():
            return
    begin, nap = time.monotonic(), _FIRST_NAP
    while not request.Test():
        waited = time.monotonic() - begin
        if waited > limit:
            raise TimeoutError(
                f"waited {limit:g} seconds for the other ranks in {what}: one of them has stopped "
                "or takes other steps than this one"
            )
        if waited < _PATIENT and is_idle():
            os.sched_yield()
            continue
        time.sleep(nap)
        nap = min(2 * nap, max(_LONGEST_NAP, min(_DROWSY * waited, _DEEPEST_NAP)))
