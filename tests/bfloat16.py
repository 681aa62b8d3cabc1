"""What bfloat16 is, in NumPy's integers: the oracle of every rounding to it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ALL_BITS = np.arange(2**16, dtype=np.uint32).astype(np.uint16)


def bits_of(array: NDArray) -> NDArray:
    """An array of bfloat16 (or of bytes) as integers that can be compared, NaN or not."""
    return array if array.dtype.itemsize == 1 else array.view(np.uint16)


def rounded(x: NDArray) -> NDArray:
    """The bits of float32 x to nearest even; wide integers, so that nothing can overflow."""
    bits = x.view(np.uint32).astype(np.uint64)
    nearest = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(x), bits >> 16 | 0x40, nearest).astype(np.uint16)


def special_floats() -> NDArray:
    """Every bfloat16 with lower halves around the tie, where rounding and NaN detection turn."""
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    return (ALL_BITS.astype(np.uint32)[:, None] << 16 | lower).view(np.float32).ravel()


def random_floats(size: int) -> NDArray:
    """Any bits at all."""
    bits = np.random.default_rng(size).integers(0, 2**32, size, np.uint32)
    return bits.view(np.float32)
