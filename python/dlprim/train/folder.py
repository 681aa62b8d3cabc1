"""The folder of a run's checkpoints: tried before the first step, and of one run at a time.

Two runs that take turns in replacing one checkpoint would leave that of either, and a run that
begins anew would replace hours of another's work after its first epoch. So a run claims its folder
before it computes anything. The claim is a lock of the system, which ends with the process however
that ends: the file of that name may stay behind, and blocks nobody.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dlprim.distributed import Group
from dlprim.distributed.agreement import prepare_together
from dlprim.files import check_writable
from dlprim.train.flags import PROGRAM
from dlprim.train.progress import warn

FILE = "checkpoint.npz"
LOCK = "checkpoint.lock"


class CheckpointError(RuntimeError):
    """A checkpoint is missing, damaged, in use or of another run."""


@contextmanager
def claimed(group: Group, folder: Path | None, resumes: bool) -> Iterator[None]:
    """No other run writes checkpoints to the folder meanwhile.

    Args:
        group: rank 0 claims for all.
        folder: made if it is not there; None for a run without checkpoints.
        resumes: whether the run goes on from what is there; otherwise nothing may be.

    Raises:
        CheckpointError: another run has claimed it or left a checkpoint there, or nothing can be
            written; in a group of several, a CollectiveError on all ranks.
    """

    def claim() -> int | None:
        return None if folder is None or group.rank != 0 else _claimed(folder, resumes)

    descriptor = prepare_together(group, claim)
    try:
        yield
    finally:
        if folder is not None:
            _release(folder, descriptor)


def _claimed(folder: Path, resumes: bool) -> int | None:
    """The descriptor of the lock; None where the file system has no locks."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_writable(folder / FILE)
        descriptor = _locked(folder / LOCK)
    except FileExistsError:
        raise CheckpointError(f"--checkpoint: {folder} is no folder") from None
    except OSError as error:
        what = f"{folder} cannot be written: {error.strerror}" if error.strerror else error
        raise CheckpointError(f"--checkpoint: {what}") from error
    if not resumes and os.path.lexists(folder / FILE):
        _release(folder, descriptor)
        raise CheckpointError(
            f"{folder / FILE} is of an earlier run: expected --resume to go on from it, or "
            "another folder to begin anew"
        )
    return descriptor


def _release(folder: Path, descriptor: int | None) -> None:
    """Lets others claim the folder."""
    if descriptor is not None:
        (folder / LOCK).unlink(missing_ok=True)
        os.close(descriptor)


def _locked(path: Path) -> int | None:
    """The descriptor of the lock; None, with a warning, where the file system has no locks."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 200).decode(errors="replace").strip()
            os.close(descriptor)
            raise CheckpointError(
                f"{path.parent} is in use by another run ({holder or 'unknown'}): "
                "expected a folder of this run's own"
            ) from None
        except OSError as error:
            os.close(descriptor)
            warn(
                PROGRAM,
                f"{path} cannot be locked ({error.strerror}): make sure that no other "
                "run keeps checkpoints there",
            )
            return None
        if _is_current(path, descriptor):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
            return descriptor
        os.close(descriptor)


def _is_current(path: Path, descriptor: int) -> bool:
    """Whether the file was not removed, by the run that held it, before it was locked."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
