"""Convolution layer by layer: fraction of the peak, and ratio to PyTorch, for every pass and type.

The primitive is called on packed operands, PyTorch on channels-last tensors, both from Python in
one process, in turns; with --plain both sides get plain arrays and the functions that pack them are
what is measured. PyTorch packs its weights on every call; in the forward pass the primitive is also
compared with PyTorch on weights that oneDNN packed before, as those of the primitive are (column
"x packed"). Fractions are of the peak of the multiply-add instruction of the type, measured
in the same turns.
"""

import argparse
import json
import time
from collections.abc import Callable
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
from conv_case import (
    PASSES,
    PLAIN_PASSES,
    TRANSFORMING,
    Call,
    FunctionCase,
    PrimitiveCase,
    load_layers,
)
from dlprim.testing import fma_peak
from torch_peer import load_torch

SHAPES = Path(__file__).parent / "shapes" / "resnet50_conv.csv"

Case = PrimitiveCase | FunctionCase


@dataclass(frozen=True)
class Record:
    network: str
    id: int
    layer: str
    count: int
    which: str  # the pass
    dtype: str
    layout: str
    batch: int
    threads: int
    milliseconds: float
    gflops: float
    peak_gflops: float  # of all threads
    fraction_of_peak: float
    clock: str  # "wall" or "thread"
    algorithm: str | None = None  # "direct" or "winograd" and the side of its tiles
    schedule: str | None = None  # of the pass; none of a depthwise layer or a function
    torch_gflops: float | None = None
    ratio_to_torch: float | None = None
    ratio_to_prepared: float | None = None  # to PyTorch with weights that were packed before


def timed(call: Call, options: argparse.Namespace) -> Callable[[], float]:
    """A side for `harness.alternate`: seconds per call."""
    repeats = harness.repeats_for(call)
    clock = time.thread_time if options.cpu_time else time.perf_counter

    def seconds_per_call() -> float:
        start = clock()
        for _ in range(repeats):
            call()
        return (clock() - start) / repeats

    return seconds_per_call


def measure(case: Case, which: str, options: argparse.Namespace, torch: Any) -> dict[str, Any]:
    """What a record says of speed."""
    case.verify(which)
    flops = case.flops(which)

    def seconds_at_peak() -> float:
        peak = fma_peak(dlprim.isa(), harness.STRETCH, case.dtype)
        return flops / (peak * options.threads)

    sides = [timed(case.ours(which), options), seconds_at_peak]
    if torch is not None:
        sides.append(timed(case.theirs(which, torch), options))
        prepared = case.theirs_prepared(which, torch)
        if prepared is not None:
            sides.append(timed(prepared, options))
    ours, at_peak, *theirs = harness.alternate(sides, options.rounds)
    figures: dict[str, Any] = {
        "algorithm": case.algorithm(which),
        "schedule": case.schedule(which),
        "milliseconds": median(ours) * 1e3,
        "gflops": flops / median(ours) * 1e-9,
        "peak_gflops": flops / median(at_peak) * 1e-9,
        "clock": "thread" if options.cpu_time else "wall",
        "fraction_of_peak": 1 / harness.median_ratio(ours, at_peak),
    }
    if theirs:
        figures["torch_gflops"] = flops / median(theirs[0]) * 1e-9
        ratios = [harness.median_ratio(seconds, ours) for seconds in theirs]
        figures |= zip(("ratio_to_torch", "ratio_to_prepared"), ratios, strict=False)
    return figures


def print_row(record: Record) -> None:
    ratios = "".join(
        f" {'-' if ratio is None else f'{ratio:.2f}':>8s}"
        for ratio in (record.ratio_to_torch, record.ratio_to_prepared)
    )
    print(
        f"{record.id:3d} {record.layer:>26s} {record.which:>20s} {record.milliseconds:9.3f} "
        f"{record.gflops:8.1f} {record.fraction_of_peak:8.3f}{ratios}",
        flush=True,
    )


def run(
    path: Path, dtype: str, layout: str, options: argparse.Namespace, torch: Any
) -> list[Record]:
    """All layers of a network, each with every pass."""
    network = path.stem.removesuffix("_conv")
    print(
        f"\n{network}: {dtype} {layout}, batch {options.batch}, {options.threads} thread(s), "
        f"{dlprim.isa()} on {machine.cpu_name()}"
    )
    print(
        f"{'id':>3s} {'layer':>26s} {'pass':>20s} {'ms':>9s} {'GFLOP/s':>8s} {'of peak':>8s} "
        f"{'x torch':>8s} {'x packed':>8s}"
    )
    make = FunctionCase if options.plain else PrimitiveCase
    records = []
    for layer in load_layers(path):
        if options.ids and layer.id not in options.ids:
            continue
        case = make(layer, options.batch, dtype, layout)
        for which in options.passes:
            record = Record(
                network, layer.id, str(layer), layer.count, which, dtype, layout,
                options.batch, options.threads, **measure(case, which, options, torch),
            )  # fmt: skip
            print_row(record)
            records.append(record)
    return records


def print_summary(records: list[Record]) -> None:
    """Of one pass: means over layers, and over the network, where every layer counts its time."""
    fraction = harness.geometric_mean(record.fraction_of_peak for record in records)
    total = sum(record.count * record.milliseconds for record in records)
    ideal = sum(record.count * record.milliseconds * record.fraction_of_peak for record in records)
    line = f"{records[0].which}: geometric mean {fraction:.3f} of peak, network {ideal / total:.3f}"
    for key, name in (("ratio_to_torch", "torch"), ("ratio_to_prepared", "packed")):
        ratios = [getattr(record, key) for record in records]
        if None in ratios:
            continue
        theirs = sum(
            record.count * record.milliseconds * ratio
            for record, ratio in zip(records, ratios, strict=True)
        )
        line += (
            f"; x {name}: geometric mean {harness.geometric_mean(ratios):.2f}, network "
            f"{theirs / total:.2f}, worst {min(ratios):.2f} "
            f"(layer {records[ratios.index(min(ratios))].id})"
        )
    print(line)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--shapes", type=Path, nargs="+", default=[SHAPES], metavar="FILE",
        help="CSV with id,C,K,H,W,R,S,stride,pad,count and, where there are any, groups",
    )  # fmt: skip
    parser.add_argument("--ids", type=int, nargs="+", help="these layers only")
    parser.add_argument("--plain", action="store_true", help="the functions, on plain arrays")
    parser.add_argument("--passes", nargs="+", choices=[*PASSES, TRANSFORMING, "backward"])
    parser.add_argument(
        "--algorithm", choices=["auto", "direct", "winograd"], default="auto",
        help="of 3x3 layers with stride 1; auto: what is faster by estimate, pass by pass",
    )  # fmt: skip
    parser.add_argument(
        "--dtypes", nargs="+", choices=["float32", "bfloat16"], default=["float32", "bfloat16"]
    )
    parser.add_argument("--layouts", nargs="+", choices=["blocked", "NHWC", "NCHW"])
    parser.add_argument("--batch", type=int, default=8, help="images")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each side per row")
    parser.add_argument("--threads", type=int, default=1, help="of both sides; 1 is pinned")
    parser.add_argument("--core", type=int, default=0, help="core to run one thread on")
    parser.add_argument(
        "--cpu-time", action="store_true", help="leave out the time that the thread had to wait"
    )
    parser.add_argument("--no-torch", action="store_true", help="compare with the peak only")
    parser.add_argument("--json", type=Path, default=Path("bench_conv.jsonl"), metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="picture of bars")
    held_isa.add_to(parser)
    options = parser.parse_args()
    passes = PLAIN_PASSES if options.plain else (*PASSES, TRANSFORMING)
    layouts = ["NCHW", "NHWC"] if options.plain else ["blocked", "NHWC"]
    options.passes = options.passes or passes[:3]
    options.layouts = options.layouts or layouts[:1]
    for chosen, possible in ((options.passes, passes), (options.layouts, layouts)):
        if not set(chosen) <= set(possible):
            parser.error(f"expected some of {', '.join(possible)} here, not {', '.join(chosen)}")
    if options.cpu_time and options.threads != 1:
        parser.error("--cpu-time is the time of one thread")
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
    dlprim.set_conv_algorithm(options.algorithm)
    torch = None if options.no_torch else load_torch(options.threads)
    everything: list[dict[str, Any]] = []
    for path in options.shapes:
        for dtype in options.dtypes:
            for layout in options.layouts:
                records = run(path, dtype, layout, options, torch)
                for which in options.passes if records else ():
                    print_summary([record for record in records if record.which == which])
                everything += [machine.environment() | asdict(record) for record in records]
    options.json.write_text("".join(json.dumps(record) + "\n" for record in everything))
    if options.plot:
        everything.sort(key=lambda record: record["id"])
        bars.plot(everything, options.plot, ("network", "dtype", "layout", "which"), "id")


if __name__ == "__main__":
    main()
