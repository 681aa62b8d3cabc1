"""Keys and values of the words that were read: room for so many, of several sequences.

A step writes those of its words behind the others and reads what is filled, where it lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt

import dlprim
from dlprim.arguments.names import one_of_names
from dlprim.arguments.scalars import integer
from dlprim.llm.config import Config

Array = npt.NDArray[Any]
_FULL = ("refuse", "slide")


class Cache:
    """What a model has read of some sequences; `LanguageModel.cache` makes one.

    ``cache[i]`` and ``cache[[0, 2]]`` are the same memory, of one sequence or some.

    Attributes
    ----------
    capacity : int
        Places of a sequence.
    slots : tuple of int
        Which sequences of the memory these are.
    """

    def __init__(
        self, config: Config, capacity: int, sequences: int, when_full: str, dtype: np.dtype[Any]
    ) -> None:
        self.capacity = integer("capacity", capacity, 1)
        self.slots = tuple(range(integer("sequences", sequences, 1)))
        self._slides = one_of_names("when_full", when_full, _FULL) == "slide"
        if config.has_places:
            self._require_places(config.length)
        shape = (sequences, config.kv_heads, self.capacity, config.D)
        self._keys, self._values = (
            [np.zeros(shape, dtype) for _ in range(config.layers)] for _ in range(2)
        )
        self._filled, self._gone = (np.zeros(sequences, np.int64) for _ in range(2))

    def _require_places(self, length: int) -> None:
        if self.capacity > length:
            raise ValueError(
                f"capacity is {self.capacity}, expected at most the {length} places that the model "
                "has rows for"
            )
        if self._slides:
            raise ValueError(
                "when_full is 'slide', expected 'refuse': rows of places belong to what the model "
                "has read"
            )

    @property
    def lengths(self) -> Array:
        """How many places of each sequence are filled."""
        return self._filled[list(self.slots)]

    @property
    def room(self) -> int:
        """How many words more each sequence can read; as many as there are places if it slides."""
        return self.capacity - (0 if self._slides else int(self.lengths.max()))

    def __len__(self) -> int:
        return len(self.slots)

    def __getitem__(self, places: int | Sequence[int]) -> Self:
        several = [places] if isinstance(places, int | np.integer) else places
        part = object.__new__(type(self))
        vars(part).update(vars(self))
        part.slots = tuple(self.slots[integer("place", it, 0, len(self.slots))] for it in several)
        if len(set(part.slots)) != len(part.slots):
            raise ValueError(f"places are {several!r}, expected each sequence once")
        return part

    def clear(self) -> None:
        """Forgets everything."""
        self.keep(0)

    def keep(self, length: int) -> None:
        """Forgets what was read behind so many places that are filled.

        Raises
        ------
        ValueError
            Fewer are filled.
        """
        least = int(self.lengths.min())
        integer("length", length, 0, least + 1)
        rows = list(self.slots)
        self._filled[rows] = length
        if length == 0:
            self._gone[rows] = 0

    def places(self, T: int) -> Array:
        """Makes room for T words more of each sequence; gives their places in it, (N, T).

        Raises
        ------
        ValueError
            There is no room, and the cache does not slide.
        """
        filled = self.lengths
        missing = int(filled.max()) + T - self.capacity
        if missing > 0:
            if not self._slides or self.capacity < T:
                raise ValueError(
                    f"the cache has {self.capacity} places, {filled.max()} of which are filled, "
                    f"expected at most {self.capacity - filled.max()} words more and not {T}; a "
                    "larger one has room, and when_full='slide' forgets the oldest"
                )
            for slot in self.slots:
                self._slide(slot, T)
        rows = list(self.slots)
        return (self._filled[rows] + self._gone[rows])[:, None] + np.arange(T)

    def _slide(self, slot: int, T: int) -> None:
        """Forgets a quarter, so that the rest is not moved for every word."""
        filled = int(self._filled[slot])
        missing = filled + T - self.capacity
        if missing <= 0:
            return
        gone = min(filled, max(missing, self.capacity // 4))
        for it in (*self._keys, *self._values):
            it[slot, :, : filled - gone] = it[slot, :, gone:filled]
        self._filled[slot] -= gone
        self._gone[slot] += gone

    def advance(self, T: int) -> None:
        """Says that all layers have written T words more of each sequence."""
        self._filled[list(self.slots)] += T

    def attend(
        self, layer: int, heads: tuple[Array, Array, Array], window: int | None, **how: Any
    ) -> Array:
        """Writes keys and values (N, T, kv_heads, D), and mixes values for queries of that form."""
        q, k, v = heads
        T, y = q.shape[1], np.empty(q.shape, q.dtype)
        for row, slot in enumerate(self.slots):
            past = int(self._filled[slot])
            keys, values = self._keys[layer][slot], self._values[layer][slot]
            keys[:, past : past + T] = k[row].swapaxes(0, 1)
            values[:, past : past + T] = v[row].swapaxes(0, 1)
            first = 0 if window is None else max(0, past + 1 - window)
            seen = slice(first, past + T)
            dlprim.attention(
                q[row].swapaxes(0, 1),
                keys[:, seen],
                values[:, seen],
                near(T, past - first, window),
                causal=T > 1,
                past=past - first if T > 1 else 0,
                out=y[row].swapaxes(0, 1),
                **how,
            )
        return y


@lru_cache(maxsize=8)
def near(T: int, past: int, window: int | None) -> Array | None:
    """Which of past + T keys are not too far back for T queries; None where all are near."""
    if window is None or past + T <= window:
        return None
    return ~np.tri(T, past + T, past - window, dtype=bool)
