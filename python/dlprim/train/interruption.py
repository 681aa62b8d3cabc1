"""Ctrl-C and SIGTERM as wishes: the step that runs is finished, so that what is kept is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Stopped(Exception):  # noqa: N818
    """Leaves a loop between two steps."""


class Interruption:
    """Whether somebody wants the run to end.

    Parameters
    ----------
    signals : tuple of signal.Signals
        Those by which one says so.

    Attributes
    ----------
    wanted : int
        The number of the first signal, or 0. A second Ctrl-C is a KeyboardInterrupt at once; a
        second SIGTERM changes nothing, for schedulers send it to more than one process of a job,
        and launchers hand it on.
    """

    def __init__(self, *signals: signal.Signals) -> None:
        self._signals = signals or (signal.SIGINT, signal.SIGTERM)
        self.wanted = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Takes the signals instead of the handlers that are there; in the main thread only."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        earlier = [signal.signal(number, self._note) for number in self._signals]
        try:
            yield
        finally:
            for number, handler in zip(self._signals, earlier, strict=True):
                signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        if self.wanted and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.wanted = self.wanted or number


def status_of(number: int) -> int:
    """The exit status that shells give a program which a signal has ended."""
    return 128 + number


def word_for(number: int) -> str:
    """What the signal did to the run."""
    return "terminated" if number == signal.SIGTERM else "interrupted"
