"""Packing and bfloat16 conversion beside `numpy.copyto` of as many bytes, read and written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import dlprim
from dlprim.bench.measuring.case import Case, Row
from dlprim.bench.measuring.verification import verify
from dlprim.bench.settings import Settings

# k, n: in the L1 cache, in L2, and beyond. At powers of two the rows of a transposed operand fall
# into few sets of the caches.
_SHAPES = ((64, 64), (250, 250), (256, 256), (500, 500), (512, 512), (1000, 1000), (1024, 1024))
_QUICK = ((256, 256), (1000, 1000))
_OPERATIONS = (
    "bfloat16 -> bfloat16", "int8 -> int8", "float32 -> bfloat16", "bfloat16^T -> bfloat16",
    "int8^T -> int8", "float32^T -> bfloat16", "float32 -> bfloat16 array",
    "bfloat16 -> float32 array",
)  # fmt: skip


def rows(settings: Settings) -> Iterator[Row]:
    """Of each operation and shape; its type is that of the result."""
    for operation in _OPERATIONS:
        dtype = operation.split()[2]
        if not settings.dtypes or dtype in settings.dtypes:
            for k, n in _QUICK if settings.brief else _SHAPES:
                make = partial(_case, operation, k, n)
                yield Row(f"packing {operation}", f"{k}x{n}", dtype, make)


def _case(operation: str, k: int, n: int) -> Case:
    random = np.random.default_rng(1)
    values = random.integers(-100, 100, (k, n)).astype(np.float32)  # exact in every type
    source, _, target = operation.partition(" -> ")
    transposed = source.endswith("^T")
    stored = np.ascontiguousarray(values.T) if transposed else values
    kind = source.removesuffix("^T")
    plain = dlprim.to_bfloat16(stored) if kind == "bfloat16" else stored.astype(kind)
    call: Callable[[], Any]
    if target.endswith("array"):
        convert = dlprim.to_bfloat16 if target.startswith("bfloat16") else dlprim.to_float32
        call = partial(convert, plain)
    else:
        out = dlprim.pack_b(plain, target, transposed=transposed)
        call = partial(dlprim.pack_b, plain, target, transposed=transposed, out=out)

    def check() -> None:
        result = call()
        found = dlprim.unpack_b(result, k) if result.ndim == 3 else result
        verify(operation, found.astype(np.float32), values, np.zeros((k, n)))

    size = plain.nbytes + call().nbytes
    copied, taken = np.zeros(size // 2, np.uint8), np.ones(size // 2, np.uint8)
    return Case(call, check, {"copy": lambda: partial(np.copyto, copied, taken)}, traffic=size)
