"""What a definition is mapped to: steps, each a tile of rows and columns that a program computes.

A sum of products of two arrays is a product of matrices. What an index is follows from which arrays
move along it, as on the CPU: a row moves the result and A, a column the result and B, a sum A and
B, and what moves all three counts products apart. One index of the sums, or a few where it is
short, is the k of the kernel; what is left of them are entries of its batch: of a convolution (tap,
channel block). Of all other statements the rows are what is kept and the columns what is reduced; a
program has all columns of its rows, or walks along them where a reduction is alone.

Statements are one step where each element is needed by one program alone: what that asks of their
indices is more than the CPU's planner asks of distances, and nothing of caches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dlprim.gpu.tree import FLOATS, Array, Index, Node, Statement, count, reads_in, steps_of

PARTS = "__parts"  # the array that holds parts of sums,
PART = Index("__part", 1)  # and the index that counts them
_LEAST_K = 16  # elements that a matrix instruction sums at least
_MOST_COLUMNS = 8192  # of a row in registers
_MOST_STATEMENTS = 16
_MOST_PARTS = 2**24  # elements of the result of a sum that is computed in parts


class Tile(NamedTuple):
    """The genes of a kernel."""

    m: int = 64
    n: int = 64
    k: int = 32
    warps: int = 4
    stages: int = 2
    order: int = 8  # rows of tiles that are walked together
    split: int = 1  # parts of the reduction, which a second kernel joins


@dataclass(frozen=True)
class Step:
    """What one kernel computes; a product where it has factors."""

    statements: tuple[Statement, ...]
    rows: tuple[Index, ...]
    columns: tuple[Index, ...]
    factors: tuple[Node, ...] = ()
    scale: float = 1.0  # of the product
    k: tuple[Index, ...] = ()
    batch: tuple[Index, ...] = ()
    outer: tuple[Index, ...] = ()
    stored: frozenset[str] = frozenset()  # of what it writes

    @property
    def walks(self) -> bool:
        """Whether what is reduced is walked in pieces, by the first statement."""
        return bool(self.factors or (self.statements[0].reduction and len(self.statements) == 1))

    def can_split(self, arrays: Mapping[str, Array]) -> bool:
        """Parts are float32, and what is added to does not count in each of them."""
        first, *ends = self.statements
        is_whole = any(arrays[it.value].dtype == "int8" for it in self.factors)
        is_small = count(first.kept) < _MOST_PARTS
        return self.walks and is_small and not is_whole and (first.initializes or not ends)

    def described(self) -> str:
        groups = {"rows": self.rows, "columns": self.columns}
        if self.factors:
            groups |= {"k": self.k, "batch": self.batch, "outside": self.outer}
        extents = {
            name: ", ".join(f"{it.name} ({it.extent})" for it in group) or "none"
            for name, group in groups.items()
        }
        told = "; ".join(f"{name} {it}" for name, it in extents.items())
        fused = ", as one kernel" if len(self.statements) > 1 else ""
        return f"product of matrices: {told}" if self.factors else told + fused


def mapped(
    statements: Sequence[Statement], arrays: Mapping[str, Array], returns: Sequence[str]
) -> list[Step]:
    """In order; of each what has to be written to memory, because others read it."""
    steps: list[Step] = []
    waiting = [_step(it, arrays) for it in statements]
    while waiting:
        step = waiting.pop(0)
        while waiting and (longer := _joined(step, waiting[0])):
            step = longer
            waiting.pop(0)
        later = [it.statements[0] for it in waiting]
        results = {one.result for one in step.statements}
        stored = {it for it in results if _is_read(it, later, arrays, returns)}
        steps.append(replace(step, stored=frozenset(stored)))
    return steps


def _is_read(
    name: str,
    later: Sequence[Statement],
    arrays: Mapping[str, Array],
    returns: Sequence[str],
) -> bool:
    """Before all of it is written anew."""
    for one in later:
        if any(it.value == name for it in reads_in(one.value)):
            return True
        if one.result == name and not one.initializes:
            return True
        if one.result == name and count(one.kept) == arrays[name].elements:
            return False
    return name in returns


def _step(one: Statement, arrays: Mapping[str, Array]) -> Step:
    made = _product(one, arrays)
    scale, factors = _factors(one.value)
    is_exact = not one.reduction and scale == 1 and len(factors) == 2
    if made is None and arrays[one.result].dtype == "int32" and not is_exact:
        what = "a reduction of int32" if one.reduction else "int32"
        raise ValueError(
            f"{one.result} is {what}, expected arrays of floats, or a sum of products of two "
            "arrays of int8"
        )
    return made or Step((one,), one.kept, one.reduced)


def _product(one: Statement, arrays: Mapping[str, Array]) -> Step | None:
    """None where the statement is something else."""
    scale, factors = _factors(one.value)
    if one.reduction != "sum" or len(factors) != 2:
        return None
    types = {arrays[it.value].dtype for it in factors}
    moved = [steps_of(it, arrays[it.value]) for it in (one.target, *factors)]
    if not (types <= set(FLOATS) or (types == {"int8"} and scale == 1)) or None in moved:
        return None
    c, a, b = (it or {} for it in moved)
    groups: dict[tuple[bool, ...], tuple[Index, ...]] = {}
    for index in (*one.kept, *one.reduced):
        which = tuple(index.name in it for it in (c, a, b))
        groups[which] = (*groups.get(which, ()), index)
    outer = groups.pop((True, True, True), ())
    rows, columns, sums = (
        groups.pop(it, ()) for it in ((True, True, False), (True, False, True), (False, True, True))
    )
    if groups or not sums or not rows or not columns:
        return None
    entries = {place.value for it in factors if arrays[it.value].entry for place in it.operands[:1]}
    k = _k_of([it for it in sums if it.name not in entries], a, b)
    batch = tuple(it for it in sums if it not in k)
    rows, columns, k = _far_first(rows, a), _far_first(columns, b), _far_first(k, a)
    return Step((one,), rows, columns, tuple(factors), scale, k, batch, outer)


def _factors(value: Node) -> tuple[float, list[Node]]:
    """A number, and reads; three of them where there is more in it."""
    if value.kind == "number":
        return float(value.value), []
    if value.kind == "call" and value.value == "*":
        (one, reads), (other, more) = map(_factors, value.operands)
        return one * other, [*reads, *more]
    return 1.0, [value] if value.kind == "read" else [value] * 3


def _far_first(group: Iterable[Index], steps: Mapping[str, int]) -> tuple[Index, ...]:
    """So that what is counted fastest are neighbours."""
    return tuple(sorted(group, key=lambda it: abs(steps[it.name]), reverse=True))


def _k_of(sums: list[Index], a: Mapping[str, int], b: Mapping[str, int]) -> tuple[Index, ...]:
    """The sum whose elements are neighbours, and others with it while they are few."""

    def rank(it: Index) -> tuple[bool, int, int]:
        steps = abs(a[it.name]), abs(b[it.name])
        return min(steps) == 1, min(it.extent, 4 * _LEAST_K), -max(steps)

    chosen: tuple[Index, ...] = ()
    for it in sorted(sums, key=rank, reverse=True):
        if count(chosen) < _LEAST_K:
            chosen = (*chosen, it)
    return chosen


def _joined(it: Step, other: Step) -> Step | None:
    """One step of both; None where rows or columns are others, or elements of other places are read
    than a program has, or than it has not yet overwritten."""
    (following,) = other.statements
    if other.factors:
        return None
    statements = (*it.statements, following)
    apart = not it.columns and other.columns
    rows, columns = (other.rows, other.columns) if apart else (it.rows, it.columns)
    outside, inside = _extents((*it.outer, *rows)), _extents(columns)
    for one in statements[1:] if it.factors else statements:
        kept, reduced = _extents(one.kept), _extents(one.reduced)
        fits = kept == outside | inside or (kept == outside and not it.factors)
        if one.reduction:
            fits = (kept, reduced) == (outside, inside) and not it.factors
        if not fits or not one.initializes:
            return None
    places: dict[str, tuple[Node, ...]] = {}
    for one in statements:
        if places.setdefault(one.result, one.target.operands) != one.target.operands:
            return None
    reads = [read for one in statements for read in reads_in(one.value)]
    is_own = all(read.operands == places.get(read.value, read.operands) for read in reads)
    is_small = len(statements) <= _MOST_STATEMENTS and count(columns) <= _MOST_COLUMNS
    if not is_own or not (is_small or it.factors):
        return None
    return replace(it, statements=statements, rows=rows, columns=columns)


def _extents(group: Iterable[Index]) -> set[tuple[str, int]]:
    return {(it.name, it.extent) for it in group}


def in_parts(it: Step, split: int) -> tuple[Step, Step, Array]:
    """A step that computes parts of the reduction, one that joins them, and the array of parts."""
    one, *ends = it.statements
    part = PART._replace(extent=split)
    shape = (split, *(index.extent for index in one.kept))
    strides = tuple(count(one.kept[at:]) for at in range(len(shape)))
    names = tuple(Node("name", index.name) for index in (part, *one.kept))
    read = Node("read", PARTS, operands=names)
    first = one._replace(target=read, initializes=True)
    second = one._replace(value=read, reduced=(part,))
    return (
        replace(it, statements=(first,), stored=frozenset({PARTS})),
        Step((second, *ends), one.kept, (part,), stored=it.stored),
        Array("float32", shape, strides),
    )
