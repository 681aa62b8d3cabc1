"""One rank's failure is the job's: it ends at once, with one message.

A rank that dies of an exception leaves the others waiting, and MPI's own exit waits for them in
turn. So whoever fails says why and then aborts the job. Where several ranks fail for the same
reason, the lowest of them speaks first, and its abort ends the others before they speak.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

_HEAD_START = 0.3  # seconds that rank 0 has to end the job for everybody
_NEXT_RANK = 0.05


def speak_in_turn(rank: int) -> None:
    """Gives lower ranks, which may fail for the same reason, the time to end the job first."""
    if rank > 0:
        time.sleep(min(_HEAD_START + _NEXT_RANK * rank, 2.0))


def abort_after_uncaught_exceptions(abort: Callable[[int], Any]) -> None:
    """From now on an exception that reaches the interpreter ends all ranks, after its traceback.

    In a thread, too; Ctrl-C ends the job with status 130.
    """
    earlier = sys.excepthook

    def end_job(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
        earlier(kind, error, at)
        sys.stderr.flush()
        abort(130 if issubclass(kind, KeyboardInterrupt) else 1)

    sys.excepthook = end_job


def describe(error: BaseException, rank: int, size: int, host: str) -> str:
    """One line that says where and what; programming errors also get their traceback."""
    where = f"rank {rank} of {size} on {host}: " if size > 1 else ""
    if isinstance(error, (ArithmeticError, OSError, MemoryError, RuntimeError, ValueError)):
        text = str(error) or type(error).__name__
        return f"{where}{text}"
    trace = "".join(traceback.format_exception(error)).rstrip()
    return f"{where}{type(error).__name__}: {error}\n{trace}"
