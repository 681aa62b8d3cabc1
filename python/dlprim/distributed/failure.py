"""One rank's failure is the job's: it ends at once, with one message.

A rank that dies of an exception leaves the others waiting, and MPI's own exit waits for them in
turn. So whoever fails says why and then aborts the job. Where several ranks fail for the same
reason, the lowest of them speaks first, and its abort ends the others before they speak.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlprim.distributed.group import Group

_DELIVERY = 0.2  # seconds; launchers forward output through pipes, which an abort overtakes
_HEAD_START = 0.5  # seconds that rank 0 has to end the job for everybody
_NEXT_RANK = 0.05
_LONGEST = 2.0
# What is said in a sentence; any other exception is a mistake in the program.
EXPECTED = (ArithmeticError, OSError, MemoryError, RuntimeError, ValueError)


class CollectiveError(RuntimeError):
    """Raised with the same message on every rank, which may all leave without an abort."""


def end_job(group: Group, program: str, error: BaseException, shared: bool = False) -> int:
    """Says on stderr why this rank cannot go on, and ends all ranks.

    It returns, with the exit status 1, where no other rank is left behind: in a group of one, and
    for what all ranks have raised, a CollectiveError or as `shared` says, of which rank 0 speaks.
    """
    if group.size == 1 or shared or isinstance(error, CollectiveError):
        if group.rank == 0:
            print(f"{program}: {_text(error)}", file=sys.stderr, flush=True)
        return 1
    if group.rank > 0:
        time.sleep(min(_HEAD_START + _NEXT_RANK * group.rank, _LONGEST))
    where = f"rank {group.rank} of {group.size} on {group.host}"
    print(f"{program}: {where}: {_text(error)}", file=sys.stderr, flush=True)
    group.abort(1)


def deliver_output() -> None:
    """To be called before an abort, lest nobody sees what was printed."""
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(_DELIVERY)


def abort_after_uncaught_exceptions(abort: Callable[[int], Any]) -> None:
    """From now on an exception that reaches the interpreter ends all ranks, after its traceback.

    Of any thread: what it was to do is not done, and nobody may be left to say so. Ctrl-C ends the
    job with status 130.
    """
    earlier, earlier_of_threads = sys.excepthook, threading.excepthook

    def end(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
        earlier(kind, error, at)
        deliver_output()
        abort(130 if issubclass(kind, KeyboardInterrupt) else 1)

    def end_of_thread(it: threading.ExceptHookArgs) -> None:
        earlier_of_threads(it)
        if not issubclass(it.exc_type, SystemExit):  # which ends a thread and is no failure
            deliver_output()
            abort(1)

    sys.excepthook, threading.excepthook = end, end_of_thread


def _text(error: BaseException) -> str:
    if isinstance(error, EXPECTED):
        return str(error) or type(error).__name__
    trace = "".join(traceback.format_exception(error)).rstrip()
    return f"{type(error).__name__}: {error}\n{trace}"
