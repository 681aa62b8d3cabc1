"""The kernels of a step: their text, which Triton compiles, and their launch.

Products and rows are the same text but for what stands in the loop: a tile of rows and columns,
what is walked along, the statements that follow in registers, and the stores.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import ceil
from typing import Any, NamedTuple

import triton
import triton.language as tl

from dlprim.gpu.arrays import interprets
from dlprim.gpu.emitter import Emitter, Value
from dlprim.gpu.functions import JOINED
from dlprim.gpu.mapping import PART, PARTS, Step, Tile, in_parts
from dlprim.gpu.tree import Array, Statement, count

_NUMBERS = ("batch", "stride_a", "stride_b")  # what a kernel may be given besides arrays
_TIMES = "@triton.jit\ndef times(a, b):\n    return a * b\n\n\n"


class Kernel(NamedTuple):
    """A kernel's text, and how it is launched."""

    name: str
    source: str
    arrays: tuple[str, ...]  # in the order of its arguments, numbers behind them
    numbers: tuple[str, ...]
    grid: tuple[int, ...]
    options: dict[str, int]
    scratch: int = 0  # elements of the parts that it writes

    def launch(self, arrays: Sequence[Any], numbers: Sequence[int]) -> None:
        if 0 not in self.grid:
            loaded(self.name, self.source)[self.grid](*arrays, *numbers, **self.options)


@lru_cache(maxsize=1024)
def loaded(name: str, source: str) -> Any:
    text = _TIMES + source if "times" in source else source
    file = f"<{name} {hash(text):x}>"
    # Triton reads a kernel's text where Python's tracebacks do.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {"triton": triton, "tl": tl, "__name__": __name__}
    exec(compile(text, file, "exec"), names)
    return names[name]


def kernels_of(
    it: Step, tile: Tile, arrays: Mapping[str, Array], precision: str, name: str
) -> list[Kernel]:
    """One, or one for parts of a reduction and one that joins them."""
    if tile.split == 1 or not it.can_split(arrays):
        return [_Text(it, tile._replace(split=1), arrays, precision).kernel(name)]
    part, whole, scratch = in_parts(it, tile.split)
    arrays = {**arrays, PARTS: scratch}
    first = _Text(part, tile, arrays, precision).kernel(f"{name}_part")
    second = _Text(whole, row_tile(whole, 1024, 4), arrays, precision).kernel(name)
    return [first._replace(scratch=scratch.span + 1), second]


def row_tile(it: Step, elements: int, warps: int, least: int = 1) -> Tile:
    """Of about so many elements of at least so many rows, the whole of each unless it is walked."""
    wide, high = (1 << max(count(group) - 1, 0).bit_length() for group in (it.columns, it.rows))
    wide = min(wide, max(elements // least, 1)) if it.walks else wide
    high = max(min(elements // wide, high), 1)
    return Tile(high, wide, 1, max(warps, high * wide // 1024), 2, 1)


class _Text:
    """The kernel of a step for one tile, or for a part of its reduction."""

    def __init__(self, it: Step, tile: Tile, arrays: Mapping[str, Array], precision: str) -> None:
        if not it.walks:  # a program has whole rows
            tile = tile._replace(n=row_tile(it, 1, 1).n)
        self._it, self._tile, self._precision, self._e = it, tile, precision, Emitter(arrays)
        self._types = {arrays[read.value].dtype for read in it.factors}

    def kernel(self, name: str) -> Kernel:
        e, t, it = self._e, self._tile, self._it
        programs = self._axes()
        waiting = it.statements
        if it.walks:
            e.held[waiting[0].result] = self._walked(waiting[0])
            waiting = waiting[1:]
        for one in waiting:
            made = e.value(one.value)
            if one.reduction:
                made = self._reduced(one.reduction, self._full(one.reduction, made))
            e.held[one.result] = made
        for one in {one.result: one for one in it.statements}.values():
            if one.result in it.stored:
                e.store(one.target, e.held[one.result])
        body = "\n".join(e.lines)
        arrays = tuple(array for array in e.arrays if re.search(rf"\b{array}_\b", body))
        numbers = tuple(number for number in _NUMBERS if re.search(rf"\b{number}\b", body))
        parameters = ", ".join([*(f"{array}_" for array in arrays), *numbers])
        source = f"@triton.jit\ndef {name}({parameters}):\n{body}\n"
        grid = (programs, t.split) if t.split > 1 else (programs,)
        options = {"num_warps": t.warps, "num_stages": t.stages, "enable_fp_fusion": True}
        return Kernel(name, source, arrays, numbers, grid, options)

    def _axes(self) -> int:
        """Says which tile a program has; returns how many there are."""
        e, t, it = self._e, self._tile, self._it
        high, wide = ceil(count(it.rows) / t.m), ceil(count(it.columns) / t.n)
        if not it.factors:
            e.axis("m", "tl.program_id(0)", t.m, it.rows)
            if not it.walks:
                e.axis("n", "0", t.n, it.columns)
            return high
        e.line(f"tile = tl.program_id(0) % {high * wide}")
        e.line(f"first = tile // {t.order * wide} * {t.order}")
        e.line(f"height = tl.minimum({high} - first, {t.order})")
        e.line(f"tile = tile % {t.order * wide}")
        e.axis("m", "(first + tile % height)", t.m, it.rows)
        e.axis("n", "(tile // height)", t.n, it.columns)
        e.split(f"tl.program_id(0) // {high * wide}", it.outer)
        return high * wide * count(it.outer)

    def _walked(self, one: Statement) -> Value:
        """The first statement, in pieces of what it reduces."""
        e, t, it = self._e, self._tile, self._it
        joined, nothing = JOINED[one.reduction]
        blocks = ceil(count(it.k) / t.k) if it.factors else ceil(count(it.columns) / t.n)
        is_given = any(e.arrays[read.value].entry for read in it.factors)
        terms = f"batch * {blocks}" if is_given else f"{count(it.batch) * blocks}"
        bounds, block, is_whole = f"0, {terms}", "term", self._types == {"int8"}
        if t.split > 1:
            e.line(f"share = ({terms} + {t.split - 1}) // {t.split}")
            e.line("first = tl.program_id(1) * share")
            e.split("tl.program_id(1)", (PART,))
            bounds = f"first, tl.minimum(first + share, {terms})"
        dtype = "tl.int32" if is_whole else "tl.float32"
        e.line(f"acc = tl.full(({t.m}, {t.n}), {nothing}, {dtype})")
        e.line(f"for term in range({bounds}):")
        e.depth += 1
        if it.batch:
            e.split(f"term // {blocks}" if blocks > 1 else "term", it.batch)
            block = f"(term % {blocks})" if blocks > 1 else "0"
        if it.factors:
            text = self._dot(block)
        else:
            e.axis("n", block, t.n, it.columns)
            text = joined.format("acc", self._full(one.reduction, e.value(one.value)).text)
        e.line(f"acc = {text}")
        e.depth -= 1
        if not it.factors:
            made = self._reduced(one.reduction, Value("acc", "real"))
        else:
            made = e.let("acc", "integer" if is_whole else "real", frozenset("mn"))
        if it.scale != 1:
            made = e.let(f"{made.text} * {it.scale!r}", "real", made.axes)
        if not one.initializes:
            text = joined.format(e.load(one.target).text, made.text)
            made = e.let(text, made.kind, made.axes)
        is_exact = e.arrays[one.result].dtype == "int32"
        return made if is_exact else e.cast(made, "real")

    def _dot(self, block: str) -> str:
        e, t, it = self._e, self._tile, self._it
        texts = []
        for read, k, side in zip(it.factors, ("k_a", "k_b"), "mn", strict=True):
            e.axis(k, block, t.k, it.k)
            made = e.raw(read)
            text = made.text
            if made.axes != {k, side}:  # all the same along an axis
                text = f"tl.broadcast_to({text}, {(t.m, t.k) if side == 'm' else (t.k, t.n)})"
            if k not in made.axes and k in e.tails:
                text = f"tl.where({e.tails[k]}, {text}, 0)"
            texts.append(text)
        # Triton's interpreter has no products of bfloat16; those of float32 are the same.
        if len(self._types) > 1 or (interprets() and "bfloat16" in self._types):
            texts = [f"{text}.to(tl.float32)" for text in texts]
        is_whole = self._types == {"int8"}
        how = "out_dtype=tl.int32" if is_whole else f'input_precision="{self._precision}"'
        return f"tl.dot({', '.join(texts)}, acc, {how})"

    def _full(self, reduction: str, it: Value) -> Value:
        """For every element of the tile, with what changes nothing where there is none."""
        e, t = self._e, self._tile
        text = f"tl.full(({t.m}, {t.n}), 0.0, tl.float32) + {e.cast(it, 'real').text}"
        if "n" in e.tails:
            text = f"tl.where({e.tails['n']}, {text}, {JOINED[reduction][1]})"
        return e.let(text, "real")

    def _reduced(self, reduction: str, it: Value) -> Value:
        """Of a tile, the reductions of its rows; NaN where an element is."""
        e, text = self._e, it.text
        made = f"tl.{reduction}({text}, 1, keep_dims=True)"
        if reduction == "product":
            made = f"tl.reduce({text}, 1, times, keep_dims=True)"
        elif reduction != "sum":
            nan = f"tl.sum(({text} != {text}).to(tl.int32), 1, keep_dims=True) > 0"
            made = f"tl.where({nan}, float('nan'), {made})"
        return e.let(made, "real", frozenset("m"))
