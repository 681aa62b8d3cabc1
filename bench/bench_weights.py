"""Linear layers on quantised weights against a read of as much memory, in turns.

Layers of one shape take their turns until they are larger than the caches, so that weights come
from memory; a read of a buffer as large stands between two of them. What is printed is the median
of the ratios of neighbouring turns: how much of the machine's bandwidth the weights were read with.

    python bench/bench_weights.py --shapes 896x4864 --bits 4 8 16 --threads 1
"""

from __future__ import annotations

import argparse
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

# Before NumPy: the process begins again with what --isa and --threads say.
import held_isa

# isort: split

import numpy as np

import dlprim
from dlprim.testing import read_bandwidth

_BOUND = 1e-3  # of the largest result, against float64


def verify(packed: dlprim.QuantizedWeights, x: np.ndarray) -> None:
    exact = x.astype(np.float64) @ packed.dequantize().astype(np.float64).T
    error = np.abs(dlprim.linear(x, packed) - exact).max() / np.abs(exact).max()
    bound = _BOUND if packed.x_bits == 15 else 30 * _BOUND
    if error > bound:
        raise SystemExit(f"{packed}: off by {error:.1e} of the largest result")


def layers(
    shape: tuple[int, int], options: argparse.Namespace, bits: int
) -> list[dlprim.QuantizedWeights]:
    w = np.random.default_rng(0).standard_normal(shape, np.float32)
    packed = dlprim.quantize_weights(w, bits, options.group, x_bits=options.x_bits)
    verify(packed, np.random.default_rng(1).standard_normal((options.rows, shape[1]), np.float32))
    stored = pickle.dumps(packed)
    return [pickle.loads(stored) for _ in range(max(1, options.megabytes * 10**6 // packed.nbytes))]


def bandwidth(bytes_: int, threads: int) -> float:
    """Of all threads together."""
    if threads == 1:
        return read_bandwidth(bytes_, seconds=0.02)
    with ThreadPoolExecutor(threads) as pool:
        return sum(
            pool.map(lambda _: read_bandwidth(bytes_ // threads, seconds=0.1), range(threads))
        )


def row(shape: tuple[int, int], options: argparse.Namespace, bits: int) -> str:
    weights = layers(shape, options, bits)
    x = np.random.default_rng(2).standard_normal((options.rows, shape[1]), np.float32)
    out = np.empty((options.rows, shape[0]), np.float32)
    size = sum(it.nbytes for it in weights)
    ratios, rates = [], []
    for _ in range(options.rounds):
        read = bandwidth(size, options.threads)
        start = time.perf_counter()
        for it in weights:
            dlprim.linear(x, it, out=out)
        seconds = time.perf_counter() - start
        rates.append(size / seconds)
        ratios.append(size / seconds / read)
    flops = 2 * options.rows * shape[0] * shape[1] * len(weights) / (size / median(rates))
    return (
        f"{shape[0]}x{shape[1]} {bits} bits, {options.rows} rows: {median(rates) / 1e9:.1f} GB/s, "
        f"of the read {median(ratios):.2f}, {flops / 1e9:.0f} GFLOP/s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="+", default=["4864x896", "896x4864", "2048x8192"])
    parser.add_argument("--bits", nargs="+", type=int, default=[4, 8, 16])
    parser.add_argument("--group", type=int, default=32)
    parser.add_argument("--x-bits", type=int, default=15)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--megabytes", type=int, default=1000, help="of weights, beyond the caches")
    parser.add_argument("--rounds", type=int, default=7)
    held_isa.add_to(parser)
    options = parser.parse_args()
    dlprim.set_num_threads(options.threads)
    for shape in options.shapes:
        K, C = map(int, shape.split("x"))
        for bits in options.bits:
            print(row((K, C), options, bits), flush=True)


if __name__ == "__main__":
    main()
