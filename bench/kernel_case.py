"""One row of the kernel benchmark: operands of a shape and type, and every side that computes it.

Operands are verified against float64 (exact integers for 8 bits) before anything is timed, and are
random: zeros would run at another clock.
"""

import csv
import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import dlprim
import harness

_erfc = np.vectorize(math.erfc)
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "hardsigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "tanh": np.tanh,
    "gelu": lambda x: 0.5 * x * _erfc(-x / math.sqrt(2)),
    "gelu_tanh": lambda x: x / (1 + np.exp(-math.sqrt(8 / math.pi) * (x + 0.044715 * x**3))),
    "swish": lambda x: x / (1 + np.exp(-x)),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
}

SHAPES = Path(__file__).parent / "shapes" / "brgemm.csv"


@dataclass(frozen=True)
class Shape:
    m: int
    n: int
    k: int
    batch: int
    why: str = ""

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}x{self.batch}"

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k * self.batch


@dataclass(frozen=True)
class Variant:
    """What is measured on every shape: types, ISA level and epilogue."""

    dtype: str
    isa: str
    epilogue: dict[str, object] = field(default_factory=dict)
    b_dtype: str | None = None  # where it is not the default of A's
    trans_a: bool = False

    def __str__(self) -> str:
        extras = [str(value) for value in self.epilogue.values() if isinstance(value, str)]
        by = [f"by {self.b_dtype}"] if self.b_dtype else []
        transposed = ["transposed A"] if self.trans_a else []
        return " ".join([self.dtype, *by, self.isa, *transposed, *extras])


def load_shapes(path: Path) -> list[Shape]:
    with path.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return [Shape(*(int(row[key]) for key in ("m", "n", "k", "batch")), row["why"]) for row in rows]


class Case:
    def __init__(self, shape: Shape, variant: Variant) -> None:
        self.shape = shape
        self.variant = variant
        self.kernel = dlprim.Brgemm(
            shape.m,
            shape.n,
            shape.k,
            variant.dtype,
            b_dtype=variant.b_dtype,
            isa=variant.isa,
            trans_a=variant.trans_a,
            **variant.epilogue,
        )
        random = np.random.default_rng(1)
        plain_a = random_values(random, (shape.batch, shape.m, shape.k), variant.dtype)
        plain_b = random_values(
            random,
            (shape.batch, shape.k, shape.n),
            variant.b_dtype or ("int8" if variant.dtype == "uint8" else variant.dtype),
        )
        packed_b = plain_b if variant.dtype == "float32" else dlprim.pack_b(plain_b)
        stored_a = plain_a.transpose(0, 2, 1) if variant.trans_a else plain_a
        self.a, self.b = aligned(stored_a), aligned(packed_b)
        integers = variant.dtype in ("uint8", "int8")
        self.c = aligned(np.zeros((shape.m, shape.n), np.int32 if integers else np.float32))
        self.bias = random.uniform(-1, 1, shape.n).astype(np.float32)
        depth = shape.batch * shape.k
        self.flat_a = np.ascontiguousarray(plain_a.transpose(1, 0, 2).reshape(shape.m, depth))
        self.flat_b = plain_b.reshape(depth, shape.n)
        self.verify()

    def verify(self) -> None:
        a, b = self.flat_a.astype(np.float64), self.flat_b.astype(np.float64)
        exact, magnitude = a @ b, np.abs(a) @ np.abs(b)
        bound = harness.sum_bound(self.flat_a.shape[1], magnitude)
        if self.variant.epilogue:
            with np.errstate(over="ignore"):  # exp of a large number: the quotient is right
                exact = ACTIVATIONS[str(self.variant.epilogue["activation"])](exact + self.bias)
            # No activation is steeper than 1.13; 4 ULP of its own.
            bound = 1.13 * bound + 4 * np.spacing(np.abs(exact).astype(np.float32))
        self.call()
        if self.c.dtype == np.int32:
            bound[...] = 0
        harness.verify(f"{self.shape} {self.variant}", self.c, exact, bound)

    def call(self) -> None:
        self.kernel(self.a, self.b, self.c, bias=self.bias if self.variant.epilogue else None)

    def call_numpy(self) -> None:
        np.matmul(self.flat_a, self.flat_b, out=self.c)

    def native_seconds(self) -> float:
        repeats = max(3, round(harness.STRETCH * 2e11 / self.shape.flops))
        bias = self.bias if self.variant.epilogue else None
        return self.kernel.measure(self.a, self.b, self.c, repeats=repeats, bias=bias)

    def bytes(self) -> int:
        """Memory that one call reads or writes at least once."""
        return self.a.nbytes + self.b.nbytes + self.c.nbytes


def random_values(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype == "uint8":
        return random.integers(0, 256, shape, np.uint8)
    if dtype == "int8":
        return random.integers(-128, 128, shape, np.int8)
    values = random.uniform(-1, 1, shape).astype(np.float32)
    return dlprim.to_bfloat16(values) if dtype == "bfloat16" else values


def aligned(values: np.ndarray) -> np.ndarray:
    """A copy on a cache-line boundary."""
    memory = np.empty(values.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    array = memory[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    array[...] = values
    return array


def torch_call(case: Case) -> Callable[[], object] | None:
    """A call of torch.mm on the same memory, or None where PyTorch is not installed."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    torch.set_num_threads(1)
    a, b, c = (torch.from_numpy(array) for array in (case.flat_a, case.flat_b, case.c))
    return lambda: torch.mm(a, b, out=c)
