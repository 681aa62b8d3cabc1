"""What `bench_layers.py` measures of a layer, and arrays as PyTorch takes them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import dlprim

Call = Callable[[], object]


class Case(NamedTuple):
    name: str
    bytes: float
    ours: Call
    theirs: Call
    error: float


def tensor(torch: Any, x: np.ndarray) -> Any:
    plain = torch.from_numpy(x if x.dtype == np.float32 else x.view(np.int16))
    typed = plain if x.dtype == np.float32 else plain.view(torch.bfloat16)
    return typed.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else typed


def as_dtype(x: np.ndarray, dtype: str) -> np.ndarray:
    return dlprim.to_bfloat16(x) if dtype == "bfloat16" else x


def wide(x: np.ndarray) -> np.ndarray:
    return x if x.dtype == np.float32 else dlprim.to_float32(x, dtype="bfloat16")


def difference(torch: Any, ours: np.ndarray, theirs: Any) -> float:
    # The mean: where relu turns, two roundings may differ on one element.
    return float(np.abs(wide(ours) - theirs.detach().float().numpy()).mean())
