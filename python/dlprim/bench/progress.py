"""One line that says which row is measured and how much time is left, on standard error."""

from __future__ import annotations

import sys
import time

from dlprim.train.progress import duration

_SECONDS = 20.0  # between lines where nobody sees one being replaced


class Progress:
    """Of so many rows. A context manager: behind it the line is gone."""

    def __init__(self, rows: int) -> None:
        self._rows, self._done = rows, 0
        self._begin = self._latest = time.monotonic()
        self._replaces = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()

    def before(self, name: str) -> None:
        """The row that comes now."""
        text = f"[{self._done + 1}/{self._rows}] {name}{self._left()}"
        self._done += 1
        now = time.monotonic()
        if self._replaces:
            print(f"\r\033[K{text[:100]}", end="", file=sys.stderr, flush=True)
        elif now - self._latest >= _SECONDS:
            self._latest = now
            print(text, file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Before something else is printed."""
        if self._replaces:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _left(self) -> str:
        if not self._done:
            return ""
        seconds = (time.monotonic() - self._begin) / self._done * (self._rows - self._done)
        return f", {duration(seconds)} left"
