"""One array for equal weights: of networks made for other shapes, and of models loaded twice."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from weakref import WeakValueDictionary, ref

import numpy as np

from dlprim.graph.graph import Array

# Smaller arrays cost less than to look for them.
_LEAST_BYTES = 1 << 12
_SAMPLES = 64

# By type, shape, memory form and a few elements, as long as a network has them.
_known: WeakValueDictionary[tuple[object, ...], Array] = WeakValueDictionary()


def shared(array: Array) -> Array:
    """An array with the same bytes that a network already has, or this one from here on.

    Nobody writes to such arrays.
    """
    if array.nbytes < _LEAST_BYTES or not array.flags.c_contiguous:
        return array
    octets = np.asarray(array).reshape(-1).view(np.uint8)
    sample = octets[:: max(1, octets.size // _SAMPLES)].tobytes()
    key = (type(array), getattr(array, "_form", None), array.dtype, array.shape, sample)
    known = _known.setdefault(key, array)
    if known is array or not np.array_equal(np.asarray(known).reshape(-1).view(np.uint8), octets):
        return array
    return known


# Forms of weights, by what they were packed from and as, as long as that lives.
_packed: dict[int, tuple[ref[Array], dict[Hashable, Array]]] = {}


def packed_once(weights: Array, form: Hashable, pack: Callable[[], Array]) -> Array:
    """The weights in a form, in which networks for all shapes read them."""
    known = _packed.get(id(weights))
    if known is None or known[0]() is not weights:
        number = id(weights)
        known = (ref(weights, lambda _: _packed.pop(number, None)), {})
        _packed[number] = known
    if form not in known[1]:
        known[1][form] = shared(pack())
    return known[1][form]
