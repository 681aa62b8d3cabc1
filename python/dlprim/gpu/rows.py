"""Statements that are no products, as kernels of rows: maps, reductions, softmax, normalisations.

A program has a few rows and all their columns at once, so that what one statement writes is for
the next a value in registers; reductions run along the columns. A reduction alone may have columns
without end, which it walks in pieces, and where rows are few several programs share them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from dlprim.gpu.emitter import BYTES, Array, Emitter, Value
from dlprim.gpu.functions import JOINED
from dlprim.gpu.kernels import PART, PARTS, Kernel, kernel_of
from dlprim.gpu.tree import Index, Node, Statement, count, reads_in, told

_MOST_COLUMNS = 8192  # of a row in registers
_MOST_STATEMENTS = 16


class RowTile(NamedTuple):
    """The genes of a kernel."""

    elements: int = 2048  # of a program, about
    warps: int = 4
    split: int = 1  # programs that share the columns of a row


@dataclass(frozen=True)
class Rows:
    statements: tuple[Statement, ...]
    rows: tuple[Index, ...]
    columns: tuple[Index, ...]
    stored: frozenset[str] = frozenset()

    @property
    def walks(self) -> bool:
        """Whether columns are walked in pieces."""
        return bool(self.statements[0].reduction) and len(self.statements) == 1

    def described(self) -> str:
        fused = ", as one kernel" if len(self.statements) > 1 else ""
        return f"rows {told(self.rows)}; columns {told(self.columns)}{fused}"


def rows_of(statement: Statement) -> Rows:
    return Rows((statement,), statement.kept, statement.reduced)


def with_next(it: Rows, following: Statement) -> Rows | None:
    """One kernel of all; None where rows or columns are others, or elements of other places are
    read than a program has."""
    statements = (*it.statements, following)
    rows = following.kept if following.reduction and not it.columns else it.rows
    columns = it.columns or following.reduced
    outside, inside = set(_plain(rows)), set(_plain(columns))
    places: dict[str, tuple[Node, ...]] = {}
    for one in statements:
        kept = set(_plain(one.kept))
        fits = kept == outside if one.reduction else kept in (outside, outside | inside)
        if (
            not fits
            or not one.initializes
            or (one.reduction and set(_plain(one.reduced)) != inside)
        ):
            return None
        if places.setdefault(one.result, one.target.operands) != one.target.operands:
            return None
    reads = [read for one in statements for read in reads_in(one.value)]
    is_own = all(read.operands == places.get(read.value, read.operands) for read in reads)
    is_small = len(statements) <= _MOST_STATEMENTS and count(columns) <= _MOST_COLUMNS
    return Rows(statements, rows, columns) if is_own and is_small else None


def _plain(group: tuple[Index, ...]) -> list[tuple[str, int]]:
    return [(it.name, it.extent) for it in group]


class _Text:
    def __init__(self, it: Rows, tile: RowTile, arrays: Mapping[str, Array]) -> None:
        self._it, self._tile, self._e = it, tile, Emitter(arrays)
        wide = 1 << max(count(it.columns) - 1, 0).bit_length()
        self._wide = min(wide, max(tile.elements, 16)) if it.walks else wide
        most = 1 << max(count(it.rows) - 1, 0).bit_length()
        self._high = max(min(tile.elements // self._wide, most), 1)

    def kernel(self, name: str) -> Kernel:
        e, it = self._e, self._it
        rows = count(it.rows)
        e.tile_axis("row", f"tl.program_id(0) * {self._high}", self._high, rows)
        e.split_index("row", it.rows, "row")
        if it.walks:
            self._walk(it.statements[0])
        else:
            self._set_columns("0")
            for one in it.statements:
                made = e.value(one.value)
                full = one.reduction and self._full(one.reduction, made).text
                e.held[one.result] = self._along(one.reduction, full) if full else made
        for one in {one.result: one for one in it.statements}.values():
            if one.result in it.stored:
                e.store(one.target, e.held[one.result])
        grid = (ceil(rows / self._high), *([self._tile.split] if self._tile.split > 1 else []))
        return kernel_of(name, e, grid, self._tile.warps)

    def _set_columns(self, first: str) -> None:
        self._e.tile_axis("column", first, self._wide, count(self._it.columns))
        self._e.split_index("column", self._it.columns, "column")

    def _full(self, reduction: str, it: Value) -> Value:
        """For every element of the tile, with what changes nothing where there is none."""
        e = self._e
        text = f"tl.full(({self._high}, {self._wide}), 0.0, tl.float32) + {e.real(it).text}"
        if "column" in e.tails:
            text = f"tl.where({e.tails['column']}, {text}, {JOINED[reduction][1]})"
        return e.let(text, "real")

    def _along(self, reduction: str, text: str) -> Value:
        """The rows' reductions of a tile; NaN where an element is."""
        e, name = self._e, "sum" if reduction == "sum" else reduction
        made = f"tl.{name}({text}, 1, keep_dims=True)"
        if reduction == "product":
            made = f"tl.reduce({text}, 1, times, keep_dims=True)"
        elif reduction != "sum":
            nan = f"tl.sum(({text} != {text}).to(tl.int32), 1, keep_dims=True) > 0"
            made = f"tl.where({nan}, float('nan'), {made})"
        return e.let(made, "real", frozenset({"row"}))

    def _walk(self, one: Statement) -> None:
        """One reduction, in pieces of its columns, each lane of which goes on by itself."""
        e, (joined, nothing) = self._e, JOINED[one.reduction]
        pieces = ceil(count(self._it.columns) / self._wide)
        share = ceil(pieces / self._tile.split)
        first = f"tl.program_id(1) * {share}" if self._tile.split > 1 else "0"
        e.env[PART.name] = Value("tl.program_id(1)", "integer")
        e.line(f"acc = tl.full(({self._high}, {self._wide}), {nothing}, tl.float32)")
        e.line(f"for piece in range({first}, tl.minimum({first} + {share}, {pieces})):")
        e.depth += 1
        self._set_columns(f"piece * {self._wide}")
        e.line(f"acc = {joined.format('acc', self._full(one.reduction, e.value(one.value)).text)}")
        e.depth -= 1
        made = self._along(one.reduction, "acc")
        if not one.initializes:
            made = e.let(joined.format(e.load(one.target).text, made.text), "real", made.axes)
        e.held[one.result] = made


def row_kernels(it: Rows, tile: RowTile, arrays: Mapping[str, Array], name: str) -> list[Kernel]:
    """One, or one for parts of a reduction and one that joins them."""
    for one in it.statements:
        if one.reduction and arrays[one.result].dtype in (*BYTES, "int32"):
            raise ValueError(
                f"{one.result} is a reduction of {arrays[one.result].dtype}, expected arrays of "
                "floats, or a sum of products of two arrays of int8"
            )
    if tile.split == 1 or not it.walks:
        return [_Text(it, tile._replace(split=1), arrays).kernel(name)]
    (one,) = it.statements
    first, second, scratch = in_parts(one, tile.split)
    arrays = {**arrays, PARTS: scratch}
    part = Rows((first,), one.kept, one.reduced, frozenset({PARTS}))
    whole = Rows((second,), one.kept, second.reduced, it.stored)
    made = _Text(part, tile, arrays).kernel(f"{name}_part")._replace(scratch=scratch.span + 1)
    return [made, _Text(whole, RowTile(), arrays).kernel(name)]


def in_parts(one: Statement, split: int) -> tuple[Statement, Statement, Array]:
    """A reduction as parts of it, and what joins them."""
    part, shape = PART._replace(extent=split, reduced=True), [split]
    shape += [it.extent for it in one.kept]
    strides = tuple(count(one.kept[at:]) for at in range(len(shape)))
    read = Node("read", PARTS, operands=tuple(Node("name", it.name) for it in (part, *one.kept)))
    first = one._replace(target=read, initializes=True)
    second = one._replace(value=read, indices=(*one.kept, part))
    return first, second, Array("float32", tuple(shape), strides)
