"""A description and arrays in one file that is whole or not there: what checkpoints are made of.

It is an .npz file, whose entries carry checksums; the description is JSON among them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dlprim.arguments.arrays import Array
from dlprim.files import replaced
from dlprim.train.folder import CheckpointError
from dlprim.train.npz import DamagedFileError, read_arrays

_DESCRIPTION = "description"


def write(path: Path, description: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Replaces the file at once when it is complete and on the disk.

    Raises:
        OSError: it could not be written; the earlier one still stands.
    """
    text = np.frombuffer(json.dumps(description).encode(), np.uint8)
    with replaced(path) as file:
        np.savez(file, allow_pickle=False, **{**arrays, _DESCRIPTION: text})
    _flush_folder(path.parent)


def read(path: Path, is_short: bool = False) -> tuple[Any, dict[str, Array]]:
    """The description and, unless that is all, the arrays, checked against their checksums.

    Raises:
        CheckpointError: the file is missing or damaged, or has no description.
    """
    try:
        arrays = read_arrays(path, _DESCRIPTION if is_short else None, is_stored=True)
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} does not exist: there is nothing to resume, test or predict with"
        ) from None
    except NotADirectoryError:
        raise CheckpointError(
            f"{path.parent} is no folder, expected that of a checkpoint"
        ) from None
    except (OSError, DamagedFileError) as error:
        raise CheckpointError(f"{path} is damaged or no checkpoint: {error}") from error
    try:
        return json.loads(arrays.pop(_DESCRIPTION).tobytes()), arrays
    except (KeyError, ValueError, RecursionError):
        if is_short:
            arrays = read_arrays(path)
        names = ", ".join(sorted(arrays)[:3])
        raise CheckpointError(
            f"{path} is no checkpoint of dlprim.train: it holds {names or 'nothing'}, but no "
            f"{_DESCRIPTION!r}"
        ) from None


def _flush_folder(folder: Path) -> None:
    """Makes the rename itself survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
