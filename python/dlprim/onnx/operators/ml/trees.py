"""Ensembles of trees as flat arrays, whatever attributes they are written in.

Every comparison becomes "at most the split": the others are it with both ends changed, or two of
them. So one loop over levels goes through all trees for all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dlprim.graph.graph import Array
from dlprim.graph.operators.operator import Arrays, Attributes, callee
from dlprim.onnx.registry import RefusedError

# Of a path from a root to a leaf.
MOST_LEVELS = 1 << 16
_MISSING = np.int32(-(1 << 31))  # the bit of a feature

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")


class Nodes(NamedTuple):
    """Nodes as files have them, leaves among them, with places of nodes for their ends.

    Attributes
    ----------
    modes : ndarray of int
        Places in MODES, and -1 for leaves.
    features, splits, is_missing_true : ndarray
    true, false : ndarray of int
        Where it goes on.
    """

    modes: Array
    features: Array
    splits: Array
    is_missing_true: Array
    true: Array
    false: Array


class Trees(NamedTuple):
    """Nodes of one kind.

    Attributes
    ----------
    nodes : ndarray
        As `node_type` says; leaves end in themselves.
    roots : ndarray of int32
    """

    nodes: Array
    roots: Array


def node_type(dtype: Any) -> np.dtype[Any]:
    """A node in memory, for features of a dtype, as the core reads it.

    The highest bit of a feature says that what is no number goes to the true end.
    """
    fields = [("split", dtype), ("feature", np.int32), ("ends", np.int32, (2,))]
    return np.dtype(fields, align=True)


def trees_of(nodes: Nodes, roots: Array, features: int, dtype: Any) -> Trees:
    """Trees for rows of so many features of a dtype.

    Raises
    ------
    RefusedError
        Where nodes, roots or features are outside of what there is, or paths do not end.
    """
    count, inner = len(nodes.modes), nodes.modes >= 0
    places = np.concatenate([nodes.true[inner], nodes.false[inner], roots])
    if places.size and (places.min() < 0 or places.max() >= count):
        raise RefusedError(
            f"ends of nodes are {places.min()} to {places.max()}, expected in {count}"
        )
    read = nodes.features[inner]
    if read.size and (read.min() < 0 or read.max() >= features):
        raise RefusedError(
            f"features {read.min()} to {read.max()} are asked for, expected 0 to {features - 1}"
        )
    splits = nodes.splits.astype(dtype)
    true, false = nodes.true.copy(), nodes.false.copy()
    missing = nodes.is_missing_true.astype(bool)
    itself = np.arange(count)
    true[~inner], false[~inner], missing[~inner] = itself[~inner], itself[~inner], False

    def is_(*names: str) -> Array:
        return np.isin(nodes.modes, [MODES.index(it) for it in names])

    with np.errstate(all="ignore"):
        below = np.nextafter(splits, np.array(-np.inf, dtype))
    below[np.isneginf(splits)] = np.nan  # nothing is less
    swapped = is_("GTE", "GT", "NEQ")
    true[swapped], false[swapped] = false[swapped], true[swapped]
    # What is no number is false to all but NEQ, which are at their true ends by now.
    missing[swapped & ~is_("NEQ")] ^= True
    missing[is_("NEQ")] = False
    alone = np.where(is_("LT", "GTE"), below, splits)
    # Equal is: at most the split, and then not at most what is below it.
    equal = np.flatnonzero(is_("EQ", "NEQ"))
    second = count + np.arange(equal.size)
    more = (nodes.features[equal], below[equal], np.zeros(equal.size, bool), false[equal])
    ends_true = true[equal]
    true[equal] = second
    joined = zip([nodes.features * inner, alone, missing, true], more, strict=True)
    read, alone, missing, true = (np.concatenate(pair) for pair in joined)
    made = np.zeros(true.size, node_type(dtype))
    made["split"], made["ends"][:, 1] = alone, true
    made["ends"][:, 0] = np.concatenate([false, ends_true])
    made["feature"] = read | np.where(missing, _MISSING, 0)
    ends_there = is_leaf(made)
    made["split"][ends_there], made["feature"][ends_there] = np.nan, 0
    _require_ends(made, roots)
    return Trees(made, roots.astype(np.int32))


def is_leaf(nodes: Array) -> Array:
    """Which nodes end in themselves."""
    leaves: Array = (nodes["ends"] == np.arange(nodes.size)[:, None]).all(axis=1)
    return leaves


def _require_ends(nodes: Array, roots: Array) -> None:
    """Refuses paths that do not end."""
    at, count, ends_there = np.unique(roots), 0, is_leaf(nodes)
    while True:
        at = at[~ends_there[at]]
        if not at.size:
            return
        count += 1
        if count > min(MOST_LEVELS, nodes.size):
            raise RefusedError("nodes of a tree lead back to themselves, expected paths to leaves")
        at = np.unique(nodes["ends"][at])


def with_members(nodes: Nodes, sets: Sequence[Sequence[float]]) -> Nodes:
    """Nodes that ask for a member of a set, as one node for each member."""
    asking = np.flatnonzero(nodes.modes == MODES.index("MEMBER"))
    modes = nodes.modes.copy()
    modes[asking] = MODES.index("EQ")
    splits, false = nodes.splits.copy(), nodes.false.copy()
    copied: list[int] = []
    values: list[float] = []
    onward: list[int] = []
    count = len(modes)
    for place, members in zip(asking.tolist(), sets, strict=True):
        first, *others = members or [np.nan]
        splits[place] = first
        last = false[place]
        if others:
            false[place] = count + len(values)
        for number, value in enumerate(others):
            copied.append(place)
            values.append(value)
            onward.append(last if number == len(others) - 1 else count + len(values))
    columns = [
        np.concatenate([it, it[copied]]) for it in nodes._replace(modes=modes, splits=splits)
    ]
    columns[2][count:] = values
    columns[5] = np.concatenate([false, np.array(onward, false.dtype)])
    return Nodes(*columns)


# ---------------------------------------------------------------- a run


@callee("tree_sums", "leaves are constant but for steps")
def tree_sums(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Of every row what the leaves of all trees give to each output, put together.

    Between its starts a leaf has outputs and numbers. With a second result, 1 where any has one.
    """
    x, words, roots, starts, outputs, numbers = arrays
    nodes = words.view(node_type(x.dtype)).reshape(-1)
    shape = attributes["results"][0][0]
    function, limit = _AGGREGATES[attributes["aggregate"]]
    total = np.full(shape, limit, np.float64)
    is_there = np.zeros(shape, bool)
    rows = np.arange(x.shape[0])
    for root in roots:
        leaf = _ends_of(x, nodes, root)
        counts = starts[leaf + 1] - starts[leaf]
        for more in range(counts.max(initial=0)):
            row = rows[counts > more]
            place = starts[leaf[row]] + more
            at = row, outputs[place]
            total[at] = function(total[at], numbers[place])
            is_there[at] = True
    found = [np.where(is_there, total, 0), is_there]
    return [it.astype(x.dtype) for it in found[: len(attributes["results"])]]


_AGGREGATES: tuple[tuple[Any, float], ...] = (
    (np.add, 0.0),
    (np.minimum, np.inf),
    (np.maximum, -np.inf),
)


def _ends_of(x: Array, nodes: Array, root: int) -> Array:
    """The leaf of each row in a tree."""
    rows, at = np.arange(x.shape[0]), np.full(x.shape[0], root)
    while True:
        node = nodes[at]
        values = x[rows, node["feature"] & ~_MISSING]
        is_true = (values <= node["split"]) | ((values != values) & (node["feature"] < 0))
        onward = node["ends"][rows, is_true.astype(int)]
        if np.array_equal(onward, at):
            return at
        at = onward
