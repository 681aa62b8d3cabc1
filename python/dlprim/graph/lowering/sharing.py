"""Weights once: told apart by where they lie, and in memory in the forms that steps read.

What a model has read lies in files that are mapped, or in arrays that live as long as the model. It
is packed from there, through whatever strides, and of a file nothing stays in memory thereafter. As
a network is made for each shape, forms are found again by the memory that they were made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from mmap import MADV_DONTNEED, PAGESIZE, mmap
from typing import Any, NamedTuple
from weakref import WeakValueDictionary, ref

import numpy as np

from dlprim.graph.graph import Array

# Smaller arrays cost less than to look for them.
_LEAST_BYTES = 1 << 12
_SAMPLES = 64
_LEAST_PASSING = 1 << 16

# By type, shape, memory form and a few elements, as long as a network has them.
_known: WeakValueDictionary[tuple[object, ...], Array] = WeakValueDictionary()


def shared(array: Array) -> Array:
    """An array with the same bytes that a network already has, or this one from here on.

    Nobody writes to such arrays. What lies in a file is that array in any case.
    """
    if array.nbytes < _LEAST_BYTES or not array.flags.c_contiguous or mapping_of(array):
        return array
    octets = np.asarray(array).reshape(-1).view(np.uint8)
    sample = octets[:: max(1, octets.size // _SAMPLES)].tobytes()
    key = (type(array), getattr(array, "_form", None), array.dtype, array.shape, sample)
    known = _known.setdefault(key, array)
    is_same = known.ctypes.data == array.ctypes.data
    if is_same or np.array_equal(np.asarray(known).reshape(-1).view(np.uint8), octets):
        return known
    return array


class _Memory(mmap):
    """Without a file."""


def passing(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A new array for what is packed and goes: its memory is not kept for others by malloc."""
    count = math.prod(shape)
    if count * dtype.itemsize < _LEAST_PASSING:
        return np.empty(shape, dtype)
    return np.frombuffer(_Memory(-1, count * dtype.itemsize), dtype).reshape(shape)


class _Made(NamedTuple):
    array: ref[Array]
    of: Array
    where: Hashable
    make: Callable[[], Array]


# What arrays without a file were made of and how, by identity, as long as they live.
_made: dict[int, _Made] = {}


def made_of(array: Array, source: Array, how: Hashable, make: Callable[[], Array]) -> Array:
    """The array, which `make` can make again: all that are made so of a source are equal."""
    root = _root_of(array)
    if array.nbytes == root.nbytes >= _LEAST_BYTES:
        number = id(root)
        home, where = _place_of(source)
        it = ref(root, _forget(_made, number))
        _made[number] = _Made(it, home, (where, how), make)
    leave_to_file(source)
    return array


def _forget(known: dict[int, Any], number: int) -> Callable[[object], None]:
    """What is called when an array goes, at the end of the process with no module left."""
    return lambda _: known.pop(number, None)


def _root_of(array: Array) -> Array:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _made_from(root: Array) -> _Made | None:
    found = _made.get(id(root))
    return found if found is not None and found.array() is root else None


def _place_of(array: Array) -> tuple[Array, Hashable]:
    """The array whose memory it is or was made of, and what tells it from others of that."""
    root = _root_of(array)
    start = array.ctypes.data - root.ctypes.data
    where = (start, array.shape, array.strides, array.dtype)
    made = _made_from(root)
    return (root, where) if made is None else (made.of, (made.where, *where))


class Origin(NamedTuple):
    """Where the elements lie that an array has, or was made of one by one."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def origin_of(array: Array) -> Origin | None:
    """None where it has other elements, or in another order, than what it was made of."""
    home, where = _place_of(array)
    it: Any = where
    while len(it) > len(Origin._fields):
        (inner, _), start, shape, *_ = it
        if start or shape != inner[-3]:
            return None
        it = inner
    start, shape, strides, dtype = it
    return Origin(home.ctypes.data + start, shape, strides, dtype)


def mapping_of(array: Array) -> mmap | None:
    """The file that the array lies in."""
    base: Any = _root_of(array).base
    held = base.obj if isinstance(base, memoryview) else base
    return held if isinstance(held, mmap) and not isinstance(held, _Memory) else None


def leave_to_file(array: Array) -> None:
    """Takes what lies in a file out of memory, from where it is read again if anybody asks."""
    mapping = mapping_of(array)
    if mapping is None or not array.size:
        return
    low, high = np.lib.array_utils.byte_bounds(array)
    begin = np.frombuffer(mapping, np.uint8).ctypes.data
    first, last = -(-(low - begin) // PAGESIZE) * PAGESIZE, (high - begin) // PAGESIZE * PAGESIZE
    if first < last:
        mapping.madvise(MADV_DONTNEED, first, last - first)


def leave_files(arrays: Iterable[Array]) -> None:
    """The same for all of the files, of which looking at a bias can have brought in a MiB."""
    for mapping in {mapping_of(it) for it in arrays}:
        if mapping is not None:
            mapping.madvise(MADV_DONTNEED)


class Weights:
    """Weights that steps read in some form.

    What was made of others is not kept: it is made again where another form of it is needed.
    """

    def __init__(self, array: Array) -> None:
        self.home, self.where = _place_of(array)
        self._look = array.shape, array.strides, array.dtype
        root = _root_of(array)
        self._made = _made_from(root)
        self._start = array.ctypes.data - root.ctypes.data
        self._array = array if self._made is None else None
        self.packed: dict[Hashable, Array] = {}  # forms that were asked of this object

    @property
    def is_made(self) -> bool:
        """Whether they were made of others."""
        return self._made is not None

    def array(self) -> Array:
        """The elements."""
        if self._array is not None:
            return self._array
        assert self._made is not None
        root = self._made.array()
        if root is None:
            root = self._made.make()
        shape, strides, dtype = self._look
        octets = root.ravel(order="K").view(np.uint8)  # as they lie, in whatever order
        return np.ndarray(shape, dtype, octets, self._start, strides)


# Forms of weights, by the array whose memory they were made of, as long as that lives.
_packed: dict[int, tuple[ref[Array], dict[Hashable, Array]]] = {}


def packed_once(weights: Weights, form: Hashable, pack: Callable[[Array], Array]) -> Array:
    """The weights in a form, in which networks for all shapes read them."""
    packed = weights.packed.get(form)
    if packed is None:
        packed = weights.packed[form] = _packed_once(weights, form, pack)
    return packed


def _packed_once(weights: Weights, form: Hashable, pack: Callable[[Array], Array]) -> Array:
    number = id(weights.home)
    known = _packed.get(number)
    if known is None or known[0]() is not weights.home:
        known = (ref(weights.home, _forget(_packed, number)), {})
        _packed[number] = known
    key = (weights.where, form)
    if key not in known[1]:
        array = weights.array()
        packed = pack(array)
        known[1][key] = shared(packed)
        leave_to_file(array)
    return known[1][key]


def in_c_order(array: Array, dtype: np.dtype[Any]) -> Array:
    """The elements as formulas and tables are read, all networks' from the same memory."""
    weights = Weights(array)
    is_ready = array.flags.c_contiguous and array.flags.aligned and array.dtype == dtype
    if array.nbytes < _LEAST_BYTES or (is_ready and not weights.is_made):
        return np.require(array, dtype, ["C", "A"])
    return packed_once(weights, dtype, lambda it: np.require(it, dtype, ["C", "A"]))
