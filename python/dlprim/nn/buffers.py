"""Memory of activations and gradients: taken once, reused in every later step.

A training step asks for the same buffers in the same order each time. So a buffer that a layer
gives back is what the next layer takes, and after the first step nothing is allocated any more,
not even a view: Python runs between passes that have emptied the caches, so that it is slow.

A result that leaves the model takes its memory with it: the caller may keep it or drop it, and who
gives it back lends it to the next pass.

A pool is one Python thread's at a time, for a whole pass: others wait.
"""

from __future__ import annotations

import bisect
import math
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import numpy as np
import numpy.typing as npt

_CACHE_LINE = 64
_WASTE = 1.25  # a free buffer is used for something that much smaller at most
_VIEWS = 4096  # that are kept; a step of a large network has some hundreds
# Of what was ever taken at one time, how many times as much may wait for other shapes.
_MOST_FREE = 2

Array = npt.NDArray[Any]


class Buffers:
    """A pool of aligned arrays; copies and pickles of one are empty.

    Attributes
    ----------
    bytes : int
        Of this pool and of what it has handed over that somebody still holds: the peak, as nothing
        else goes back to the system.
    owner : object or None
        Whose pass is under way; to it belongs what is taken.
    thread : int
        The Python thread whose pass it is, as `threading.get_ident` says; 0 between passes.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._free: list[tuple[int, int]] = []  # (size, address), sorted
        self._memory: dict[int, Array] = {}  # by address
        self._taken: dict[int, tuple[int, object]] = {}  # size and owner, by address
        self._views: dict[int, dict[tuple[tuple[int, ...], np.dtype[Any]], Array]] = {}
        self._addresses: dict[int, int] = {}  # by id of a view that is kept
        self._handed: dict[int, tuple[int, weakref.ref[Array]]] = {}  # size and memory
        self._most_taken = 0  # bytes at one time
        self.owner: object = None
        self.thread = 0
        self._lock = threading.RLock()
        _POOLS.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Buffers, ()  # memory is nobody else's

    def take(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An array on a cache line; what it holds is undefined."""
        if self.thread != get_ident():
            with self._alone():
                return self.take(shape, dtype)
        kind = np.dtype(dtype)
        size = math.prod(shape) * kind.itemsize
        place = bisect.bisect_left(self._free, (size, 0))
        if place < len(self._free) and self._free[place][0] <= _WASTE * size:
            whole, address = self._free.pop(place)
        else:
            whole, address = size, self._allocate(size)
        self._taken[address] = (whole, self.owner)
        key = (shape, kind)
        view = self._views[address].get(key)
        if view is None:
            if len(self._addresses) == _VIEWS:
                for views in self._views.values():
                    views.clear()
                self._addresses.clear()
            view = self._views[address][key] = (
                self._memory[address][:size].view(kind).reshape(shape)
            )
            self._addresses[id(view)] = address
        return view

    def give(self, *arrays: Array | None) -> None:
        """Take arrays back; those that are nobody's here, or None, are left alone."""
        if self.thread != get_ident():
            with self._alone():
                return self.give(*arrays)
        for array in arrays:
            if array is None:
                continue
            address = self._address(array)
            taken = self._taken.pop(address, None)
            if taken is not None:
                bisect.insort(self._free, (taken[0], address))
            elif address in self._handed:
                self._take_back(address)

    def enter(self, owner: object, begins: bool) -> None:
        """In front of a pass, `leave` behind it; gives back what earlier ones of the owner have
        left where it begins anew. Passes of other Python threads take turns with it."""
        self._lock.acquire()
        self.owner, self.thread = owner, get_ident()
        if begins:
            self._release(owner)

    def leave(self, has_failed: bool = False) -> None:
        """Gives back what the owner took where the pass has failed."""
        if self.thread != get_ident():
            return  # interrupted in `enter`
        if has_failed:
            self._release(self.owner)
        self.owner, self.thread = None, 0
        self._lock.release()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Around what happens between passes."""
        self.enter(None, False)
        try:
            yield
        finally:
            self.leave()

    def hand_over(self, array: Array) -> None:
        """From now on the array and its memory are the caller's, who may give them back."""
        address = self._address(array)
        taken = self._taken.pop(address, None)
        if taken is None:
            return
        for view in self._views.pop(address).values():
            self._addresses.pop(id(view), None)
        size, pool = taken[0], weakref.ref(self)

        def drop(_: object) -> None:
            own = pool()
            if own is not None:
                del own._handed[address]
                own.bytes -= size

        memory = self._memory.pop(address).base
        assert memory is not None
        self._handed[address] = size, weakref.ref(memory, drop)

    def _take_back(self, address: int) -> None:
        size, reference = self._handed.pop(address)
        memory = reference()
        assert memory is not None
        begin = address - memory.ctypes.data
        self._memory[address] = memory[begin : begin + max(size, 1)]
        self._views[address] = {}
        bisect.insort(self._free, (size, address))

    def _address(self, array: Array) -> int:
        return self._addresses.get(id(array)) or array.ctypes.data

    @property
    def in_use(self) -> int:
        """Bytes that were taken and not given back."""
        return sum(size for size, _ in self._taken.values())

    def _release(self, owner: object) -> None:
        for address in [it for it, (_, whose) in self._taken.items() if whose is owner]:
            bisect.insort(self._free, (self._taken.pop(address)[0], address))

    def _allocate(self, size: int) -> int:
        self._make_room(size)
        memory = np.empty(size + _CACHE_LINE, np.uint8)
        begin = -memory.ctypes.data % _CACHE_LINE
        aligned = memory[begin : begin + max(size, 1)]
        address = aligned.ctypes.data
        self._memory[address], self._views[address] = aligned, {}
        self.bytes += size
        return address

    def _make_room(self, size: int) -> None:
        """Gives back to the system what waits for shapes that have not come again."""
        taken = self.in_use + size
        self._most_taken = max(self._most_taken, taken)
        free = sum(it for it, _ in self._free)
        while self._free and free + taken > (1 + _MOST_FREE) * self._most_taken:
            # Memory that was allocated first: addresses are in that order in the dict.
            waiting = {address for _, address in self._free}
            oldest = next(it for it in self._memory if it in waiting)
            whole = next(it for it in self._free if it[1] == oldest)
            self._free.remove(whole)
            self._memory.pop(oldest)
            for view in self._views.pop(oldest).values():
                self._addresses.pop(id(view), None)
            free -= whole[0]
            self.bytes -= whole[0]

    def _forked(self) -> None:
        """In a child process, where the thread whose pass was under way is not."""
        if self.thread not in (0, get_ident()):
            self._release(self.owner)
            self.owner, self.thread, self._lock = None, 0, threading.RLock()


_POOLS: weakref.WeakSet[Buffers] = weakref.WeakSet()


def _after_fork() -> None:
    for pool in _POOLS:
        pool._forked()


os.register_at_fork(after_in_child=_after_fork)
