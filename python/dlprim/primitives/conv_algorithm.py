"""Which algorithm convolutions use, and the convolutions of the core that use it.

A call that leaves the choice open, with algorithm="auto", follows what is set here for the whole
process; and where nothing is, the core estimates for every pass which one is faster.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from dlprim import _core
from dlprim.arguments.calls import KNOWN
from dlprim.arguments.scalars import shown

_ALGORITHMS = ("auto", "direct", "winograd")
_VARIABLE = "DLPRIM_CONV_ALGORITHM"
# Of a request: Winograd where it can be done, else the direct algorithm.
PREFERABLY = "preferably winograd"

Core = TypeVar("Core")

_chosen: str | None = None


class _Thread(threading.local):
    algorithm: str | None = None  # of what this thread makes, in place of that of the process


_thread = _Thread()


def new_core(kind: Callable[..., Core], algorithm: str, accuracy: str | None, *others: Any) -> Core:
    """A convolution of the core, from what `resolved` gives and its other arguments.

    ValueError where the geometry is impossible, or Winograd was asked for by name and cannot do it.
    """
    high = accuracy == "high"
    if algorithm == PREFERABLY:
        with suppress(ValueError):
            return kind("winograd", high, *others)
        algorithm = "direct"
    return kind(algorithm, high, *others)


def set_conv_algorithm(algorithm: str) -> None:
    """Choose the algorithm of all convolutions made from now on that do not specify one.

    Parameters
    ----------
    algorithm : "auto", "direct" or "winograd"
        "winograd" applies where Winograd's algorithm is possible, to 3x3 filters with stride 1.
        Formulas of convolutions obey "direct" and otherwise choose what is estimated to be faster.
        Until this is called, the environment variable ``DLPRIM_CONV_ALGORITHM`` decides, and
        without it "auto": whichever is estimated to be faster, for each pass.

    Raises
    ------
    ValueError
        The algorithm is unknown.
    """
    global _chosen
    before, _chosen = _chosen, require_algorithm("algorithm", algorithm)
    if _chosen != before:
        KNOWN.clear()
        _core.algorithm_changed()


@contextmanager
def conv_algorithm(algorithm: str) -> Iterator[None]:
    """Around what this thread makes: convolutions that leave the algorithm open take this one, and
    with "auto" that of the process."""
    before, _thread.algorithm = _thread.algorithm, None if algorithm == "auto" else algorithm
    try:
        yield
    finally:
        _thread.algorithm = before


def get_conv_algorithm() -> str:
    """The algorithm of convolutions that do not specify one: "auto", "direct" or "winograd".

    Returns
    -------
    str

    Raises
    ------
    ValueError
        ``DLPRIM_CONV_ALGORITHM`` is not an algorithm.
    """
    chosen = _thread.algorithm or _chosen
    if chosen is not None:
        return chosen
    return require_algorithm(_VARIABLE, os.environ.get(_VARIABLE) or "auto")


def resolved(algorithm: Any) -> str:
    """What the argument ``algorithm`` of a convolution asks for now."""
    if isinstance(algorithm, str) and algorithm == PREFERABLY:
        return PREFERABLY
    if require_algorithm("algorithm", algorithm) != "auto":
        return str(algorithm)
    chosen = get_conv_algorithm()
    return PREFERABLY if chosen == "winograd" else chosen


def require_algorithm(name: str, algorithm: Any) -> str:
    """Return it, or raise ValueError where there is no such algorithm."""
    if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
        raise ValueError(f"{name} is {shown(algorithm)}, expected one of {', '.join(_ALGORITHMS)}")
    return algorithm


def require_accuracy(accuracy: Any) -> str | None:
    """Return it, or raise ValueError where there is no such accuracy."""
    if accuracy is None or (isinstance(accuracy, str) and accuracy == "high"):
        return accuracy
    raise ValueError(f"accuracy is {shown(accuracy)}, expected None or 'high'")
