"""Keys and values of the tokens that were read: room for so many, of several sequences.

A step writes those of its tokens behind the others and reads what is filled, where it lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

import dlprim
from dlprim.arguments.names import one_of_names
from dlprim.arguments.scalars import integer
from dlprim.llm.config import Config

Array = npt.NDArray[Any]
_FULL = ("refuse", "slide")
_FEW = 8  # tokens of a step that are read beside keys and values as they lie


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
                "has embeddings for"
            )
        if self._slides:
            raise ValueError(
                "when_full is 'slide', expected 'refuse': the model has learned position embeddings"
            )

    @property
    def lengths(self) -> Array:
        """How many places of each sequence are filled."""
        return self._filled[list(self.slots)]

    @property
    def room(self) -> int:
        """How many tokens more each sequence can read; as many as there are places if it slides."""
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

    def step(self, T: int) -> Step:
        """Makes room for T tokens more of each sequence.

        Raises
        ------
        ValueError
            There is no room, and the cache does not slide.
        """
        filled = int(self.lengths.max())
        if filled + T > self.capacity:
            if not self._slides or self.capacity < T:
                raise ValueError(
                    f"the cache has {self.capacity} places, {filled} of which are filled, "
                    f"expected at most {self.capacity - filled} tokens more and not {T}; a larger "
                    "one has room, and when_full='slide' forgets the oldest"
                )
            for slot in self.slots:
                self._slide(slot, T)
        return Step(self, T)

    def _slide(self, slot: int, T: int) -> None:
        """Forgets a quarter, so that the rest is not moved for every token."""
        filled = int(self._filled[slot])
        missing = filled + T - self.capacity
        if missing <= 0:
            return
        gone = min(filled, max(missing, self.capacity // 4))
        for it in (*self._keys, *self._values):
            it[slot, :, : filled - gone] = it[slot, :, gone:filled]
        self._filled[slot] -= gone
        self._gone[slot] += gone

    def filled_by(self, T: int) -> None:
        """Says that all layers have written T tokens more of each sequence."""
        self._filled[list(self.slots)] += T

    def state(self) -> tuple[list[Array], list[Array], Array, Array]:
        """Keys and values of layers, (all sequences, kv_heads, capacity, D); for all sequences how
        many places are filled, and how many tokens were forgotten."""
        return self._keys, self._values, self._filled, self._gone


class Step:
    """Where the tokens of a step stand, found once for all layers.

    Attributes
    ----------
    places : ndarray of int64, (N, T)
        Of the tokens in their texts.
    """

    def __init__(self, cache: Cache, T: int) -> None:
        self._keys, self._values, filled, gone = cache.state()
        slots = list(cache.slots)
        self._past = [(it, int(filled[it])) for it in slots]
        self.places = (filled[slots] + gone[slots])[:, None] + np.arange(T)
        self._T, first = T, min(slots)
        self._all = slice(first, max(slots) + 1)
        self._rows = (
            None if slots == [*range(first, first + len(slots))] else np.subtract(slots, first)
        )
        fill = np.zeros(self._all.stop - first, np.int64)
        fill[self._rows] = filled[slots] + T
        if slots == [*range(first, first + len(slots))]:
            self._rows = None
        self._fill: Any = int(fill[0]) if len(fill) == 1 else fill

    def attend(self, layer: int, q: Array, k: Array, v: Array, **how: Any) -> Array:
        """Writes keys and values (N, T, kv_heads, D), and mixes values for queries of that form."""
        y = np.empty(q.shape, q.dtype)
        q, k, v, mixed = (it.swapaxes(1, 2) for it in (q, k, v, y))
        T, keys, values = self._T, self._keys[layer], self._values[layer]
        for row, (slot, past) in enumerate(self._past):
            keys[slot, :, past : past + T] = k[row]
            values[slot, :, past : past + T] = v[row]
        if T > _FEW:
            for row, (slot, past) in enumerate(self._past):
                known = (k[row], v[row])
                if past:
                    known = (keys[slot, :, : past + T], values[slot, :, : past + T])
                k_all, v_all = (np.asarray(it, q.dtype) for it in known)
                dlprim.attention(
                    q[row], k_all, v_all, causal=True, past=past, out=mixed[row], **how
                )
            return y
        keys, values, how = keys[self._all], values[self._all], {**how, "fill": self._fill}
        if self._rows is None:
            dlprim.attention(q, keys, values, causal=True, out=mixed, **how)
        else:  # sequences between these have no queries
            spread = np.zeros((len(keys), *q.shape[1:]), q.dtype)
            spread[self._rows] = q
            mixed[...] = dlprim.attention(spread, keys, values, causal=True, **how)[self._rows]
        return y
