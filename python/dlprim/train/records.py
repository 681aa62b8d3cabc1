"""The result file: JSON Lines, one object per line, whole or not there at all.

A run may take hours, and its record is what remains of it. So a path that cannot be written is
refused before the first step, and the file appears under its name only when it is complete and on
the disk: a reader never sees half of it, and a failed run leaves an earlier file as it was.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO


class ResultFile:
    """A file that is replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def replaces(self, path: Path) -> bool:
        """Whether records take the place of that file."""
        return _without_links(self._path) == _without_links(path)

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


def check_writable(path: Path) -> None:
    """Makes sure, as far as one can in advance, that `write_lines` will succeed.

    It tries: an empty temporary file is created in the directory of the path and removed.

    Raises:
        OSError: in a sentence that names the path and the reason.
    """
    target = _without_links(path)
    try:
        _check_replaceable(target)
        temporary = _temporary_beside(target)
        temporary.touch(exist_ok=False)
        temporary.unlink()
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror or error}") from error


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


@contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """A new file, which takes the place of the path once it is written and on the disk.

    Raises:
        OSError: the file cannot be written, in a sentence that names the path and the reason.
    """
    target = _without_links(path)
    temporary = _temporary_beside(target)
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _line(record: Mapping[str, object]) -> str:
    return json.dumps(record, allow_nan=False) + "\n"


def _check_replaceable(target: Path) -> None:
    """Refuses what a rename would replace though a plain write would not, such as a device."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise OSError("it exists and is not a regular file")
    if not os.access(target, os.W_OK):
        raise OSError("it exists and is read-only")


def _without_links(path: Path) -> Path:
    """Follows symbolic links, because a rename would replace the link rather than its target."""
    return Path(os.path.realpath(path))


def _temporary_beside(target: Path) -> Path:
    """A new name in the same directory: a rename is atomic only within a file system."""
    return target.parent / f".dlprim-{secrets.token_hex(8)}.tmp"
