"""Functions on plain arrays, as a person calls them first: against NumPy and PyTorch.

Every side has arrays of the same values and makes its result; all are called from Python in turns,
in one process, or with several threads each in its own. `worse` is the smaller of the two ratios:
how many times faster than the better peer. Convolutions have `bench_conv.py --plain`.
"""

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import held_isa

# isort: split

import dlprim
import harness
import machine
from dlprim.testing import fma_peak
from plain_case import FUNCTIONS, STORAGES, PlainCase, Shape, load_shapes
from plain_sides import Key, Sides
from torch_peer import load_torch

SHAPES = Path(__file__).parent / "shapes" / "plain_linear.csv"


@dataclass(frozen=True)
class Record:
    function: str
    storage: str
    N: int
    C: int
    K: int
    threads: int
    microseconds: float
    fraction_of_peak: float
    gigabytes_per_second: float
    ratio_to_numpy: float
    ratio_to_torch: float | None
    worse: float


def measure(key: Key, options: argparse.Namespace, sides: Sides) -> dict[str, Any]:
    """What a record says of speed."""
    case = PlainCase(*key)
    case.verify()

    def seconds_at_peak() -> float:
        return case.flops / (fma_peak(dlprim.isa(), harness.STRETCH) * options.threads)

    at_peak, ours, *peers = harness.alternate([seconds_at_peak, *sides.of(key)], options.rounds)
    ratios = [harness.median_ratio(peer, ours) for peer in peers]
    return {
        "microseconds": median(ours) * 1e6,
        "fraction_of_peak": 1 / harness.median_ratio(ours, at_peak),
        "gigabytes_per_second": case.bytes / median(ours) * 1e-9,
        "ratio_to_numpy": ratios[0],
        "ratio_to_torch": ratios[1] if len(ratios) > 1 else None,
        "worse": min(ratios),
    }


def run(shapes: list[Shape], function: str, storage: str, options: argparse.Namespace,
        sides: Sides) -> list[Record]:  # fmt: skip
    print(
        f"\n{function}, {storage}, float32, {options.threads} thread(s), {dlprim.isa()} on "
        f"{machine.cpu_name()}\n{'N,C,K':>16s} {'us':>10s} {'of peak':>8s} {'GB/s':>7s} "
        f"{'x numpy':>8s} {'x torch':>8s}"
    )
    records = []
    for shape in shapes:
        figures = measure((shape, function, storage), options, sides)
        it = Record(function, storage, *shape, options.threads, **figures)
        torchs = "-" if it.ratio_to_torch is None else f"{it.ratio_to_torch:.2f}"
        print(
            f"{','.join(map(str, shape)):>16s} {it.microseconds:10.1f} {it.fraction_of_peak:8.2f} "
            f"{it.gigabytes_per_second:7.1f} {it.ratio_to_numpy:8.2f} {torchs:>8s}",
            flush=True,
        )
        records.append(it)
    worst = min(records, key=lambda record: record.worse)
    mean = harness.geometric_mean(record.worse for record in records)
    print(
        f"times the better peer: geometric mean {mean:.2f}, worst {worst.worse:.2f} "
        f"({worst.N},{worst.C},{worst.K})"
    )
    return records


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", type=Path, default=SHAPES, help="CSV with N,C,K")
    parser.add_argument("--functions", nargs="+", choices=FUNCTIONS, default=FUNCTIONS)
    parser.add_argument("--storages", nargs="+", choices=STORAGES, default=["plain"])
    parser.add_argument("--rounds", type=int, default=15, help="turns of each side per row")
    parser.add_argument("--quick", action="store_true", help="five turns, small rows")
    parser.add_argument("--threads", type=int, default=1, help="of all sides; 1 is pinned")
    parser.add_argument("--core", type=int, default=0, help="core to run one thread on")
    parser.add_argument("--no-torch", action="store_true", help="compare with NumPy only")
    parser.add_argument("--json", type=Path, default=Path("bench_plain.jsonl"), metavar="FILE")
    held_isa.add_to(parser)
    options = parser.parse_args()
    if options.quick:
        options.rounds = 5
    if options.rounds < 2:
        parser.error("expected at least 2 rounds")
    return options


def main() -> None:
    options = parse_arguments()
    if dlprim.isa() == "scalar":
        raise SystemExit("no vector ISA level is usable here: there is nothing to measure")
    if options.threads == 1:
        harness.pin(options.core)
    dlprim.set_num_threads(options.threads)
    names = ["dlprim", "numpy"]
    if not options.no_torch and load_torch(options.threads) is not None:
        names.append("torch")
    sides = Sides(names, options.threads)
    shapes = load_shapes(options.shapes)
    if options.quick:
        shapes = [shape for shape in shapes if shape.N * shape.C * shape.K < 1e8]
    everything: list[dict[str, Any]] = []
    for function in options.functions:
        for storage in options.storages:
            records = run(shapes, function, storage, options, sides)
            everything += [machine.environment() | asdict(record) for record in records]
    sides.close()
    options.json.write_text("".join(json.dumps(record) + "\n" for record in everything))


if __name__ == "__main__":
    main()
