"""A sum of products as a batch-reduce matrix product, and its kernel's text.

What an index is follows from which operands move along it, as on the CPU: a row moves the result
and A, a column the result and B, a sum A and B, and what moves all three counts products apart. One
index of the sums, or a few where it is short, is the k of the kernel; what is left of them are
entries of its batch: of a convolution (tap, channel block). Rows and columns are cut into tiles,
which are the grid; the end of the product, whatever follows it in place, is computed on its sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

from dlprim.gpu.arrays import interprets
from dlprim.gpu.emitter import FLOATS, Array, Emitter, Value
from dlprim.gpu.kernels import PART, PARTS, Kernel, kernel_of
from dlprim.gpu.rows import Rows, RowTile, in_parts, row_kernels
from dlprim.gpu.tree import Index, Node, Statement, affine, count, names_in, reads_in, told

_LEAST_K = 16  # elements that a matrix instruction sums at least


class Tile(NamedTuple):
    """The genes of a kernel."""

    m: int = 64
    n: int = 64
    k: int = 32
    warps: int = 4
    stages: int = 2
    order: int = 8  # rows of tiles that are walked together
    split: int = 1  # parts of the sum, which a second kernel adds up


@dataclass(frozen=True)
class Product:
    statement: Statement
    a: Node
    b: Node
    scale: float
    outer: tuple[Index, ...]
    rows: tuple[Index, ...]
    columns: tuple[Index, ...]
    batch: tuple[Index, ...]
    k: tuple[Index, ...]
    ends: tuple[Statement, ...] = ()
    stored: frozenset[str] = frozenset()  # of what it and its ends write
    entries: str = ""  # the argument that says how many the batch has
    others: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  # arrays and numbers, arguments too

    @property
    def statements(self) -> tuple[Statement, ...]:
        return (self.statement, *self.ends)

    def described(self) -> str:
        batch = self.entries or told(self.batch)
        return (
            f"product of matrices: rows {told(self.rows)}; columns {told(self.columns)}; k "
            f"{told(self.k)}; batch {batch}; outside {told(self.outer)}"
        )


def product_in(one: Statement, arrays: Mapping[str, Array]) -> Product | None:
    """None where the statement is something else."""
    scale, reads = _factors(one.value)
    if one.reduction != "sum" or len(reads) != 2:
        return None
    a, b = reads
    types = {arrays[it.value].dtype for it in reads}
    is_affine = all(map(affine, (*a.operands, *b.operands, *one.target.operands)))
    if not is_affine or not (types <= set(FLOATS) or (types == {"int8"} and scale == 1)):
        return None
    moved = [names_in(it) for it in (one.target, a, b)]
    groups: dict[tuple[bool, ...], tuple[Index, ...]] = {}
    for index in one.indices:
        which = tuple(index.name in it for it in moved)
        groups[which] = (*groups.get(which, ()), index)
    outer = groups.pop((True, True, True), ())
    rows, columns, sums = (
        groups.pop(it, ()) for it in ((True, True, False), (True, False, True), (False, True, True))
    )
    if groups or not sums or not rows or not columns:
        return None
    k = _k_of(sums, (a, b), arrays)
    batch = tuple(it for it in sums if it not in k)
    rows, columns = _far_first(rows, a, arrays), _far_first(columns, b, arrays)
    return Product(one, a, b, scale, outer, rows, columns, batch, _far_first(k, a, arrays))


def _factors(value: Node) -> tuple[float, list[Node]]:
    """A number, and reads; no reads where there is more in it."""
    if value.kind == "number":
        return float(value.value), []
    if value.kind == "call" and value.value == "*":
        (one, reads), (other, more) = map(_factors, value.operands)
        return one * other, [*reads, *more]
    return 1.0, [value] if value.kind == "read" else [value] * 3


def _step(name: str, read: Node, arrays: Mapping[str, Array]) -> int:
    """Elements from one value of an index to the next."""
    places = zip(read.operands, arrays[read.value].strides, strict=True)
    return abs(sum((affine(it) or ({}, 0))[0].get(name, 0) * int(by) for it, by in places))


def _far_first(
    group: Sequence[Index], read: Node, arrays: Mapping[str, Array]
) -> tuple[Index, ...]:
    """So that what is counted fastest are neighbours."""
    return tuple(sorted(group, key=lambda it: _step(it.name, read, arrays), reverse=True))


def _k_of(
    sums: Sequence[Index], reads: tuple[Node, Node], arrays: Mapping[str, Array]
) -> list[Index]:
    """The sum whose elements are neighbours, and others with it while they are few."""

    def rank(it: Index) -> tuple[bool, int, int]:
        steps = [_step(it.name, read, arrays) for read in reads]
        return min(steps) == 1, min(it.extent, 4 * _LEAST_K), -max(steps)

    chosen: list[Index] = []
    for it in sorted(sums, key=rank, reverse=True):
        if count(chosen) < _LEAST_K:
            chosen.append(it)
    return chosen


def with_end(it: Product, end: Statement) -> Product | None:
    """With what follows in place; None where that needs other elements than a tile has."""
    extents = {(index.name, index.extent) for index in it.statement.kept}
    if end.reduction or not end.initializes or {i[:2] for i in end.indices} != extents:
        return None
    places = {one.result: one.target.operands for one in it.statements}
    if places.setdefault(end.result, end.target.operands) != end.target.operands:
        return None
    fits = all(
        read.operands == places.get(read.value, read.operands) for read in reads_in(end.value)
    )
    return replace(it, ends=(*it.ends, end)) if fits else None


class _Text:
    """The kernel of a product for one tile, or of a part of its sum."""

    def __init__(
        self, it: Product, tile: Tile, arrays: Mapping[str, Array], precision: str
    ) -> None:
        self._it, self._tile, self._precision, self._e = it, tile, precision, Emitter(arrays)
        self._types = [arrays[read.value].dtype for read in (it.a, it.b)]

    def kernel(self, name: str) -> Kernel:
        e, t, it = self._e, self._tile, self._it
        self._tiles()
        whole = self._types == ["int8", "int8"]
        e.line(f"acc = tl.full(({t.m}, {t.n}), 0, {'tl.int32' if whole else 'tl.float32'})")
        self._sum()
        made = e.let("acc", "integer" if whole else "real", frozenset("mn"))
        if it.scale != 1:
            made = e.let(f"{made.text} * {it.scale!r}", "real", made.axes)
        if not it.statement.initializes:
            made = e.let(f"{made.text} + {e.load(it.statement.target).text}", made.kind, made.axes)
        e.held[it.statement.result] = made
        for end in it.ends:
            e.held[end.result] = e.value(end.value)
        for one in {one.result: one for one in it.statements}.values():
            if one.result in it.stored:
                e.store(one.target, e.held[one.result])
        tiles = ceil(count(it.rows) / t.m) * ceil(count(it.columns) / t.n) * count(it.outer)
        grid = (tiles, t.split) if t.split > 1 else (tiles,)
        return kernel_of(name, e, grid, t.warps, t.stages, it.others)

    def _tiles(self) -> None:
        """Which tile this is, and what its rows and columns are."""
        e, t, it = self._e, self._tile, self._it
        rows, columns = count(it.rows), count(it.columns)
        high, wide = ceil(rows / t.m), ceil(columns / t.n)
        e.line(f"tile = tl.program_id(0) % {high * wide}")
        e.line(f"first = tile // {t.order * wide} * {t.order}")
        e.line(f"height = tl.minimum({high} - first, {t.order})")
        e.line(f"tile = tile % {t.order * wide}")
        e.tile_axis("m", f"(first + tile % height) * {t.m}", t.m, rows)
        e.tile_axis("n", f"tile // height * {t.n}", t.n, columns)
        e.split_index(f"tl.program_id(0) // {high * wide}", it.outer)
        e.split_index("m", it.rows, "m")
        e.split_index("n", it.columns, "n")
        e.env[PART.name] = Value("tl.program_id(1)", "integer")

    def _sum(self) -> None:
        e, t, it = self._e, self._tile, self._it
        blocks = ceil(count(it.k) / t.k)
        terms = f"{it.entries} * {blocks}" if it.entries else f"{count(it.batch) * blocks}"
        first, end = "0", terms
        if t.split > 1:
            e.line(f"share = ({terms} + {t.split - 1}) // {t.split}")
            first = "tl.program_id(1) * share"
            end = f"tl.minimum({first} + share, {terms})"
        e.line(f"for term in range({first}, {end}):")
        e.depth += 1
        e.split_index(f"term // {blocks}" if blocks > 1 else "term", it.batch)
        block = f"term % {blocks} * {t.k}" if blocks > 1 else "0"
        texts = []
        for read, axis in ((it.a, "[None, :]"), (it.b, "[:, None]")):
            e.line(f"k = ({block} + tl.arange(0, {t.k})){axis}")
            e.tails = {**e.tails, "k": f"(k < {count(it.k)})"} if count(it.k) % t.k else e.tails
            e.split_index("k", it.k, "k")
            texts.append(e.raw(read).text)
        e.tails.pop("k", None)
        # Triton's interpreter has no products of bfloat16; those of float32 are the same.
        if len(set(self._types)) > 1 or (interprets() and "bfloat16" in self._types):
            texts = [f"{it}.to(tl.float32)" for it in texts]
        how = f'input_precision="{self._precision}"'
        if self._types == ["int8", "int8"]:
            how = "out_dtype=tl.int32"
        e.line(f"acc = tl.dot({', '.join(texts)}, acc, {how})")
        e.depth -= 1


def can_split(it: Product, arrays: Mapping[str, Array]) -> bool:
    """Parts are float32, and what is added to does not count in each of them."""
    is_small = count(it.statement.kept) < 2**24
    return is_small and it.statement.initializes and arrays[it.a.value].dtype != "int8"


def product_kernels(
    it: Product, tile: Tile, arrays: Mapping[str, Array], precision: str, name: str
) -> list[Kernel]:
    """One, or one for parts of the sum and one that adds them up and does the end."""
    if tile.split == 1 or not can_split(it, arrays):
        return [_Text(it, tile._replace(split=1), arrays, precision).kernel(name)]
    first, second, scratch = in_parts(it.statement, tile.split)
    arrays = {**arrays, PARTS: scratch}
    part = replace(it, statement=first, ends=(), stored=frozenset({PARTS}))
    made = _Text(part, tile, arrays, precision).kernel(f"{name}_part")
    whole = Rows((second, *it.ends), second.kept, second.reduced, it.stored)
    return [
        made._replace(scratch=scratch.span + 1),
        *row_kernels(whole, RowTile(1024), arrays, name),
    ]
