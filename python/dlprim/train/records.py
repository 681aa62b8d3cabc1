"""The result file: JSON Lines, one object per line, whole or not there at all.

A run may take hours, and its record is what remains of it. So a path that cannot be written is
refused before the first step, and the file appears under its name only when it is complete and on
the disk: a reader never sees half of it, and a failed run leaves an earlier file as it was.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TextIO

from dlprim.files import check_writable, replaced, without_links


class ResultFile:
    """A file that is replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def replaces(self, path: Path) -> bool:
        """Whether records take the place of that file."""
        return without_links(self._path) == without_links(path)

    def check(self) -> None:
        """As `check_writable`."""
        check_writable(self._path)

    def write(self, records: Iterable[Mapping[str, object]]) -> None:
        """As `write_lines`."""
        write_lines(self._path, records)


class StandardOutput:
    """The standard output of the moment it is made, even where it is redirected later."""

    def __init__(self) -> None:
        self._stream: TextIO | None = sys.stdout  # None where it was closed

    def replaces(self, path: Path) -> bool:
        """Whether records take the place of that file: they never do."""
        return False

    def check(self) -> None:
        """Makes sure that there is one; more cannot be tried without writing.

        Raises:
            OSError: it is closed.
        """
        if self._stream is None:
            raise OSError("standard output is closed")

    def write(self, records: Iterable[Mapping[str, object]]) -> None:
        """All of them or, where one cannot be written as JSON, none.

        Raises:
            OSError: in a sentence that gives the reason.
            ValueError: a record holds NaN or infinity.
        """
        self.check()
        assert self._stream is not None
        text = "".join(map(_line, records))
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError as error:
            reason = error.strerror or error
            raise OSError(f"standard output cannot be written: {reason}") from error


def destination(name: str) -> ResultFile | StandardOutput:
    """Where records go: a path, or "-" for standard output."""
    return StandardOutput() if name == "-" else ResultFile(Path(name))


def write_lines(path: Path, records: Iterable[Mapping[str, object]]) -> None:
    """Writes one JSON object per line to the path, replacing atomically what stands there.

    Args:
        path: a new or a regular file; of a symbolic link, the target is replaced.
        records: what json can write; NaN and infinity are refused, as JSON has neither.

    Raises:
        OSError: the file cannot be written, in a sentence that names the path and the reason.
        ValueError: a record holds NaN or infinity. After either, the earlier file still stands.
    """
    with replaced(path) as file:
        for record in records:
            file.write(_line(record).encode())


def _line(record: Mapping[str, object]) -> str:
    return json.dumps(record, allow_nan=False) + "\n"
