"""The kernel on its own: fraction of the peak, cost of epilogues, and ratios to NumPy and PyTorch.

Fractions are measured in a native loop of calls on warm operands, against the peak of the
multiply-add instruction that the types have on that ISA level. The ratios, for float32, compare
calls from Python on both sides, where the peers get the batch as one ready-made product of depth
batch*k, which is the fastest they have.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("OPENBLAS_CORETYPE", None)  # some systems hold OpenBLAS to AVX2

import numpy as np

import dlprim
import harness
import machine
from dlprim.testing import fma_peak
from kernel_case import ACTIVATIONS, SHAPES, Case, Shape, Variant, load_shapes, torch_call

# What an epilogue costs: a shape, and the epilogues that are compared with none.
EPILOGUES = [
    (Shape(28, 64, 64, 9), ["relu"]),
    (Shape(64, 64, 64, 16), [*ACTIVATIONS]),
]


# Of products whose A is transposed, as those of gradients of weights.
TRANSPOSED = [Shape(64, 64, k, 1) for k in (49, 112, 196, 392, 784)]


@dataclass(frozen=True)
class Record:
    variant: str
    shape: str
    isa: str
    tile: tuple[int, int]
    gflops: float
    fraction_of_peak: float
    gbytes_per_s: float  # operands and result, counted once per call
    ratio_to_numpy: float | None = None
    ratio_to_torch: float | None = None


def fraction_of(case: Case, rounds: int) -> tuple[float, float]:
    """Median operations per second and fraction of the peak."""
    kernel, peak = harness.alternate(
        [
            lambda: case.shape.flops / case.native_seconds(),
            lambda: fma_peak(case.variant.isa, harness.STRETCH, case.variant.dtype),
        ],
        rounds,
    )
    return median(kernel), harness.median_ratio(kernel, peak)


def ratio_of(case: Case, peer: Callable[[], object], rounds: int) -> float:
    """How many times faster a call of ours is than the peer's, both from Python."""
    ours_repeats, peer_repeats = harness.repeats_for(case.call), harness.repeats_for(peer)
    ours, theirs = harness.alternate(
        [
            lambda: harness.seconds_per_call(case.call, ours_repeats),
            lambda: harness.seconds_per_call(peer, peer_repeats),
        ],
        rounds,
    )
    return harness.median_ratio(theirs, ours)


def measure(shape: Shape, variant: Variant, rounds: int) -> Record:
    case = Case(shape, variant)
    flops, fraction = fraction_of(case, rounds)
    record = Record(
        variant=str(variant),
        shape=str(shape),
        isa=case.kernel.isa,
        tile=case.kernel.tile,
        gflops=flops * 1e-9,
        fraction_of_peak=fraction,
        gbytes_per_s=flops * case.bytes() / shape.flops * 1e-9,
    )
    if variant.dtype != "float32":
        return record
    peer_rounds = max(3, rounds // 5)
    torch = torch_call(case)
    return Record(
        **{
            **asdict(record),
            "ratio_to_numpy": ratio_of(case, case.call_numpy, peer_rounds),
            "ratio_to_torch": None if torch is None else ratio_of(case, torch, peer_rounds),
        }
    )


def epilogue_cost(shape: Shape, activation: str, isa: str, rounds: int) -> float:
    """Time of bias and activation, as a fraction of the kernel's time without them."""
    plain = Case(shape, Variant("float32", isa))
    fused = Case(shape, Variant("float32", isa, {"bias": True, "activation": activation}))
    without, with_epilogue = harness.alternate([plain.native_seconds, fused.native_seconds], rounds)
    return harness.median_ratio(with_epilogue, without) - 1


def generation_microseconds(shapes: list[Shape], variant: Variant) -> float:
    """Median time to generate a kernel, from Python, cache misses only."""
    samples = []
    for _ in range(20):
        dlprim.kernel_cache_clear()
        for shape in shapes:
            start = time.perf_counter()
            dlprim.Brgemm(shape.m, shape.n, shape.k, variant.dtype, isa=variant.isa)
            samples.append((time.perf_counter() - start) * 1e6)
    return median(samples)


def call_nanoseconds(rounds: int) -> tuple[float, float]:
    """A prepared kernel and numpy.matmul(out=) on 8x8x8, each called from Python."""
    case = Case(Shape(8, 8, 8, 1), Variant("float32", dlprim.isa()))
    a, b = case.a[0], case.b[0]
    ours, theirs = harness.alternate(
        [
            lambda: harness.seconds_per_call(lambda: case.kernel(a, b, case.c), 500),
            lambda: harness.seconds_per_call(lambda: np.matmul(a, b, out=case.c), 500),
        ],
        rounds,
    )
    return median(ours) * 1e9, median(theirs) * 1e9


def import_milliseconds() -> float:
    """What `import dlprim` adds to `import numpy`, median over fresh processes."""
    program = (
        "import time, numpy; start = time.perf_counter(); import dlprim; "
        "print(time.perf_counter() - start)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        for _ in range(7)
    ]
    return median(float(run.stdout) for run in runs) * 1e3


def print_row(record: Record) -> None:
    ratios = "".join(
        f" {'-' if ratio is None else f'{ratio:.2f}':>8s}"
        for ratio in (record.ratio_to_numpy, record.ratio_to_torch)
    )
    tile = f"{record.tile[0]}x{record.tile[1]}"
    print(
        f"{record.shape:>14s} {tile:>6s} {record.gflops:8.1f} {record.fraction_of_peak:8.3f} "
        f"{record.gbytes_per_s:8.1f}{ratios}",
        flush=True,
    )


def variants() -> list[Variant]:
    """The types on every ISA level where their instructions differ, as far as usable here."""
    all_variants = [
        Variant("float32", "avx512"),
        Variant("float32", "avx2"),
        Variant("float32", "avx512", trans_a=True),
        Variant("float32", "avx2", trans_a=True),
        Variant("bfloat16", "amx"),
        Variant("bfloat16", "avx512_bf16"),
        Variant("bfloat16", "avx512"),
        Variant("uint8", "amx"),
        Variant("uint8", "avx512_vnni"),
        Variant("uint8", "avx512_vnni", b_dtype="uint8"),
        Variant("int8", "avx512_vnni"),
        Variant("int8", "avx512_vnni", b_dtype="uint8"),
        Variant("uint8", "avx2_vnni"),
    ]
    usable = machine.usable_levels()
    return [variant for variant in all_variants if variant.isa in usable]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--isa", help="this level only")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "uint8", "int8"], help="of A")
    parser.add_argument("--shapes", type=Path, default=SHAPES, help="CSV with m,n,k,batch,why")
    parser.add_argument("--rounds", type=int, default=301, help="turns of each side per row")
    parser.add_argument("--core", type=int, default=0, help="core to run on")
    parser.add_argument("--json", type=Path, default=Path("bench_brgemm.jsonl"), metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="few rounds: does it still run?")
    options = parser.parse_args()
    if options.quick:
        options.rounds = 5
    return options


def run_variant(variant: Variant, options: argparse.Namespace) -> list[dict[str, object]]:
    shapes = TRANSPOSED if variant.trans_a else load_shapes(options.shapes)
    peak = median(fma_peak(variant.isa, 0.01, variant.dtype) for _ in range(9)) * 1e-9
    print(f"{machine.cpu_name()}, {variant}, one core, peak {peak:.1f} GFLOP/s")
    print("         shape   tile  GFLOP/s  of peak     GB/s  x numpy  x torch")
    records: list[dict[str, object]] = []
    for shape in shapes:
        record = measure(shape, variant, options.rounds)
        print_row(record)
        records.append(machine.environment() | {"peak_gflops": peak} | asdict(record))
    print(f"generating a kernel: {generation_microseconds(shapes, variant):.0f} us (median)\n")
    return records


def main() -> None:
    options = parse_arguments()
    if dlprim.isa() == "scalar":
        raise SystemExit("no vector ISA level is usable here: there is nothing to measure")
    harness.pin(options.core)
    dlprim.set_num_threads(1)
    records = []
    for variant in variants():
        if options.isa in (None, variant.isa) and options.dtype in (None, variant.dtype):
            records += run_variant(variant, options)
    for shape, activations in EPILOGUES:
        for activation in activations:
            cost = epilogue_cost(shape, activation, dlprim.isa(), options.rounds)
            print(f"bias and {activation} on {shape}: {100 * cost:+.1f} %")
    ours, theirs = call_nanoseconds(max(5, options.rounds // 5))
    print(f"8x8x8 called from Python: {ours:.0f} ns, numpy.matmul(out=) {theirs:.0f} ns")
    print(f"import dlprim after numpy: {import_milliseconds():.0f} ms")
    options.json.write_text("".join(json.dumps(record) + "\n" for record in records))


if __name__ == "__main__":
    main()
