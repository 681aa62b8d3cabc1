"""`dlprim.gpu` on the GPU at hand, against cuBLAS, cuDNN, `torch.einsum` and `torch.compile`.

Results are compared before anything is timed; both sides take turns, and the median of the ratios
of neighbouring turns is printed: how many times as fast as PyTorch. Rows of all groups come in
turns until --seconds are over, most of which compilers take; what was left out is counted. --tiny
runs a few small rows once, in Triton's interpreter where there is no GPU, and measures nothing.
"""

import argparse
import itertools
import time
from collections.abc import Callable
from statistics import geometric_mean, median
from typing import Any

import torch

from gpu_cases import DEVICE, Row, contractions, convolutions, formulas, products

TURN, ROUNDS = 2e-3, 15  # seconds, and turns of each side


def verify(row: Row) -> None:
    results = [it if isinstance(it, tuple) else (it,) for it in (row.own(), row.peers[0]())]
    for one, other in zip(*results, strict=True):
        error = (one.double() - other.double()).norm() / other.double().norm().clamp(min=1e-30)
        if not error < 2e-2:
            raise SystemExit(f"{row.group} {row.name}: wrong result, {error:.2g} from PyTorch's")


def seconds(call: Callable[[], Any], repeats: int) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats


def measured(row: Row) -> tuple[float, float]:
    """Microseconds of ours, and times as fast as the fastest peer."""
    calls = [row.own, *row.peers]
    repeats = []
    for call in calls:
        call()
        repeats.append(max(1, round(TURN / seconds(call, 3))))
    turns = [[seconds(*it) for it in zip(calls, repeats, strict=True)] for _ in range(ROUNDS)]
    return median(it[0] for it in turns) * 1e6, median(min(it[1:]) / it[0] for it in turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="small rows, once, unmeasured")
    parser.add_argument("--seconds", type=float, default=450, help="to take at most, about")
    options = parser.parse_args()
    if DEVICE == "cpu" and not options.tiny:
        raise SystemExit("no GPU is at hand, expected --tiny")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    print(f"{torch.cuda.get_device_name() if DEVICE == 'cuda' else 'interpreted'}, PyTorch "
          f"{torch.__version__}")  # fmt: skip
    groups = [products, convolutions, formulas, contractions]
    end, found = time.monotonic() + options.seconds, dict[str, list[float]]()
    rows = itertools.chain.from_iterable(
        itertools.zip_longest(*(it(options.tiny) for it in groups))
    )
    left = 0
    for row in filter(None, rows):
        if time.monotonic() > end:
            left += 1
            continue
        verify(row)
        if options.tiny:
            print(f"{row.group:12}{row.name:32}right")
            continue
        time_, ratio = measured(row)
        found.setdefault(row.group, []).append(ratio)
        print(f"{row.group:12}{row.name:32}{time_:10.1f} us  x torch {ratio:.2f}", flush=True)
    for group, ratios in found.items():
        print(f"{group:12}geomean {geometric_mean(ratios):.2f}, worst {min(ratios):.2f}")
    print(f"{left} rows were left out for want of time")


if __name__ == "__main__":
    main()
