"""Other libraries, each of which may be missing: what they are, and how they are loaded.

``onednn`` is the oneDNN in PyTorch, called on weights that were packed for it before, as a compiled
model calls it; ``libxsmm`` is its shared library, called through ctypes.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from dlprim.bench.measuring.case import UnavailableError
from dlprim.bench.measuring.timing import Call

PACKAGES = {
    "numpy": "numpy",
    "torch": "torch",
    "compile": "torch",
    "onednn": "torch",
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
}
NAMES = (*PACKAGES, "libxsmm")
_NO_LIBXSMM = "the shared library libxsmm.so is not installed"
DEFAULT = tuple(name for name in NAMES if name != "compile")  # which compiles for minutes


def missing(names: list[str]) -> dict[str, str]:
    """What is not installed, and how people get it."""
    found = {}
    for name in names:
        if name == "libxsmm":
            if _libxsmm() is None:
                found[name] = _NO_LIBXSMM
        elif importlib.util.find_spec(PACKAGES[name]) is None:
            found[name] = f"it needs pip install {PACKAGES[name]}"
    return found


def torch(threads: int) -> Any:
    """PyTorch with that number of threads.

    Raises
    ------
    UnavailableError
        It is not installed.
    """
    module = load("torch")
    if module.get_num_threads() != threads:
        module.set_num_threads(threads)
    return module


def load(name: str) -> Any:
    """A module.

    Raises
    ------
    UnavailableError
        It is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UnavailableError(f"it needs pip install {name.partition('.')[0]}") from error


def tensor_on(torch: Any, array: np.ndarray) -> Any:
    """A tensor on the memory of ``array``, float32 or bfloat16."""
    if array.dtype.name == "bfloat16" or array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


@cache
def _libxsmm() -> Any:
    """The library, or None where the loader finds none."""
    with contextlib.suppress(OSError):
        return ctypes.CDLL("libxsmm.so")
    return None


def libxsmm_product(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Call:
    """``c = a @ b`` of float32 arrays in C order: libxsmm's, which is column-major, of b and a."""
    library = _libxsmm()
    if library is None:
        raise UnavailableError(_NO_LIBXSMM)
    sgemm: Callable[..., None] = library.libxsmm_sgemm
    integers = [ctypes.c_int(it) for it in (b.shape[1], a.shape[0], a.shape[1])]
    n, m, k = map(ctypes.byref, integers)
    one, zero = (ctypes.byref(ctypes.c_float(it)) for it in (1, 0))
    letter = ctypes.c_char_p(b"N")
    pa, pb, pc = (ctypes.c_void_p(it.ctypes.data) for it in (a, b, c))

    c.fill(np.nan)  # where the library refuses, and only prints why

    def call() -> np.ndarray:
        sgemm(letter, letter, n, m, k, one, pb, n, pa, k, zero, pc, n)
        return c

    return call
