"""PyTorch, where it is installed: the side that benchmarks compare with."""

import argparse
import importlib
from typing import Any

import held_isa

# isort: split

import numpy as np

import dlprim
from dlprim import hardware
from dlprim.bench.measuring import timing


def load_torch(threads: int) -> Any:
    """PyTorch with that number of threads, or None where it is not installed."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    torch.set_num_threads(threads)
    return torch


def beside_torch(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, Any]:
    """Options with --core, --rounds and --isa, and PyTorch; both sides on one core from here on."""
    parser.add_argument("--rounds", type=int, default=9, help="turns of each side per row")
    parser.add_argument("--core", type=int, default=0, help="core to run on")
    held_isa.add_to(parser)
    options = parser.parse_args()
    torch = load_torch(1)
    if torch is None:
        raise SystemExit("PyTorch is the other side: pip install torch==2.13.0")
    timing.place([options.core], 1)
    dlprim.set_num_threads(1)
    print(f"{dlprim.isa()} on {hardware.cpu_name()}")
    return options, torch


def tensor_on(torch: Any, array: np.ndarray) -> Any:
    """A tensor on the memory of ``array``, float32 or bfloat16."""
    if array.dtype == np.float32:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
