"""Generated text as kernels of Triton: loaded once, and launched."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import triton
import triton.language as tl

from dlprim.gpu.emitter import Emitter
from dlprim.gpu.tree import Index

PARTS = "__parts"  # the array that holds parts of sums,
PART = Index("__part", 1)  # and the index that counts them
_TIMES = "@triton.jit\ndef times(a, b):\n    return a * b\n\n\n"


class Kernel(NamedTuple):
    """A kernel's text, and how it is launched."""

    name: str
    source: str
    arrays: tuple[str, ...]  # in the order of its arguments, numbers behind them
    numbers: tuple[str, ...]
    grid: tuple[int, ...]
    warps: int
    stages: int
    scratch: int = 0  # elements of the parts that it writes

    @property
    def options(self) -> dict[str, int]:
        return {"num_warps": self.warps, "num_stages": self.stages, "enable_fp_fusion": True}

    def launch(self, arrays: Sequence[Any], numbers: Sequence[int]) -> None:
        if 0 not in self.grid:
            loaded(self.name, self.source)[self.grid](*arrays, *numbers, **self.options)


def kernel_of(
    name: str,
    emitter: Emitter,
    grid: tuple[int, ...],
    warps: int,
    stages: int = 2,
    others: tuple[tuple[str, ...], tuple[str, ...]] = ((), ()),
) -> Kernel:
    """The lines of an emitter, with arrays and numbers that they name besides."""
    arrays = (*emitter.used, *others[0])
    parameters = ", ".join([*(f"{it}_" for it in arrays), *others[1]])
    source = "\n".join([f"@triton.jit\ndef {name}({parameters}):", *emitter.lines, ""])
    return Kernel(name, source, arrays, others[1], grid, warps, stages)


@lru_cache(maxsize=1024)
def loaded(name: str, source: str) -> Any:
    text = _TIMES + source if "times" in source else source
    file = f"<{name} {hash(text):x}>"
    # Triton reads a kernel's text where Python's tracebacks do.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {"triton": triton, "tl": tl}
    exec(compile(text, file, "exec"), names)
    return names[name]
