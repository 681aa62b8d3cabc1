"""`dlprim.einsum` on shapes/einsum.csv against NumPy and PyTorch on one core, float32.

All sides have the same arrays and are called from Python in turns; results are compared before
anything is timed. `x best` is how many times faster than the faster one of `numpy.einsum` with
optimize=True and `torch.einsum`.
"""

import argparse
import csv
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

# Before NumPy, which then reads what --isa says.
from torch_peer import beside_torch

# isort: split

import numpy as np

import dlprim
import harness

SHAPES = Path(__file__).parent / "shapes" / "einsum.csv"
Call = Callable[[], Any]


def contractions() -> list[dict[str, str]]:
    with SHAPES.open() as lines:
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def sides(torch: Any, row: dict[str, str]) -> tuple[Call, Call, Call]:
    """Ours, NumPy's, PyTorch's."""
    spec = row["spec"]
    extents = {
        letter: int(value) for letter, value in (it.split("=") for it in row["sizes"].split())
    }
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal([extents[letter] for letter in term], np.float32)
        for term in spec.split("->")[0].split(",")
    ]
    tensors = [torch.from_numpy(array) for array in arrays]
    return (
        lambda: dlprim.einsum(spec, *arrays),
        lambda: np.einsum(spec, *arrays, optimize=True),
        lambda: torch.einsum(spec, *tensors),
    )


def verify(ours: Call, theirs: Call) -> None:
    expected = theirs().numpy()
    scale = float(np.abs(expected).max())
    np.testing.assert_allclose(ours(), expected, atol=3e-5 * scale, rtol=1e-4)


def main() -> None:
    options, torch = beside_torch(argparse.ArgumentParser(description=__doc__))
    ratios = []
    for row in contractions():
        ours, numpy_side, torch_side = sides(torch, row)
        verify(ours, torch_side)
        calls = map(harness.timed, (ours, numpy_side, torch_side))
        times = harness.alternate(calls, options.rounds)
        best = min(times[1:], key=median)
        ratios.append(harness.median_ratio(best, times[0]))
        print(
            f"{row['name']:>24s} {row['spec']:>22s} {median(times[0]) * 1e6:10.1f} us, "
            f"x best {ratios[-1]:5.2f}",
            flush=True,
        )
    print(f"geometric mean {harness.geometric_mean(ratios):.2f}, least {min(ratios):.2f}")


if __name__ == "__main__":
    main()
