"""Which algorithm convolutions use, and the convolutions of the core that use it.

A call that leaves the choice open, with algorithm="auto", follows what is set here for the whole
process; and where nothing is, the core estimates for every pass which one is faster.
"""

import os
from typing import Any, NamedTuple

from dlprim import _core
from dlprim.primitives.conv_arguments import Geometry

_ALGORITHMS = ("auto", "direct", "winograd")
_VARIABLE = "DLPRIM_CONV_ALGORITHM"
# Of a request: Winograd where it can be done, else the direct algorithm.
PREFERABLY = "preferably winograd"

_chosen: str | None = None


class Request(NamedTuple):
    """What a convolution of the core is made from."""

    geometry: Geometry
    dtype: str
    layout: str
    activation: str
    bias: bool
    algorithm: str
    accuracy: str | None

    def core(self) -> _core.Conv2d:
        """A new one.

        Raises
        ------
        ValueError
            The geometry is impossible, or Winograd was asked for by name and cannot do it.
        """
        first, high = self[:5], self.accuracy == "high"
        if self.algorithm == PREFERABLY:
            try:
                return _core.Conv2d(*first, "winograd", high)
            except ValueError:
                return _core.Conv2d(*first, "direct", high)
        return _core.Conv2d(*first, self.algorithm, high)


def set_conv_algorithm(algorithm: str) -> None:
    """Choose the algorithm of all convolutions made from now on that leave it open.

    Parameters
    ----------
    algorithm : "auto", "direct" or "winograd"
        "winograd" holds for those that Winograd can do, 3x3 filters with stride 1. Until this is
        called, the environment variable ``DLPRIM_CONV_ALGORITHM`` says it, and without that
        "auto": whichever is faster by estimate, pass by pass.

    Raises
    ------
    ValueError
        There is no such algorithm.
    """
    global _chosen
    _chosen = require_algorithm("algorithm", algorithm)


def get_conv_algorithm() -> str:
    """The algorithm of convolutions that leave it open: "auto", "direct" or "winograd".

    Raises
    ------
    ValueError
        ``DLPRIM_CONV_ALGORITHM`` names no algorithm.
    """
    if _chosen is not None:
        return _chosen
    return require_algorithm(_VARIABLE, os.environ.get(_VARIABLE) or "auto")


def resolved(algorithm: Any) -> str:
    """What a `Request` holds for the argument ``algorithm`` of a convolution."""
    if algorithm == PREFERABLY:
        return PREFERABLY
    if require_algorithm("algorithm", algorithm) != "auto":
        return str(algorithm)
    chosen = get_conv_algorithm()
    return PREFERABLY if chosen == "winograd" else chosen


def require_algorithm(name: str, algorithm: Any) -> str:
    """Return it, or raise ValueError where there is no such algorithm."""
    if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
        raise ValueError(f"{name} is {algorithm!r}, expected one of {', '.join(_ALGORITHMS)}")
    return algorithm


def require_accuracy(accuracy: Any) -> str | None:
    """Return it, or raise ValueError where there is no such accuracy."""
    if accuracy not in (None, "high"):
        raise ValueError(f"accuracy is {accuracy!r}, expected None or 'high'")
    return "high" if accuracy == "high" else None
