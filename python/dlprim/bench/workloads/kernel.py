"""The kernel on its own: every type on every ISA level, and what epilogues cost.

The fraction of the peak is measured in a native loop of calls on warm operands; ratios compare
calls from Python on both sides, where peers get the batch as one ready-made product of depth
batch*k, the fastest form they have. Nearby rows of small sizes show what a call costs.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import numpy as np

import dlprim
from dlprim.bench import peers, tables
from dlprim.bench.machine import usable_levels
from dlprim.bench.measuring import timing, verification
from dlprim.bench.measuring.case import Case, Row
from dlprim.bench.measuring.timing import Call
from dlprim.bench.settings import Settings

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
_QUICK = ("64x64x64x16", "28x64x64x9", "16x16x16x1", "8x8x8x1", "17x13x19x5", "1x64x64x16")
_STEEPEST = 1.13  # of an activation
_NATIVE_OPERATIONS = 2e11  # a second, about: how long a native loop is


@dataclass(frozen=True)
class Shape:
    m: int
    n: int
    k: int
    batch: int

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}x{self.batch}"

    @property
    def operations(self) -> int:
        return 2 * self.m * self.n * self.k * self.batch


# Of products whose A is transposed, as those of gradients of weights.
_TRANSPOSED = [Shape(64, 64, k, 1) for k in (49, 112, 196, 392, 784)]


@dataclass(frozen=True)
class Variant:
    """What is measured on every shape: types, ISA level and epilogue."""

    dtype: str
    isa: str
    b_dtype: str | None = None  # where it is not the default of A's
    trans_a: bool = False
    epilogue: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        by = [f"by {self.b_dtype}"] if self.b_dtype else []
        return " ".join([self.isa, *by, *(["transposed A"] if self.trans_a else [])])


def rows(settings: Settings) -> Iterator[Row]:
    """Variants over the table, then epilogues."""
    shapes = [
        Shape(**it)
        for path in settings.tables("kernel", "brgemm")
        for it in tables.integers(path, ("m", "n", "k", "batch"))
    ]
    for variant in _variants(settings):
        for shape in _TRANSPOSED if variant.trans_a else shapes:
            name = str(shape)
            if settings.wanted(name) and not (
                settings.quick and not settings.shapes and name not in _QUICK
            ):
                make = partial(_case, Product(shape, variant))
                yield Row(str(variant), name, variant.dtype, make)
    if settings.types("float32") and not settings.rows and dlprim.isa() != "scalar":
        yield from _epilogues(settings.brief)


def _variants(settings: Settings) -> Iterator[Variant]:
    known = [
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
    usable, types = usable_levels(), settings.types("float32", "bfloat16", "uint8", "int8")
    for it in known:
        if it.isa in usable and it.dtype in types and settings.isa in (None, it.isa):
            yield it


def _epilogues(quick: bool) -> Iterator[Row]:
    """Beside the same kernel without them: below 1 is what they cost."""
    for shape, names in ((Shape(28, 64, 64, 9), ["relu"]), (Shape(64, 64, 64, 16), ACTIVATIONS)):
        for name in list(names)[:1] if quick else names:
            epilogue = {"bias": True, "activation": name}
            fused = Product(shape, Variant("float32", dlprim.isa(), epilogue=epilogue))
            plain = Product(shape, Variant("float32", dlprim.isa()))
            yield Row("bias and activation", f"{shape} {name}", "float32",
                      partial(_case, fused, plain))  # fmt: skip


class Product:
    """Operands of a shape in the types of a variant, and its kernel."""

    def __init__(self, shape: Shape, variant: Variant) -> None:
        self.shape, self.variant = shape, variant

    def make(self) -> Product:
        """Draws the operands and generates the kernel."""
        shape, variant = self.shape, self.variant
        self.kernel = dlprim.Brgemm(
            shape.m, shape.n, shape.k, variant.dtype, b_dtype=variant.b_dtype, isa=variant.isa,
            trans_a=variant.trans_a, **variant.epilogue,
        )  # fmt: skip
        random = np.random.default_rng(1)
        plain_a = random_values(random, (shape.batch, shape.m, shape.k), variant.dtype)
        b_dtype = variant.b_dtype or ("int8" if variant.dtype == "uint8" else variant.dtype)
        plain_b = random_values(random, (shape.batch, shape.k, shape.n), b_dtype)
        stored_a = plain_a.transpose(0, 2, 1) if variant.trans_a else plain_a
        self.a = aligned(stored_a)
        self.b = aligned(plain_b if variant.dtype == "float32" else dlprim.pack_b(plain_b))
        is_integer = variant.dtype in ("uint8", "int8")
        self.c = aligned(np.zeros((shape.m, shape.n), np.int32 if is_integer else np.float32))
        self.bias: Any = None
        if variant.epilogue:
            self.bias = random.uniform(-1, 1, shape.n).astype(np.float32)
        depth = shape.batch * shape.k
        self.flat_a = np.ascontiguousarray(plain_a.transpose(1, 0, 2).reshape(shape.m, depth))
        self.flat_b = plain_b.reshape(depth, shape.n)
        return self

    def call(self) -> None:
        self.kernel(self.a, self.b, self.c, bias=self.bias)

    def native_seconds(self) -> float:
        repeats = max(3, round(timing.STRETCH * _NATIVE_OPERATIONS / self.shape.operations))
        return float(self.kernel.measure(self.a, self.b, self.c, repeats=repeats, bias=self.bias))

    def verify(self) -> None:
        """Against float64, which is exact for 8 bits."""
        a, b = self.flat_a.astype(np.float64), self.flat_b.astype(np.float64)
        exact = a @ b
        bound = verification.sum_bound(a.shape[1], np.abs(a) @ np.abs(b))
        if self.variant.epilogue:
            with np.errstate(over="ignore"):  # exp of a large number: the quotient is right
                exact = ACTIVATIONS[self.variant.epilogue["activation"]](exact + self.bias)
            own = 4 * np.spacing(np.abs(exact).astype(np.float32))  # 4 ULP
            bound = _STEEPEST * bound + own
        self.call()
        if self.c.dtype == np.int32:
            bound[...] = 0
        name = f"{self.shape} {self.variant.dtype} {self.variant}"
        verification.verify(name, self.c, exact, bound)


def _case(product: Product, plain: Product | None = None) -> Case:
    it = product.make()
    tile = "x".join(map(str, it.kernel.tile))
    sides: dict[str, Callable[[], Call]] = {}
    if plain is not None:
        sides["plain"] = lambda: plain.make().call
    elif it.variant.dtype == "float32":
        c = it.c

        def torch_call() -> Call:
            torch = peers.torch(1)
            a, b, out = (torch.from_numpy(array) for array in (it.flat_a, it.flat_b, c))
            return lambda: torch.mm(a, b, out=out)

        sides = {
            "numpy": lambda: lambda: np.matmul(it.flat_a, it.flat_b, out=c),
            "torch": torch_call,
            "libxsmm": lambda: peers.libxsmm_product(it.flat_a, it.flat_b, c),
        }
    reference = it.flat_a.astype(np.float64) @ it.flat_b.astype(np.float64)
    return Case(
        it.call, it.verify, sides, verification.close_to(f"{it.shape}", reference, 1e-4),
        it.shape.operations, it.a.nbytes + it.b.nbytes + it.c.nbytes,
        peak_dtype=it.variant.dtype, isa=it.variant.isa, native=it.native_seconds,
        notes={"tile": tile},
    )  # fmt: skip


def facts() -> dict[str, float]:
    """What generating a kernel takes, and what `import dlprim` adds to NumPy's, medians."""
    samples = []
    for size in (8, 16, 24, 32, 48, 64) * 4:
        dlprim.kernel_cache_clear()
        begin = time.perf_counter()
        dlprim.Brgemm(size, size, size)
        samples.append(time.perf_counter() - begin)
    program = (
        "import time, numpy; start = time.perf_counter(); import dlprim; "
        "print(time.perf_counter() - start)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        for _ in range(5)
    ]
    return {
        "generating a kernel, microseconds": median(samples) * 1e6,
        "import dlprim behind NumPy, milliseconds": median(float(it.stdout) for it in runs) * 1e3,
    }


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
