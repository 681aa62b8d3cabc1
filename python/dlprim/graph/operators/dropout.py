"""Elements dropped by a mask that follows from a seed and a number, and is nowhere stored.

The gradient is the same operator of the same numbers. Philox 4x32-10: Salmon et al., "Parallel
random numbers: as easy as 1, 2, 3" (SC11), section 3.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.operators.elements import converted
from dlprim.graph.operators.operator import (
    Arrays,
    Attributes,
    Operator,
    Result,
    Values,
    there,
    widened,
)

if TYPE_CHECKING:
    from dlprim.graph.builder import Builder

_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = 0x9E3779B9, 0xBB67AE85
_WORD, _BITS = (1 << 32) - 1, np.uint64(32)


def _infer(values: Values, attributes: Attributes) -> list[Result]:
    """Of x and the number of the mask, an integer. Attributes are ``p`` and ``seed``."""
    x, offset = there(values[0]), there(values[1])
    if offset.dtype != np.int64 or offset.size != 1:
        raise ValueError(f"the number of a mask is {offset!r}, expected one of int64")
    return [(x.shape, x.dtype)]


def _words(seed: int, offset: int, count: int) -> Array:
    """The random word of each element, as `cpp/primitives/layers/dropout.h` places them."""
    places = np.arange(count, dtype=np.uint64)
    first = places // 64 * 16 + places % 16
    low = np.uint64(_WORD)
    c = [first & low, first >> _BITS, *(np.full_like(first, it) for it in _halves(offset))]
    key = _halves(seed)
    for _ in range(10):
        products = _MULTIPLIERS[0] * c[0], _MULTIPLIERS[1] * c[2]
        c = [
            (products[1] >> _BITS) ^ c[1] ^ np.uint64(key[0]),
            products[1] & low,
            (products[0] >> _BITS) ^ c[3] ^ np.uint64(key[1]),
            products[0] & low,
        ]
        key = [(it + step) & _WORD for it, step in zip(key, _WEYL, strict=True)]
    return np.choose((places % 64 // 16).astype(np.intp), c)


def _halves(number: int) -> list[int]:
    return [number & _WORD, number >> 32 & _WORD]


def keeping(p: float) -> tuple[int, float]:
    """From which word on elements are kept, and what they are multiplied by."""
    threshold = round(math.ldexp(p, 32))
    return threshold, 0.0 if threshold > _WORD else 1 / (1 - p)


def _compute(arrays: Arrays, attributes: Attributes) -> list[Any]:
    x, offset = arrays
    threshold, scale = keeping(attributes["p"])
    words = _words(attributes["seed"], int(np.asarray(offset).reshape(-1)[0]), x.size)
    kept = (words >= threshold).reshape(x.shape)
    return [converted(np.where(kept, widened(x) * scale, 0), x.dtype)]


def _gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    return [*b.emit("dropout", [diffs[0], node.inputs[1]], **node.attributes), None]


DROPOUT = {"dropout": Operator("rows", _infer, _compute, _gradient)}
