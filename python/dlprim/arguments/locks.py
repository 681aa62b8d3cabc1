"""Locks of what several threads share, which a forked process finds free.

A thread that held one while another forked is not in the child, and would never release it.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any


class Lock:
    """A lock that the thread which holds it may take again; a copy, or a pickle, is a free one."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _LOCKS.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: Any) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[Lock], tuple[()]]:
        return Lock, ()

    def renew(self) -> None:
        """Takes it from a thread that is not there any more."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()


_LOCKS: weakref.WeakSet[Lock] = weakref.WeakSet()


def _after_fork() -> None:
    for lock in _LOCKS:
        lock.renew()


os.register_at_fork(after_in_child=_after_fork)
