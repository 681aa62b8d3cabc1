"""Files that are replaced as a whole, and files that are read as one: regular ones alone.

Under a name stands what was there, or all of the new file. Until then that has a name of its own,
and a lock that ends with the process: what a killed one left behind is told by it and removed.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_TEMPORARY = ".dlprim-{}.tmp"
# A pipe that nobody writes to would keep `os.open` waiting.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


def check_writable(path: Path) -> None:
    """Makes sure, as far as one can in advance, that `replaced` will succeed.

    It tries: an empty temporary file is created in the directory of the path and removed.

    Raises:
        OSError: in a sentence that names the path and the reason.
    """
    target = without_links(path)
    try:
        _replaceable(target)
        with temporary_in(target.parent):
            pass
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror or error}") from error


@contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """A new file, which takes the place of the path once it is written and on the disk.

    It has the mode of the one that it replaces, and its owner where the process may say so.

    Raises:
        OSError: the file cannot be written, in a sentence that names the path and the reason.
    """
    target = without_links(path)
    try:
        before = _replaceable(target)
        with temporary_in(target.parent) as (temporary, file):
            if before is not None:
                with suppress(PermissionError):
                    os.fchown(file.fileno(), before.st_uid, before.st_gid)
                with suppress(PermissionError):
                    os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, target)
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror or error}") from error


@contextmanager
def opened(path: Path, below: Path | None = None) -> Iterator[tuple[BinaryIO, int]]:
    """A regular file to read, and how many bytes it has: what else there is may have no end.

    Args:
        path: of the file.
        below: a folder that a path without links is in. What others make of its parts meanwhile
            is not followed out of the folder.

    Raises:
        OSError: it cannot be opened, or is a device, a pipe or the like.
    """

    def opener(name: str, _: int) -> int:
        return os.open(name, _FLAGS) if below is None else _open_below(below, path)

    with open(path, "rb", opener=opener) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is no regular file, expected one whose size is known")
        yield file, found.st_size


def _open_below(folder: Path, path: Path) -> int:
    """Opens every part of the path in the one that is open, and none that is a link."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    *folders, name = path.relative_to(folder).parts
    for part in [*((it, os.O_DIRECTORY) for it in folders), (name, 0)]:
        outer = descriptor
        try:
            descriptor = os.open(part[0], _FLAGS | os.O_NOFOLLOW | part[1], dir_fd=outer)
        finally:
            os.close(outer)
    return descriptor


@contextmanager
def temporary_in(folder: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A new file in a folder, removed in the end unless it has been renamed.

    A rename is atomic only within a file system. What killed processes left there is removed, too.
    """
    _remove_leftovers(folder)
    while True:
        path = folder / _TEMPORARY.format(os.urandom(8).hex())
        with path.open("xb") as file:
            try:
                with suppress(OSError):  # of file systems without locks
                    fcntl.flock(file, fcntl.LOCK_EX)
                if not path.exists():  # taken for a leftover before it was locked
                    continue
                yield path, file
                return
            finally:
                path.unlink(missing_ok=True)


def without_links(path: Path) -> Path:
    """Follows symbolic links, because a rename would replace the link rather than its target."""
    return Path(os.path.realpath(path))


def _replaceable(target: Path) -> os.stat_result | None:
    """What there is; refuses what a rename would replace though a plain write would not."""
    try:
        found = target.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise OSError("it exists and is not a regular file")
    is_writable = found.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)
    if not is_writable or not os.access(target, os.W_OK):  # which allows root everything
        raise OSError("it exists and is read-only")
    return found


def _remove_leftovers(folder: Path) -> None:
    """Removes temporary files that no process holds: a lock ends with the one that took it."""
    for path in folder.glob(_TEMPORARY.format("*")):
        with suppress(OSError), opened(path) as (file, _):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
