"""PyTorch, where it is installed: the side that benchmarks compare with."""

import importlib
from typing import Any

import numpy as np


def load_torch(threads: int) -> Any:
    """PyTorch with that number of threads, or None where it is not installed."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    torch.set_num_threads(threads)
    return torch


def tensor_on(torch: Any, array: np.ndarray) -> Any:
    """A tensor on the memory of ``array``, float32 or bfloat16."""
    if array.dtype == np.float32:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
