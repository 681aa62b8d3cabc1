"""LSTM and GRU, row by row: fraction of the peak, and ratio to PyTorch, for every mode and type.

The modes are inference, the forward pass of training, which saves what backward needs ("training"),
and that followed by the backward pass ("backward"). The primitive is called on packed weights; as
weights change between the steps of training, mode backward packs them in every call, into the same
memory as a training loop does, unless --prepacked is given; --plain measures the functions, which
pack in every call of any mode. y has memory of its own, everything else is made in the call, whose
time includes all that Python does. PyTorch's side is torch.nn.LSTM or torch.nn.GRU on the same
numbers in the same process, in turns, inference without gradients, bfloat16 as a module of that
type; whatever it packs and makes in a call is in its time.

Fractions are of the peak of the multiply-add instruction of the type; for minibatches of up to
four, where every weight is used a few times only, also of the bandwidth that a core reads a buffer
as large as w_hh with. Both are measured in the same turns.
"""

import argparse
import json
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
from dlprim.testing import fma_peak, read_bandwidth
from rnn_case import CELLS, MODES, PlainRnnCase, RnnCase, load_rows
from torch_peer import load_torch

SHAPES = Path(__file__).parent / "shapes" / "rnn.csv"
_SMALL_BATCH = 4  # up to which bandwidth is the roof
_QUICK = ("small-256", "infer-512")
_FEWEST_ROUNDS = 3
_PEAK_SECONDS = 1e-2  # of a turn that measures a roof; shorter ones scatter


@dataclass(frozen=True)
class Record:
    row: str
    cell: str
    mode: str
    dtype: str
    N: int
    C: int
    K: int
    T: int
    threads: int
    rounds: int
    milliseconds: float
    gflops: float
    peak_gflops: float  # of all threads
    fraction_of_peak: float
    fraction_of_bandwidth: float | None  # of one core; with small minibatches only
    torch_gflops: float | None = None
    torch_engine: str | None = None
    ratio_to_torch: float | None = None


def rounds_for(sides: list[Callable[[], float]], options: argparse.Namespace) -> int:
    """As many as asked for, or as fit the time of a row."""
    turn = harness.seconds_per_call(lambda: [side() for side in sides], 1)
    return max(_FEWEST_ROUNDS, min(options.rounds, int(options.seconds / turn)))


def measure(case: RnnCase, mode: str, options: argparse.Namespace, torch: Any) -> dict[str, Any]:
    """What a record says of speed."""
    case.verify(mode)
    flops, threads = case.flops(mode), options.threads
    w_hh = case.parameters.w_hh

    def seconds_at_peak() -> float:
        return flops / (fma_peak(dlprim.isa(), _PEAK_SECONDS, case.dtype) * threads)

    def seconds_at_bandwidth() -> float:
        return case.bytes_read(mode) / read_bandwidth(w_hh.nbytes, seconds=_PEAK_SECONDS)

    sides = [harness.timed(case.ours(mode)), seconds_at_peak]
    small = case.row.N <= _SMALL_BATCH
    if small:
        sides.append(seconds_at_bandwidth)
    if torch is not None:
        sides.append(harness.timed(case.theirs(mode, torch)))
    rounds = rounds_for(sides, options)
    ours, at_peak, *others = harness.alternate(sides, rounds)
    at_bandwidth = others.pop(0) if small else None
    figures: dict[str, Any] = {
        "rounds": rounds,
        "milliseconds": median(ours) * 1e3,
        "gflops": flops / median(ours) * 1e-9,
        "peak_gflops": flops / median(at_peak) * 1e-9,
        "fraction_of_peak": 1 / harness.median_ratio(ours, at_peak),
        "fraction_of_bandwidth": at_bandwidth and 1 / harness.median_ratio(ours, at_bandwidth),
    }
    if others:
        figures["torch_gflops"] = flops / median(others[0]) * 1e-9
        figures["torch_engine"] = case.engine(torch)
        figures["ratio_to_torch"] = harness.median_ratio(others[0], ours)
    return figures


def print_row(record: Record) -> None:
    shape = f"N{record.N} C{record.C} K{record.K} T{record.T}"
    optional = "".join(
        f" {'-' if value is None else f'{value:.3f}':>8s}"
        for value in (record.fraction_of_bandwidth, record.ratio_to_torch)
    )
    print(
        f"{record.row:>15s} {shape:>22s} {record.mode:>9s} {record.milliseconds:9.3f} "
        f"{record.gflops:8.1f} {record.fraction_of_peak:8.3f}{optional} "
        f"{record.torch_engine or '-':>7s}",
        flush=True,
    )


def run(cell: str, dtype: str, options: argparse.Namespace, torch: Any) -> list[Record]:
    """All rows of a cell and a type, each in every mode."""
    print(f"\n{cell} {dtype}, {options.threads} thread(s), {dlprim.isa()} on {machine.cpu_name()}")
    print(
        f"{'row':>15s} {'shape':>22s} {'mode':>9s} {'ms':>9s} {'GFLOP/s':>8s} {'of peak':>8s} "
        f"{'of read':>8s} {'x torch':>8s} {'torch':>7s}"
    )
    records = []
    for row in load_rows(options.shapes):
        if row.name not in (options.rows or (row.name,)):
            continue
        kind = PlainRnnCase if options.plain else RnnCase
        case = kind(row, cell, dtype, options.prepacked)
        for mode in options.modes:
            record = Record(
                row.name, cell, mode, dtype, row.N, row.C, row.K, row.T,
                options.threads, **measure(case, mode, options, torch),
            )  # fmt: skip
            print_row(record)
            records.append(record)
    return records


def print_summary(records: list[Record]) -> None:
    """Of one cell, type and mode."""
    parts = []
    for roof, values, batches in (
        ("peak", [each.fraction_of_peak for each in records if each.N > _SMALL_BATCH], ">"),
        ("read bandwidth", [each.fraction_of_bandwidth for each in records], "<="),
    ):
        known = [value for value in values if value is not None]
        if known:
            mean = harness.geometric_mean(known)
            parts.append(f"geometric mean {mean:.3f} of {roof} for N {batches} {_SMALL_BATCH}")
    ratios = [each.ratio_to_torch for each in records if each.ratio_to_torch is not None]
    if ratios:
        worst = min(records, key=lambda each: each.ratio_to_torch or 0.0)
        parts.append(
            f"x torch: geometric mean {harness.geometric_mean(ratios):.2f}, "
            f"worst {worst.ratio_to_torch:.2f} ({worst.row})"
        )
    print(f"{records[0].mode}: {'; '.join(parts)}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--shapes", type=Path, default=SHAPES, metavar="FILE", help="CSV with name,N,C,K,T"
    )
    parser.add_argument("--rows", nargs="+", metavar="NAME", help="these rows only")
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=CELLS)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument(
        "--dtypes", nargs="+", choices=["float32", "bfloat16"], default=["float32", "bfloat16"]
    )
    parser.add_argument("--rounds", type=int, default=15, help="turns of each side, at most")
    parser.add_argument(
        "--seconds", type=float, default=15, help="per row and mode, as long as 3 rounds fit"
    )
    parser.add_argument("--quick", action="store_true", help="two small rows, a second each")
    parser.add_argument(
        "--prepacked", action="store_true", help="pack the weights of mode backward once"
    )
    parser.add_argument("--plain", action="store_true", help="the functions, on plain arrays")
    parser.add_argument("--threads", type=int, default=1, help="of both sides; 1 is pinned")
    parser.add_argument("--core", type=int, default=0, help="core to run one thread on")
    parser.add_argument("--no-torch", action="store_true", help="compare with the roofs only")
    parser.add_argument("--json", type=Path, default=Path("bench_rnn.jsonl"), metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="picture of bars")
    held_isa.add_to(parser)
    options = parser.parse_args()
    if options.quick:
        options.rows, options.seconds = options.rows or _QUICK, min(options.seconds, 1.0)
    known = {row.name for row in load_rows(options.shapes)}
    if not set(options.rows or ()) <= known:
        parser.error(f"expected rows out of {', '.join(sorted(known))}")
    if options.rounds < _FEWEST_ROUNDS:
        parser.error(f"expected at least {_FEWEST_ROUNDS} rounds")
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
    everything: list[dict[str, Any]] = []
    for cell in options.cells:
        for dtype in options.dtypes:
            records = run(cell, dtype, options, torch)
            for mode in options.modes:
                print_summary([record for record in records if record.mode == mode])
            everything += [machine.environment() | asdict(record) for record in records]
    options.json.write_text("".join(json.dumps(record) + "\n" for record in everything))
    if options.plot:
        bars.plot(everything, options.plot, ("cell", "dtype", "mode"), "row")


if __name__ == "__main__":
    main()
