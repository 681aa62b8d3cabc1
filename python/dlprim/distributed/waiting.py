"""Waiting for MPI without taking a core from the computation, and never for ever.

MPI libraries wait by spinning. A communication thread that spins takes half of a core that also
computes, so what waits here asks a few times in a row, which catches what is about to end, and
then sleeps between questions. Asking is also what moves the bytes: most MPI libraries make no
progress on their own. A wait that outlasts its limit is an exception: the peer is gone or does
something else, and a job that says so is worth more than one that hangs.
"""

from __future__ import annotations

import time
from typing import Any

_EAGER = 64  # questions before the first sleep, some ten microseconds in all
_FIRST_NAP = 2e-5  # seconds
_LONGEST_NAP = 5e-4


def wait(request: Any, what: str, limit: float) -> None:
    """Returns when `request` is complete.

    Parameters
    ----------
    request : mpi4py.MPI.Request
    what : str
        Named in the error message.
    limit : float
        Seconds to wait at most.

    Raises
    ------
    TimeoutError
        The limit has passed. The request is still active: MPI cannot be used further.
    """
    for _ in range(_EAGER):
        if request.Test():
            return
    deadline, nap = time.monotonic() + limit, _FIRST_NAP
    while not request.Test():
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"waited {limit:g} seconds for the other ranks in {what}: one of them has stopped "
                "or takes other steps than this one"
            )
        time.sleep(nap)
        nap = min(2 * nap, _LONGEST_NAP)
