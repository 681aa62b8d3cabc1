"""A definition as the parser has read it, with the extents of its indices: what is mapped to a GPU.

Sizes are numbers by now, so that nearly every place of an array is a sum of indices times numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, NamedTuple

from dlprim import _core

FLOATS = ("float32", "bfloat16", "float16")
BYTES = {"int8": (-128, 127), "uint8": (0, 255)}
PLACES = ("int32", "int64")


class Array(NamedTuple):
    """How elements lie; of a batch, ``entry`` is a text that says where number {} begins."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    entry: str = ""

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def span(self) -> int:
        """Elements from the first to the last one."""
        return sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))


class Node(NamedTuple):
    """A number, the name of an index, a read with its places, or the call of a function."""

    kind: str
    value: Any
    may_lie_outside: bool = False
    operands: tuple[Node, ...] = ()


class Index(NamedTuple):
    name: str
    extent: int


class Statement(NamedTuple):
    target: Node
    reduction: str  # "", "sum", "product", "max" or "min"
    initializes: bool
    value: Node
    kept: tuple[Index, ...]
    reduced: tuple[Index, ...]

    @property
    def result(self) -> str:
        return str(self.target.value)


def program_of(
    definition: _core.Definition, shapes: Mapping[str, tuple[int, ...]], given: Mapping[str, int]
) -> tuple[list[Statement], dict[str, tuple[int, ...]]]:
    """The statements, and the shapes of all arrays; ValueError where these do not fit."""
    statements, found, sizes = _core.bound_trees(definition, shapes, given)

    def tree(it: Any) -> Node:
        kind, value, may_lie_outside, operands = it
        if kind == "name" and value in sizes:
            return Node("number", sizes[value])
        if kind == "name" and value in found:
            kind = "read"  # of a scalar
        return Node(kind, value, may_lie_outside, tuple(map(tree, operands)))

    def statement(target: Any, reduction: str, initializes: bool, value: Any, at: Any) -> Statement:
        kept, reduced = (
            tuple(Index(*it[:2]) for it in at if it[2] == way) for way in (False, True)
        )
        return Statement(tree(target), reduction, initializes, tree(value), kept, reduced)

    return [statement(*it) for it in statements], {it: tuple(found[it]) for it in found}


def reads_in(node: Node) -> list[Node]:
    below = [read for operand in node.operands for read in reads_in(operand)]
    return [node, *below] if node.kind == "read" else below


def count(group: Iterable[Index]) -> int:
    return prod(it.extent for it in group)


def affine(node: Node) -> tuple[dict[str, int], int] | None:
    """Factors of indices and a constant; None where it is no such sum."""
    if node.kind == "number":
        return ({}, node.value) if isinstance(node.value, int) else None
    if node.kind == "name":
        return {node.value: 1}, 0
    parts = [affine(it) for it in node.operands]
    if node.kind != "call" or node.value not in ("+", "-", "*") or None in parts:
        return None
    (left, at), (right, other) = [({}, 0), *parts][-2:]  # type: ignore[misc]
    if node.value == "*":
        if left and right:
            return None
        factor, terms = (other, left) if left else (at, right)
        return {name: factor * it for name, it in terms.items()}, at * other
    sign = 1 if node.value == "+" else -1
    names = dict.fromkeys([*left, *right])
    return {it: left.get(it, 0) + sign * right.get(it, 0) for it in names}, at + sign * other


def steps_of(read: Node, array: Array) -> dict[str, int] | None:
    """Elements from one value of each index to the next; None where a place is read."""
    made: dict[str, int] = {}
    for place, by in zip(read.operands, array.strides, strict=True):
        terms = affine(place)
        if terms is None:
            return None
        for name, factor in terms[0].items():
            made[name] = made.get(name, 0) + factor * by
    return made
