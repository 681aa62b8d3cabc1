"""What the parameters of a new layer are, and the generator of a process that draws them."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from dlprim.arguments.arrays import Array, FloatArray, aligned, values_for
from dlprim.arguments.scalars import integer

_generator = np.random.default_rng()


_SPARE = 1 << 16


class _Thread(threading.local):
    draws = True
    generator: np.random.Generator | None = None  # in place of that of the process
    room: float = math.inf  # numbers that layers may still have


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
        return _thread.generator or _generator
    if isinstance(generator, np.random.Generator):
        return generator
    raise TypeError(
        f"generator is {generator!r}, expected a numpy.random.Generator such as "
        "numpy.random.default_rng(0), or None for that of dlprim.nn.seed"
    )


@contextmanager
def drawn_from(generator: np.random.Generator) -> Iterator[None]:
    """Layers that this thread makes inside draw from it, not from the generator of the process."""
    before, _thread.generator = _thread.generator, generator
    try:
        yield
    finally:
        _thread.generator = before


@contextmanager
def undrawn(arrays: Iterable[Array]) -> Iterator[None]:
    """Layers that this thread makes inside begin with zeros, and no numbers are drawn for them.

    The arrays are what they will be filled with. Those that would have far more numbers are refused
    by a ValueError; constructors of a user's own may make more than they keep.
    """
    before = _thread.draws, _thread.room
    _thread.draws, _thread.room = False, 4 * sum(it.size for it in arrays) + _SPARE
    try:
        yield
    finally:
        _thread.draws, _thread.room = before


def _new(shape: int | tuple[int, ...], is_zero: bool) -> FloatArray:
    extents = shape if isinstance(shape, tuple) else (shape,)
    _thread.room -= math.prod(extents)
    if _thread.room < 0:
        raise ValueError("its layers have more numbers than the file holds")
    values: FloatArray = aligned(extents, np.float32, zeros=is_zero)
    return values


def normal(shape: tuple[int, ...], generator: np.random.Generator, deviation: float) -> FloatArray:
    """Normal numbers about 0, on a cache line."""
    if not _thread.draws:
        return zeros(shape)
    values = _new(shape, False)
    generator.standard_normal(dtype=np.float32, out=values)
    values *= np.float32(deviation)
    return values


def uniform(shape: tuple[int, ...], generator: np.random.Generator, bound: float) -> FloatArray:
    """Numbers between -bound and bound, on a cache line."""
    if not _thread.draws:
        return zeros(shape)
    values = _new(shape, False)
    generator.random(dtype=np.float32, out=values)
    values *= np.float32(2 * bound)
    values -= np.float32(bound)
    return values


def zeros(shape: int | tuple[int, ...]) -> FloatArray:
    """On a cache line."""
    return _new(shape, True)


def filled(shape: int | tuple[int, ...], value: float) -> FloatArray:
    """All one number, on a cache line."""
    values = _new(shape, False)
    values.fill(values_for("value", value, np.empty((), np.float32)))
    return values
