"""The kernel on its own: fraction of the FMA peak, and ratios to NumPy and PyTorch.

Fractions are measured in a native loop of calls on warm operands. The ratios compare calls from
Python on both sides, where the peers get the batch as one ready-made product of depth batch*k,
which is the fastest they have.
"""

import argparse
import csv
import importlib
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import dlprim
import harness
import machine
from dlprim.testing import fma_peak

SHAPES = Path(__file__).parent / "shapes" / "brgemm.csv"


@dataclass(frozen=True)
class Shape:
    m: int
    n: int
    k: int
    batch: int
    why: str

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}x{self.batch}"

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k * self.batch

    @property
    def bytes(self) -> int:
        """Memory that one call reads or writes at least once."""
        return 4 * (self.batch * self.k * (self.m + self.n) + self.m * self.n)


@dataclass(frozen=True)
class Record:
    shape: str
    isa: str
    tile: tuple[int, int]
    gflops: float
    fraction_of_peak: float
    gbytes_per_s: float  # operands and result, counted once per call
    ratio_to_numpy: float
    ratio_to_torch: float | None


def load_shapes(path: Path) -> list[Shape]:
    with path.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return [Shape(*(int(row[key]) for key in ("m", "n", "k", "batch")), row["why"]) for row in rows]


class Case:
    """Operands of one shape with every side that computes it, verified."""

    def __init__(self, shape: Shape, isa: str) -> None:
        generator = np.random.default_rng(1)
        self.shape = shape
        self.isa = isa
        self.kernel = dlprim.Brgemm(shape.m, shape.n, shape.k, isa=isa)
        self.a = aligned(generator, (shape.batch, shape.m, shape.k))
        self.b = aligned(generator, (shape.batch, shape.k, shape.n))
        self.c = aligned(generator, (shape.m, shape.n))
        depth = shape.batch * shape.k
        self.flat_a = np.ascontiguousarray(self.a.transpose(1, 0, 2).reshape(shape.m, depth))
        self.flat_b = self.b.reshape(depth, shape.n)
        self.verify()

    def verify(self) -> None:
        exact = self.flat_a.astype(np.float64) @ self.flat_b.astype(np.float64)
        magnitude = np.abs(self.flat_a).astype(np.float64) @ np.abs(self.flat_b)
        bound = harness.sum_bound(self.flat_a.shape[1], magnitude)
        self.c.fill(np.nan)
        self.call()
        harness.verify(f"{self.shape} {self.isa}", self.c, exact, bound)

    def call(self) -> None:
        self.kernel(self.a, self.b, self.c)

    def call_numpy(self) -> None:
        np.matmul(self.flat_a, self.flat_b, out=self.c)

    def native_seconds(self) -> float:
        return self.kernel.measure(self.a, self.b, self.c, repeats=self.native_repeats())

    def native_repeats(self) -> int:
        return max(3, round(harness.STRETCH * 2e11 / self.shape.flops))


def aligned(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Random values on a cache-line boundary."""
    size = int(np.prod(shape))
    memory = np.empty(size + 16, np.float32)
    start = -memory.ctypes.data % 64 // 4
    array = memory[start : start + size].reshape(shape)
    array[...] = generator.uniform(-1, 1, shape)
    return array


def torch_call(case: Case):
    """A call of torch.mm on the same memory, or None where PyTorch is not installed."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    torch.set_num_threads(1)
    a, b, c = (torch.from_numpy(array) for array in (case.flat_a, case.flat_b, case.c))
    return lambda: torch.mm(a, b, out=c)


def fraction_of(case: Case, rounds: int) -> tuple[float, float]:
    """Median FLOP/s and fraction of the FMA peak."""
    kernel, peak = harness.alternate(
        [
            lambda: case.shape.flops / case.native_seconds(),
            lambda: fma_peak(case.isa, harness.STRETCH),
        ],
        rounds,
    )
    return median(kernel), harness.median_ratio(kernel, peak)


def ratio_of(case: Case, peer, rounds: int) -> float:
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


def measure(shape: Shape, isa: str, rounds: int) -> Record:
    case = Case(shape, isa)
    flops, fraction = fraction_of(case, rounds)
    torch = torch_call(case)
    peer_rounds = max(3, rounds // 5)
    return Record(
        shape=str(shape),
        isa=case.kernel.isa,
        tile=case.kernel.tile,
        gflops=flops * 1e-9,
        fraction_of_peak=fraction,
        gbytes_per_s=flops * shape.bytes / shape.flops * 1e-9,
        ratio_to_numpy=ratio_of(case, case.call_numpy, peer_rounds),
        ratio_to_torch=None if torch is None else ratio_of(case, torch, peer_rounds),
    )


def generation_microseconds(shapes: list[Shape], isa: str) -> float:
    """Median time to generate a kernel, from Python, cache misses only."""
    samples = []
    for _ in range(20):
        dlprim.kernel_cache_clear()
        for shape in shapes:
            start = time.perf_counter()
            dlprim.Brgemm(shape.m, shape.n, shape.k, isa=isa)
            samples.append((time.perf_counter() - start) * 1e6)
    return median(samples)


def call_nanoseconds(rounds: int) -> tuple[float, float]:
    """A prepared kernel and numpy.matmul(out=) on 8x8x8, each called from Python."""
    case = Case(Shape(8, 8, 8, 1, ""), dlprim.isa())
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
    torch = "     -" if record.ratio_to_torch is None else f"{record.ratio_to_torch:6.2f}"
    tile = f"{record.tile[0]}x{record.tile[1]}"
    print(
        f"{record.shape:>14s} {tile:>6s} {record.gflops:8.1f} {record.fraction_of_peak:8.3f} "
        f"{record.gbytes_per_s:8.1f} {record.ratio_to_numpy:8.2f} {torch}",
        flush=True,
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--isa", choices=["avx512", "avx2"], help="one level only")
    parser.add_argument("--shapes", type=Path, default=SHAPES, help="CSV with m,n,k,batch,why")
    parser.add_argument("--rounds", type=int, default=301, help="turns of each side per row")
    parser.add_argument("--core", type=int, default=0, help="core to run on")
    parser.add_argument("--json", type=Path, default=Path("bench_brgemm.jsonl"), metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="few rounds: does it still run?")
    options = parser.parse_args()
    if options.quick:
        options.rounds = 5
    return options


def main() -> None:
    options = parse_arguments()
    if dlprim.isa() == "scalar":
        raise SystemExit("no vector ISA level is usable here: there is nothing to measure")
    harness.pin(options.core)
    dlprim.set_num_threads(1)
    shapes = load_shapes(options.shapes)
    records: list[dict[str, object]] = []
    for isa in [options.isa] if options.isa else machine.vector_isas():
        peak = median(fma_peak(isa, 0.01) for _ in range(9)) * 1e-9
        print(f"{machine.cpu_name()}, {isa}, one core, FMA peak {peak:.1f} GFLOP/s")
        print("         shape   tile  GFLOP/s  of peak     GB/s  x numpy  x torch")
        for shape in shapes:
            record = measure(shape, isa, options.rounds)
            print_row(record)
            records.append(machine.environment() | {"peak_gflops": peak} | asdict(record))
        print(f"generating a kernel: {generation_microseconds(shapes, isa):.0f} us (median)\n")
    ours, theirs = call_nanoseconds(max(5, options.rounds // 5))
    print(f"8x8x8 called from Python: {ours:.0f} ns, numpy.matmul(out=) {theirs:.0f} ns")
    print(f"import dlprim after numpy: {import_milliseconds():.0f} ms")
    options.json.write_text("".join(json.dumps(record) + "\n" for record in records))


if __name__ == "__main__":
    main()
