"""Ctrl-C as a wish: the step that runs is finished, so that what is kept is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Interruption:
    """Whether the user wants the run to end.

    Attributes
    ----------
    wanted : bool
        Set by the first Ctrl-C; a second one is a KeyboardInterrupt at once.
    """

    def __init__(self) -> None:
        self.wanted = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Takes Ctrl-C instead of the handler that is there; in the main thread only."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        earlier = signal.signal(signal.SIGINT, self._note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, earlier)

    def _note(self, number: int, frame: Any) -> None:
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True
