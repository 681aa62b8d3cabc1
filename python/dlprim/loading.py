"""`dlprim.load`, which imports what networks need only when one is loaded."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlprim.onnx.model import OnnxModel


def load(path: str | os.PathLike[str]) -> OnnxModel:
    """The network that its method ``save`` wrote into a file.

    Nothing in the file is executed, and nothing but a file that is exactly as it was written is
    taken. Tuned schedules in it are used for this network alone, on the CPU that they were measured
    on and where this machine has none of its own. Needs the package ``onnx``.

    Parameters
    ----------
    path : str or Path
        Files of `dlprim.nn.save` are read by `dlprim.nn.load`.

    Returns
    -------
    dlprim.onnx.OnnxModel

    Raises
    ------
    OSError
        The file cannot be read.
    ModelFileError
        A ValueError: it is no such file or a newer version's, truncated or damaged.
    TypeError
        path is no path.
    """
    from dlprim.onnx import saving

    return saving.load(path)
