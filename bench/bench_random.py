"""Random shapes of every plain function and gradient, against PyTorch on the same arrays.

Nobody chose these shapes: `--seed` draws others. Both sides are called from Python on one thread,
in turns, after their results were compared. A function's line says how many times faster than
PyTorch it is in the geometric mean, how many rows are slower than `--least` of it, and the worst.

    python bench/bench_random.py --functions conv2d linear --count 40 --seed 7
"""

import argparse
from typing import Any

import numpy as np

import torch_peer

# isort: split

from dlprim.bench.measuring import timing
from random_cases import DRAWERS, Drawing, Row


def verify(row: Row) -> None:
    """Both sides differ by rounding alone."""
    ours, theirs = row.ours(), row.theirs()
    if not isinstance(ours, tuple):
        ours, theirs = (ours,), (theirs,)
    for one, other in zip(ours, theirs, strict=True):
        reference = other.numpy()
        error = np.abs(np.asarray(one) - reference).max(initial=0)
        bound = 2e-3 * max(1.0, float(np.abs(reference).max(initial=0)))
        if not error <= bound:
            raise SystemExit(f"{row.label}: results differ by {error}")


def measure(row: Row, rounds: int) -> float:
    ours, theirs = timing.alternate([timing.timed(row.ours), timing.timed(row.theirs)], rounds)
    return timing.median_ratio(theirs, ours)


def run(name: str, options: argparse.Namespace, torch: Any) -> None:
    found = []
    for number in range(options.count):
        row = DRAWERS[name](Drawing(options.seed * 1_000_003 + number, torch))
        verify(row)
        found.append((measure(row, options.rounds), row.label))
    slow = sorted(each for each in found if each[0] < options.least)
    mean = timing.geometric_mean(ratio for ratio, _ in found)
    print(f"{name:22s} {mean:5.2f} {len(slow):3d} of {len(found)} below {options.least}", end="")
    print(f"   worst {min(found)[0]:.2f}: {min(found)[1]}", flush=True)
    if options.all:
        for ratio, label in slow:
            print(f"    {ratio:5.2f}  {label}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--functions", nargs="+", choices=DRAWERS, default=list(DRAWERS))
    parser.add_argument("--count", type=int, default=40, help="rows of each function")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--least", type=float, default=0.9, help="slower rows are counted")
    parser.add_argument("--all", action="store_true", help="print every such row")
    options, torch = torch_peer.beside_torch(parser)
    with torch.no_grad():
        for name in options.functions:
            run(name, options, torch)


if __name__ == "__main__":
    main()
