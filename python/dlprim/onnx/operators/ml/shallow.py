"""Shallow trees as products: all comparisons of a tree at once, then which leaf they all lead to.

A leaf is reached where every node above it goes its way. With 1 for comparisons that hold, 0 for
others, and 1 or -1 for the way from each node to each leaf, a product counts them: it is the number
of ends that have to be true just where all are as they have to be. For few nodes that is less work
than a look at one node after the other, and all of it runs in generated code.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Array, Value
from dlprim.graph.room import MOST_FOLDED_BYTES
from dlprim.onnx.operators.ml.trees import Trees

# Comparisons times leaves of a tree; beyond, products take longer than levels.
MOST_WAYS = 1024
X, Y, Z = operand(0), operand(1), operand(2)

Ways = tuple[tuple[int, int], ...]


class Shallow(NamedTuple):
    """Trees side by side, filled up to as many comparisons and leaves as the largest has.

    Attributes
    ----------
    compared : ndarray of int (trees, comparisons)
        Nodes.
    ways : ndarray (trees, comparisons, leaves)
    wanted : ndarray (trees, leaves)
        How many ends have to be true.
    leaves : ndarray of int (trees, leaves)
        Nodes, -1 where there is none.
    """

    compared: Array
    ways: Array
    wanted: Array
    leaves: Array


def shallow(trees: Trees) -> Shallow | None:
    """The trees so, None where one of them is not shallow."""
    ends = trees.ends.tolist()
    found = []
    for root in trees.roots.tolist():
        listed = _listed(ends, root)
        if listed is None:
            return None
        found.append(listed)
    comparisons = max([1, *(len(inner) for inner, _ in found)])
    leaves = max(len(ways) for _, ways in found)
    shape = (len(found), comparisons, leaves)
    if comparisons * leaves > MOST_WAYS or 4 * np.prod(shape) > MOST_FOLDED_BYTES:
        return None
    made = Shallow(
        np.zeros(shape[:2], np.int64),
        np.zeros(shape, np.float32),
        np.full((len(found), leaves), 0.5, np.float32),  # which no count is
        np.full((len(found), leaves), -1),
    )
    for tree, (inner, ways) in enumerate(found):
        made.compared[tree, : len(inner)] = inner
        for at, (leaf, way) in enumerate(ways):
            made.leaves[tree, at] = leaf
            made.wanted[tree, at] = sum(end > 0 for _, end in way)
            for place, end in way:
                made.ways[tree, place, at] = end
    return made


def _listed(ends: list[list[int]], root: int) -> tuple[list[int], list[tuple[int, Ways]]] | None:
    """The nodes that compare, and the way to every leaf: places of nodes, and 1 or -1."""
    inner: list[int] = []
    leaves: list[tuple[int, Ways]] = []
    stack: list[tuple[int, Ways]] = [(root, ())]
    while stack:
        node, way = stack.pop()
        false, true = ends[node]
        if false == node == true:
            leaves.append((node, way))
            continue
        place = len(inner)
        inner.append(node)
        if len(inner) * len(leaves) > MOST_WAYS or len(inner) > MOST_WAYS:
            return None
        stack += [(true, (*way, (place, 1))), (false, (*way, (place, -1)))]
    return inner, leaves


def reached(build: Builder, x: Value, trees: Trees, made: Shallow) -> Value:
    """1 for each leaf that each row reaches, 0 for others: (trees times leaves, rows)."""
    count, comparisons, leaves = made.ways.shape
    nodes, rows = made.compared.reshape(-1), x.shape[0]
    columns = build.transpose(x, (1, 0))
    taken = build.gather(columns, build.constant(trees.features[nodes]), 0)
    operands = [taken, build.constant(trees.splits[nodes, None])]
    holds: Expression = ("less_equal", X, Y)
    if trees.is_missing_true[nodes].any():
        marks = trees.is_missing_true[nodes, None].astype(np.float32)
        operands.append(build.constant(marks))
        holds = ("or", holds, ("and", ("is_nan", X), ("greater", Z, number(0.0))))
    compared = build.map(("where", holds, number(1.0), number(0.0)), *operands, dtype=np.float32)
    compared = build.reshape(compared, (count, comparisons, rows))
    ways = np.ascontiguousarray(made.ways.transpose(0, 2, 1))
    counted = build.matmul(build.constant(ways), compared)
    is_reached = ("where", ("equal", X, Y), number(1.0), number(0.0))
    wanted = build.constant(made.wanted[..., None])
    hits = build.map(is_reached, counted, wanted, dtype=np.float32)
    return build.reshape(hits, (count * leaves, rows))


def weights_of(made: Shallow, table: Any) -> Array:
    """What the leaves give, of what all nodes do."""
    given = np.where(made.leaves[..., None] < 0, 0, table[made.leaves])
    return np.ascontiguousarray(given.reshape(-1, table.shape[1]).T, np.float32)
