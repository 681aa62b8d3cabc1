"""Packing and bfloat16 conversion against a plain copy of as many bytes.

Bytes are those read plus those written. The copy is `numpy.copyto` that reads and writes as many in
total, on arrays that the caches hold as they hold the operands; both sides are called from Python.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import held_isa

# isort: split
import numpy as np

import dlprim
import harness
import machine

# k, n: in the L1 cache, in L2, and beyond. At powers of two the rows of a transposed operand fall
# into few sets of the caches.
SHAPES = [(64, 64), (250, 250), (256, 256), (500, 500), (512, 512), (1000, 1000), (1024, 1024)]


@dataclass(frozen=True)
class Record:
    operation: str
    shape: str
    kbytes: int  # read and written
    gbytes_per_s: float
    copy_gbytes_per_s: float
    times_copy: float  # how long it takes, in copies


class Side:
    """One operation on one shape, verified."""

    def __init__(self, operation: str, k: int, n: int) -> None:
        self.operation = operation
        random = np.random.default_rng(1)
        values = random.integers(-100, 100, (k, n)).astype(np.float32)  # exact in every type
        source, _, target = operation.partition(" -> ")
        self.transposed = source.endswith("^T")
        plain = _as_type(np.ascontiguousarray(values.T) if self.transposed else values, source)
        self.call, result = self._prepared(plain, target)
        self.call()
        harness.verify(operation, self._plain(result(), k), values, np.zeros((k, n)))
        self.bytes = plain.nbytes + result().nbytes

    def _prepared(
        self, plain: np.ndarray, target: str
    ) -> tuple[Callable[[], object], Callable[[], np.ndarray]]:
        if target == "bfloat16 array":
            return lambda: dlprim.to_bfloat16(plain), lambda: dlprim.to_bfloat16(plain)
        if target == "float32 array":
            return lambda: dlprim.to_float32(plain), lambda: dlprim.to_float32(plain)
        out = dlprim.pack_b(plain, target, transposed=self.transposed)
        return lambda: dlprim.pack_b(
            plain, target, transposed=self.transposed, out=out
        ), lambda: out

    def _plain(self, result: np.ndarray, k: int) -> np.ndarray:
        values = dlprim.unpack_b(result, k) if result.ndim == 3 else result
        return values.astype(np.float32)


OPERATIONS = [
    "bfloat16 -> bfloat16",
    "int8 -> int8",
    "float32 -> bfloat16",
    "bfloat16^T -> bfloat16",
    "int8^T -> int8",
    "float32^T -> bfloat16",
    "float32 -> bfloat16 array",
    "bfloat16 -> float32 array",
]


def _as_type(values: np.ndarray, name: str) -> np.ndarray:
    kind = name.removesuffix("^T")
    return dlprim.to_bfloat16(values) if kind == "bfloat16" else values.astype(kind)


def measure(operation: str, k: int, n: int, rounds: int) -> Record:
    side = Side(operation, k, n)
    source = np.zeros(side.bytes // 2, np.uint8)
    copied = np.ones_like(source)

    def copy() -> None:
        np.copyto(copied, source)

    ours_repeats, copy_repeats = harness.repeats_for(side.call), harness.repeats_for(copy)
    ours, plain = harness.alternate(
        [
            lambda: harness.seconds_per_call(side.call, ours_repeats),
            lambda: harness.seconds_per_call(copy, copy_repeats),
        ],
        rounds,
    )
    return Record(
        operation=operation,
        shape=f"{k}x{n}",
        kbytes=side.bytes // 1024,
        gbytes_per_s=side.bytes / median(ours) * 1e-9,
        copy_gbytes_per_s=side.bytes / median(plain) * 1e-9,
        times_copy=harness.median_ratio(ours, plain),
    )


def print_row(record: Record) -> None:
    print(
        f"{record.operation:>25s} {record.shape:>10s} {record.kbytes:8d} "
        f"{record.gbytes_per_s:8.1f} {record.copy_gbytes_per_s:8.1f} {record.times_copy:8.2f}",
        flush=True,
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=301, help="turns of each side per row")
    parser.add_argument("--core", type=int, default=0, help="core to run on")
    parser.add_argument("--json", type=Path, default=Path("bench_pack.jsonl"), metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="few rounds: does it still run?")
    held_isa.add_to(parser)
    options = parser.parse_args()
    if options.quick:
        options.rounds = 5
    return options


def main() -> None:
    options = parse_arguments()
    harness.pin(options.core)
    dlprim.set_num_threads(1)
    print(f"{machine.cpu_name()}, {dlprim.isa()}, one core; GB/s read and written")
    print("                operation      k x n       KB     GB/s     copy  x copy")
    records: list[dict[str, object]] = []
    for operation in OPERATIONS:
        for k, n in SHAPES:
            record = measure(operation, k, n, options.rounds)
            print_row(record)
            records.append(machine.environment() | asdict(record))
    options.json.write_text("".join(json.dumps(record) + "\n" for record in records))


if __name__ == "__main__":
    main()
