"""Arrays next to pages that nobody may touch.

A kernel that reads or writes one element too many usually gets away with it, because the memory
there belongs to someone. Here it does not: the process dies with a segmentation fault, and the
traceback of Python's faulthandler names the test.
"""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np
from numpy.typing import DTypeLike, NDArray

PAGE = mmap.PAGESIZE
_PROT_NONE = 0

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def guarded(size: int, edge: str = "end", dtype: DTypeLike = np.float32) -> NDArray:
    """A vector of `size` zeros with a forbidden page on both sides.

    With edge="end" its last element ends where the page after it begins (so its first one is
    aligned to no vector), with edge="begin" its first element follows the page before it.
    """
    nbytes = size * np.dtype(dtype).itemsize
    inside = max(-(-nbytes // PAGE), 1) * PAGE
    pages = mmap.mmap(-1, inside + 2 * PAGE)
    memory = np.frombuffer(pages, np.uint8)  # the pages live as long as a view of them
    for page in (0, PAGE + inside):
        if _libc.mprotect(memory.ctypes.data + page, PAGE, _PROT_NONE) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
    begin = PAGE if edge == "begin" else PAGE + inside - nbytes
    return memory[begin : begin + nbytes].view(dtype)
