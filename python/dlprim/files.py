"""Files that are replaced as a whole: under a name stands what was there, or all of the new one."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def check_writable(path: Path) -> None:
    """Makes sure, as far as one can in advance, that `replaced` will succeed.

    It tries: an empty temporary file is created in the directory of the path and removed.

    Raises:
        OSError: in a sentence that names the path and the reason.
    """
    target = without_links(path)
    try:
        _check_replaceable(target)
        temporary = _temporary_beside(target)
        temporary.touch(exist_ok=False)
        temporary.unlink()
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror or error}") from error


@contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """A new file, which takes the place of the path once it is written and on the disk.

    Raises:
        OSError: the file cannot be written, in a sentence that names the path and the reason.
    """
    target = without_links(path)
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


def without_links(path: Path) -> Path:
    """Follows symbolic links, because a rename would replace the link rather than its target."""
    return Path(os.path.realpath(path))


def _temporary_beside(target: Path) -> Path:
    """A new name in the same directory: a rename is atomic only within a file system."""
    return target.parent / f".dlprim-{secrets.token_hex(8)}.tmp"
