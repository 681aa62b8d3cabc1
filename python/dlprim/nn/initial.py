"""What the parameters of a new layer are, and the generator of a process that draws them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from dlprim.arguments.arrays import aligned
from dlprim.arguments.scalars import integer
from dlprim.nn.parameter import FloatArray

_generator = np.random.default_rng()


class _Thread(threading.local):
    draws = True


_thread = _Thread()


def seed(value: int) -> None:
    """Begins anew the numbers that layers made without ``generator`` start with.

    Until it is called they differ from process to process.

    Parameters
    ----------
    value : int
        At least 0; the same one gives the same numbers.

    Raises
    ------
    TypeError, ValueError
        value is no integer or negative.
    """
    global _generator
    _generator = np.random.default_rng(integer("value", value, 0))


def generator_or_own(generator: Any) -> np.random.Generator:
    """The argument, or the generator of the process where it is None; else TypeError."""
    if generator is None:
        return _generator
    if isinstance(generator, np.random.Generator):
        return generator
    raise TypeError(
        f"generator is {generator!r}, expected a numpy.random.Generator such as "
        "numpy.random.default_rng(0), or None for that of dlprim.nn.seed"
    )


@contextmanager
def undrawn() -> Iterator[None]:
    """Layers that this thread makes inside begin with zeros, and no numbers are drawn for them."""
    before, _thread.draws = _thread.draws, False
    try:
        yield
    finally:
        _thread.draws = before


def normal(shape: tuple[int, ...], generator: np.random.Generator, deviation: float) -> FloatArray:
    """Normal numbers about 0, on a cache line."""
    if not _thread.draws:
        return zeros(shape)
    values: FloatArray = aligned(shape, np.float32)
    generator.standard_normal(dtype=np.float32, out=values)
    values *= np.float32(deviation)
    return values


def uniform(shape: tuple[int, ...], generator: np.random.Generator, bound: float) -> FloatArray:
    """Numbers between -bound and bound, on a cache line."""
    if not _thread.draws:
        return zeros(shape)
    values: FloatArray = aligned(shape, np.float32)
    generator.random(dtype=np.float32, out=values)
    values *= np.float32(2 * bound)
    values -= np.float32(bound)
    return values


def zeros(shape: tuple[int, ...]) -> FloatArray:
    """On a cache line."""
    values: FloatArray = aligned(shape, np.float32, zeros=True)
    return values
