"""Whole networks from ONNX files: against PyTorch, torch.compile, ONNX Runtime and OpenVINO.

All sides run the same network on the same inputs in one process, in turns; each is compared with
PyTorch's float32 result first. `of peak` is the fraction of the peak of the type's multiply-add on
all threads, measured in the same turns; `x best` how many times faster than the fastest peer.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

# What the libraries read once: held before they are loaded.
import held_isa

# isort: split

import numpy as np

import bars
import dlprim
import harness
import machine
from dlprim.testing import fma_peak

SHAPES = Path(__file__).parent / "shapes" / "graphs.csv"
TYPES = ("float32", "bfloat16", "int8")
PEER_NAMES = ("eager", "compile", "onnxruntime", "openvino")
_BOUNDS = {"float32": 1e-3, "bfloat16": 0.2, "int8": 0.5}  # of the norm of the result
_QUIET = 0.02  # seconds until the threads of the side before have gone to sleep
_WARM = 0.02  # seconds until those of a side are awake, on cores of their own, and caches filled


@dataclass(frozen=True)
class Record:
    network: str
    batch: int
    dtype: str
    threads: int
    gigaflop: float
    peak_gflops: float  # of all threads
    milliseconds: dict[str, float]  # by side
    load_seconds: dict[str, float]  # until the first result
    errors: dict[str, float]  # norm of the difference, of the norm of the result
    fraction_of_peak: float
    best_peer: str | None
    ratio_to_best: float | None
    sides: dict[str, float] = field(default_factory=dict)  # GFLOP/s


class SideError(Exception):
    """A side that cannot run a network, in its own words."""


def load(make: Callable[..., Callable[[], object]], subject: object) -> tuple[object, float]:
    """The call and the seconds until its first result was there."""
    start = time.perf_counter()
    try:
        call = make(subject)
        call()
    except Exception as error:
        words = f"{type(error).__name__}: {error}".strip().splitlines()
        raise SideError(words[0][:160]) from error
    return call, time.perf_counter() - start


def timings(
    calls: dict[str, Callable[[], object]], peak: Callable[[], float], options: argparse.Namespace
) -> tuple[list[float], dict[str, list[float]]]:
    """Seconds at the peak and of each side, round by round."""

    def side(call: Callable[[], object]) -> Callable[[], float]:
        repeats, warm = harness.repeats_for(call), harness.repeats_for(call, _WARM)

        def turn() -> float:
            if options.threads > 1:
                time.sleep(_QUIET)
            harness.seconds_per_call(call, warm)
            return harness.seconds_per_call(call, repeats)

        return turn

    def turn_at_peak() -> float:
        if options.threads > 1:
            time.sleep(_QUIET)
        peak()
        return peak()

    turns = [side(call) for call in calls.values()]
    spent = sum(turn() for turn in turns)
    rounds = min(options.rounds, max(3, round(options.seconds / max(spent, 1e-9))))
    at_peak, *series = harness.alternate([turn_at_peak, *turns], rounds)
    return at_peak, dict(zip(calls, series, strict=True))


def measure(
    network: object, batch: int, dtype: str, options: argparse.Namespace, folder: Path
) -> Record:
    import graph_files
    import graph_sides

    path = graph_files.file_of(network, batch, dtype, folder)
    subject = graph_sides.Subject(network, batch, dtype, options.threads, path)
    right, flops = graph_sides.expected(network, batch), graph_sides.flops(network, batch)
    calls, seconds, errors = {}, {}, {}
    for name, make in graph_sides.sides(options.peers, dtype, not options.peers_only).items():
        try:
            call, seconds[name] = load(make, subject)
        except SideError as error:
            print(f"{network.name} {batch} {dtype}: {name} fails: {error}", file=sys.stderr)
            continue
        result = graph_sides.as_floats(call())
        with np.errstate(all="ignore"):
            errors[name] = float(np.linalg.norm(result - right) / np.linalg.norm(right))
        if errors[name] <= _BOUNDS[dtype]:
            calls[name] = call
            continue
        words = f"{network.name} {batch} {dtype}: {name} is off by {errors[name]:.3g}"
        if name == "dlprim":
            raise SystemExit(words)
        print(words, file=sys.stderr)

    unit = "uint8" if dtype == "int8" else dtype

    def peak() -> float:
        return flops / (fma_peak(dlprim.isa(), harness.STRETCH, unit) * options.threads)

    at_peak, series = timings(calls, peak, options)
    medians = {name: median(values) for name, values in series.items()}
    peers = {name: value for name, value in medians.items() if name != "dlprim"}
    best = min(peers, key=lambda name: peers[name]) if peers else None
    ours = series.get("dlprim")
    return Record(
        network.name, batch, dtype, options.threads, flops * 1e-9, flops / median(at_peak) * 1e-9,
        {name: value * 1e3 for name, value in medians.items()}, seconds, errors,
        1 / harness.median_ratio(ours or series[best], at_peak), best,
        harness.median_ratio(series[best], ours) if ours and best else None,
        {name: flops / value * 1e-9 for name, value in medians.items()},
    )  # fmt: skip


def print_row(record: Record, names: list[str]) -> None:
    times = "".join(
        f" {f'{record.milliseconds[name]:.3f}' if name in record.milliseconds else '-':>11s}"
        for name in names
    )
    ratio = "-" if record.ratio_to_best is None else f"{record.ratio_to_best:.2f}"
    print(
        f"{record.network:>14s} {record.batch:4d}{times} {record.fraction_of_peak:8.3f} "
        f"{ratio:>7s} {record.best_peer or '-'}",
        flush=True,
    )


def run(dtype: str, options: argparse.Namespace, folder: Path) -> list[Record]:
    import networks

    names = [*([] if options.peers_only else ["dlprim"]), *options.peers]
    print(
        f"\n{dtype}, {options.threads} thread(s), {dlprim.isa()} on {machine.cpu_name()}; ms\n"
        f"{'network':>14s} {'N':>4s}{''.join(f' {name:>11s}' for name in names)} "
        f"{'of peak':>8s} {'x best':>7s}"
    )
    records = []
    for network in networks.load_networks(options.shapes):
        if options.models and network.name not in options.models:
            continue
        for batch in network.batches[:1] if options.quick else network.batches:
            if not options.batches or batch in options.batches:
                record = measure(network, batch, dtype, options, folder)
                print_row(record, names)
                records.append(record)
    return records


def print_summary(records: list[Record]) -> None:
    ratios = [record.ratio_to_best for record in records if record.ratio_to_best is not None]
    if ratios:
        print(
            f"times the best peer: geometric mean {harness.geometric_mean(ratios):.2f}, "
            f"worst {min(ratios):.2f}"
        )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", type=Path, default=SHAPES, help="CSV as shapes/graphs.csv")
    parser.add_argument("--models", nargs="+", metavar="NAME", help="these networks only")
    parser.add_argument("--batches", nargs="+", type=int, metavar="N", help="these of a row only")
    parser.add_argument("--types", nargs="+", choices=TYPES, default=list(TYPES))
    parser.add_argument("--peers", nargs="*", choices=PEER_NAMES, default=list(PEER_NAMES))
    parser.add_argument("--peers-only", action="store_true", help="without dlprim")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each side per row")
    parser.add_argument("--seconds", type=float, default=20, help="of a row, but three rounds")
    parser.add_argument("--quick", action="store_true", help="five turns, the least batch")
    parser.add_argument("--threads", type=int, default=1, help="of all sides; 1 is pinned")
    parser.add_argument("--core", type=int, default=0, help="core to run one thread on")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="keep model files here")
    parser.add_argument("--json", type=Path, default=Path("bench_graph.jsonl"), metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="picture of bars")
    held_isa.add_to(parser)
    options = parser.parse_args()
    if options.quick:
        options.rounds = 5
    if options.rounds < 2:
        parser.error("expected at least 2 rounds")
    if options.peers_only and not options.peers:
        parser.error("expected a side to measure")
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
    everything: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.cache or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for dtype in options.types:
            records = run(dtype, options, folder)
            print_summary(records)
            everything += [machine.environment() | asdict(record) for record in records]
    options.json.write_text("".join(json.dumps(record) + "\n" for record in everything))
    if options.plot and everything:
        labelled = [it | {"row": f"{it['network']} {it['batch']}"} for it in everything]
        bars.plot(labelled, options.plot, ["dtype"], "row")


if __name__ == "__main__":
    main()
