"""Attention of a few queries to a cache, as a fraction of the rate at which one core reads it.

The read test, which is of memory, and each side take turns; a figure is the median of the ratios of
neighbouring turns, of the bytes of the keys and values that count over the time, on one thread.
Caches are many, as the layers of a model have them, so that none is found where it was left.

    taskset -c 0 python bench/bench_cache.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import cycle
from statistics import median
from typing import Any

import numpy as np

import dlprim
from dlprim.bench import peers
from dlprim.bench.measuring.case import UnavailableError
from dlprim.testing import read_bandwidth

_TURNS = 25
_TOTAL = 1 << 28  # bytes of all caches, and of the read test
_TURN = 1 << 26  # of a turn
# Heads, heads of keys, queries, places, size of a head, dtype.
_CASES = [
    (32, 32, 1, 2048, 64, "float32"),
    (32, 32, 1, 4000, 64, "float32"),
    (32, 8, 1, 2048, 128, "float32"),
    (32, 8, 1, 2048, 128, "bfloat16"),
    (14, 2, 1, 2048, 64, "bfloat16"),
    (32, 8, 4, 2048, 128, "bfloat16"),
]


def _rate(call: Callable[[], Any], size: int) -> float:
    calls = max(_TURN // size, 1)
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return calls * size / (time.perf_counter() - began)


def _sides(case: tuple[int, int, int, int, int, str]) -> tuple[int, dict[str, Callable[[], Any]]]:
    heads, kv_heads, queries, places, size, dtype = case
    rng = np.random.default_rng(0)
    extents = ((heads, queries), (kv_heads, places), (kv_heads, places))
    arrays = [rng.standard_normal((1, *it, size), np.float32) for it in extents]
    if dtype == "bfloat16":
        arrays = [dlprim.to_bfloat16(it) for it in arrays]
    q, k, v = arrays
    bytes_of_one = k.nbytes + v.nbytes
    caches = [(k.copy(), v.copy()) for _ in range(_TOTAL // bytes_of_one)]
    turns = cycle(caches)
    sides: dict[str, Callable[[], Any]] = {
        "dlprim": lambda: dlprim.attention(q, *next(turns), causal=True, fill=places)
    }
    try:
        torch = peers.torch(1)
        query = peers.tensor_on(torch, q)
        others = cycle([[peers.tensor_on(torch, it) for it in cache] for cache in caches])
        fused = torch.nn.functional.scaled_dot_product_attention
        sides["torch"] = lambda: fused(query, *next(others), enable_gqa=heads > kv_heads)
    except UnavailableError:
        pass
    return bytes_of_one, sides


def main() -> None:
    dlprim.set_num_threads(1)
    print(f"{'':44}   GB/s  of reading")
    for case in _CASES:
        size, sides = _sides(case)
        for name, call in sides.items():
            call()
            ratios, rates = [], []
            for _ in range(_TURNS):
                read = read_bandwidth(_TOTAL, seconds=0.01)
                rates.append(_rate(call, size))
                ratios.append(rates[-1] / read)
            print(f"{case!s:36} {name:8} {1e-9 * median(rates):6.1f} {median(ratios):8.2f}")


if __name__ == "__main__":
    main()
