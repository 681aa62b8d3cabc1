"""Reading .npz and .npy files that may be anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dlprim.arguments.arrays import Array
from dlprim.files import opened


class DamagedFileError(ValueError):
    """A file holds no arrays, or is not whole."""


def read_arrays(
    path: Path, only: str | None = None, *, is_stored: bool = False
) -> dict[str, Array]:
    """All arrays of a file by name, or the one of a name, checked against their checksums.

    Args:
        path: of an .npz file.
        only: the name.
        is_stored: whether arrays are as large in the file as in memory; others are refused.

    Raises:
        OSError: it cannot be opened or read.
        DamagedFileError: what it holds are no arrays, or damaged ones.
    """
    with _opened(path) as file:
        found: Any = np.load(file, allow_pickle=False)
        if isinstance(found, np.ndarray):
            raise DamagedFileError("it holds one array without a name")
        with found:
            if is_stored and any(it.compress_type for it in found.zip.infolist()):
                raise DamagedFileError("its arrays are compressed, expected plain ones")
            names = [name for name in found.files if only in (None, name)]
            arrays = {name: found[name] for name in names}
    other = [name for name in names if not isinstance(arrays[name], np.ndarray)]
    if other:
        raise DamagedFileError(f"its entry {other[0]!r} is no array")
    return arrays


def read_array(path: Path) -> Array:
    """The array of an .npy file.

    Raises:
        OSError: it cannot be opened or read.
        DamagedFileError: what it holds is no array, or a damaged one.
    """
    with _opened(path) as file:
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    with opened(path) as (file, _):
        try:
            yield file
        except OSError:
            raise
        # A changed byte may claim encryption, another compression, a shape that no memory holds.
        except Exception as error:
            raise DamagedFileError(str(error) or type(error).__name__) from error
