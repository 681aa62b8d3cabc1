"""Linear layers row by row: fraction of the roof, and ratio to PyTorch, for every pass and type.

The primitive is called on packed operands, PyTorch (torch.nn.functional.linear and the products
that its gradients are) on plain tensors, both from Python in one process, in turns. The roof is
the peak of the multiply-add instruction of the type, measured in the same turns; for minibatches
of at most 16, which read weights faster than they multiply, it is the time to read both operands
and write the result once at the bandwidth of the cache, or the memory, that holds them.
"""

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import held_isa

# isort: split

import bars
import dlprim
import harness
import machine
from dlprim.testing import fma_peak, read_bandwidth
from linear_case import PASSES, Layer, LinearCase, load_layers
from torch_peer import load_torch

SHAPES = Path(__file__).parent / "shapes" / "fc.csv"
_FEW_SAMPLES = 16


@dataclass(frozen=True)
class Record:
    network: str
    id: str
    batch: int
    C: int
    K: int
    which: str  # the pass
    dtype: str
    layout: str
    threads: int
    milliseconds: float
    gflops: float
    peak_gflops: float  # of all threads
    fraction_of_peak: float
    fraction_of_bandwidth: float | None
    torch_gflops: float | None = None
    ratio_to_torch: float | None = None


def measure(
    case: LinearCase, which: str, options: argparse.Namespace, torch: Any
) -> dict[str, Any]:
    """What a record says of speed."""
    case.verify(which)
    flops = case.linear.flops

    def seconds_at_peak() -> float:
        peak = fma_peak(dlprim.isa(), harness.STRETCH, case.dtype)
        return flops / (peak * options.threads)

    sides = [harness.timed(case.ours(which)), seconds_at_peak]
    if torch is not None:
        sides.append(harness.timed(case.theirs(which, torch)))
    if case.layer.N <= _FEW_SAMPLES:
        size = case.least_bytes(which)
        sides.append(lambda: size / read_bandwidth(size, seconds=harness.STRETCH))
    series = harness.alternate(sides, options.rounds)
    ours, at_peak = series[:2]
    figures: dict[str, Any] = {
        "milliseconds": median(ours) * 1e3,
        "gflops": flops / median(ours) * 1e-9,
        "peak_gflops": flops / median(at_peak) * 1e-9,
        "fraction_of_peak": 1 / harness.median_ratio(ours, at_peak),
        "fraction_of_bandwidth": None,
    }
    if case.layer.N <= _FEW_SAMPLES:
        figures["fraction_of_bandwidth"] = 1 / harness.median_ratio(ours, series[-1])
    if torch is not None:
        figures["torch_gflops"] = flops / median(series[2]) * 1e-9
        figures["ratio_to_torch"] = harness.median_ratio(series[2], ours)
    return figures


def print_row(record: Record) -> None:
    others = "".join(
        f" {'-' if value is None else f'{value:.2f}':>8s}"
        for value in (record.fraction_of_bandwidth, record.ratio_to_torch)
    )
    print(
        f"{record.id:>14s} {record.which:>16s} {record.milliseconds:9.3f} "
        f"{record.gflops:8.1f} {record.fraction_of_peak:8.3f}{others}",
        flush=True,
    )


def run(layers: list[Layer], dtype: str, options: argparse.Namespace, torch: Any) -> list[Record]:
    """All layers, each with every pass."""
    print(
        f"\n{dtype}, {options.threads} thread(s), {dlprim.isa()} on {machine.cpu_name()}\n"
        f"{'layer':>14s} {'pass':>16s} {'ms':>9s} {'GFLOP/s':>8s} {'of peak':>8s} "
        f"{'of bytes':>8s} {'x torch':>8s}"
    )
    records = []
    for layer in layers:
        case = LinearCase(layer, dtype)
        for which in options.passes:
            record = Record(
                "fc", layer.name, layer.N, layer.C, layer.K, which, dtype, case.linear.layout,
                options.threads, **measure(case, which, options, torch),
            )  # fmt: skip
            print_row(record)
            records.append(record)
    return records


def print_summary(records: list[Record]) -> None:
    """Of one pass."""
    ratios = [record.ratio_to_torch for record in records]
    fraction = harness.geometric_mean(record.fraction_of_peak for record in records)
    line = f"{records[0].which}: geometric mean {fraction:.3f} of peak"
    if None not in ratios:
        worst = min(records, key=lambda record: record.ratio_to_torch)
        mean = harness.geometric_mean(ratios)
        line += f"; x torch: geometric mean {mean:.2f}, worst {min(ratios):.2f} ({worst.id})"
    print(line)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", type=Path, default=SHAPES, help="CSV with name,N,C,K")
    parser.add_argument("--ids", nargs="+", metavar="NAME", help="these layers only")
    parser.add_argument("--passes", nargs="+", choices=PASSES, default=PASSES)
    parser.add_argument(
        "--dtypes", nargs="+", choices=["float32", "bfloat16"], default=["float32", "bfloat16"]
    )
    parser.add_argument("--rounds", type=int, default=15, help="turns of each side per row")
    parser.add_argument("--quick", action="store_true", help="five turns")
    parser.add_argument("--threads", type=int, default=1, help="of both sides; 1 is pinned")
    parser.add_argument("--core", type=int, default=0, help="core to run one thread on")
    parser.add_argument("--no-torch", action="store_true", help="compare with the roofs only")
    parser.add_argument("--json", type=Path, default=Path("bench_linear.jsonl"), metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="picture of bars")
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
    if options.plot:
        bars.require_matplotlib()
    if options.threads == 1:
        harness.pin(options.core)
    dlprim.set_num_threads(options.threads)
    torch = None if options.no_torch else load_torch(options.threads)
    layers = load_layers(options.shapes)
    if options.ids:
        layers = [layer for layer in layers if layer.name in options.ids]
    everything: list[dict[str, Any]] = []
    for dtype in options.dtypes:
        records = run(layers, dtype, options, torch)
        for which in options.passes if records else ():
            print_summary([record for record in records if record.which == which])
        everything += [machine.environment() | asdict(record) for record in records]
    options.json.write_text("".join(json.dumps(record) + "\n" for record in everything))
    if options.plot:
        bars.plot(everything, options.plot)


if __name__ == "__main__":
    main()
