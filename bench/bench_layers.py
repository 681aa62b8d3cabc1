"""Layers around the products against their floor of memory traffic and against PyTorch, one core.

A layer's floor is the bytes that it must at least move from and to memory (operands once, results
once) at the read bandwidth that is measured in the same run; what fits in a cache may be above 1.
PyTorch runs the same layer on channels-last tensors in the same process, the sides take turns.
"""

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

# Before NumPy, which then reads what --isa says.
from torch_peer import beside_torch

# isort: split
from harness import alternate, median_ratio, repeats_for, seconds_per_call
from layer_case import Case
from layer_flat import embedding_cases, flat_cases, optimizer_cases
from layer_images import batch_norm_cases, mean_cases, pool_cases
from machine import environment, stream_bandwidth

_SHAPES = {"bn 56x56x256": (8, 256, 56, 56), "bn 14x14x1024": (8, 1024, 14, 14)}


def cases(torch: Any, dtype: str, layout: str) -> list[Case]:
    found = [
        case
        for name, shape in _SHAPES.items()
        for case in batch_norm_cases(torch, name, shape, dtype, layout)
    ]
    name, shape = next(iter(_SHAPES.items()))
    found += batch_norm_cases(torch, f"{name} residual", shape, dtype, layout, residual=True)
    found += pool_cases(torch, dtype, layout) + mean_cases(torch, dtype, layout)
    if layout == "blocked":
        found += flat_cases(torch, dtype) + embedding_cases(torch, dtype)
        found += optimizer_cases(torch, dtype)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--layouts", nargs="+", default=["blocked", "NHWC"])
    parser.add_argument("--json", type=Path, help="append a record per row")
    options, torch = beside_torch(parser)
    roof = stream_bandwidth()
    print(f"memory {roof * 1e-9:.1f} GB/s\n{'':46s} GB/s  of memory  x torch")
    for dtype in options.dtype:
        for layout in options.layouts:
            for case in cases(torch, dtype, layout):
                if not case.error < (1e-3 if dtype == "float32" else 0.1):
                    raise SystemExit(f"{case.name}: differs by {case.error}")
                sides = [case.ours, case.theirs]
                repeats = [repeats_for(side, 0.005) for side in sides]
                series = alternate(
                    [
                        lambda side=side, n=n: seconds_per_call(side, n)
                        for side, n in zip(sides, repeats, strict=True)
                    ],
                    options.rounds,
                )
                rate = case.bytes / median(series[0])
                ratio = median_ratio(series[1], series[0])
                label = f"{case.name} {dtype} {layout}"
                print(f"{label:44s} {rate * 1e-9:6.1f}  {rate / roof:9.2f}  {ratio:7.2f}")
                if options.json:
                    record = {"case": label, "of_memory": rate / roof, "x_torch": ratio}
                    with options.json.open("a") as file:
                        file.write(json.dumps(environment() | record) + "\n")


if __name__ == "__main__":
    main()
