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
# Rows times trees that are taken at a time, so that their state stays in the caches.
_TAKEN = 1 << 15
# Levels after which what has reached a leaf is left out.
_LEVELS_BETWEEN = 4

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
    features, splits, is_missing_true : ndarray
    ends : ndarray of int
        Of each node where it goes on from the false and from the true end; leaves end in
        themselves.
    roots : ndarray of int
    levels : int
        The comparisons of the longest path.
    """

    features: Array
    splits: Array
    is_missing_true: Array
    ends: Array
    roots: Array
    levels: int


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
    ends = np.stack([np.concatenate([false, ends_true]), true], axis=1)
    known = Trees(read, alone, missing, ends, roots, 0)
    return known._replace(levels=_levels(known))


def _levels(trees: Trees) -> int:
    """How many comparisons there are on the longest path; refuses paths that do not end."""
    at, count = np.unique(trees.roots), 0
    while True:
        at = at[(trees.ends[at] != at[:, None]).any(axis=1)]
        if not at.size:
            return count
        count += 1
        if count > min(MOST_LEVELS, len(trees.ends)):
            raise RefusedError("nodes of a tree lead back to themselves, expected paths to leaves")
        at = np.unique(trees.ends[at])


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


@callee("tree_leaves", "leaves are constant but for steps")
def tree_leaves(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Of every row, and every tree, the node where its path ends."""
    x, features, splits, missing, ends, roots = arrays
    leaves = np.empty((x.shape[0], roots.size), np.int64)
    kept = missing if missing.any() else None
    tables = (features, splits, kept, ends.reshape(-1))
    step = max(1, _TAKEN // max(1, roots.size))
    for start in range(0, x.shape[0], step):
        rows = x[start : start + step]
        leaves[start : start + step] = _ends_of(rows, tables, roots, attributes["levels"])
    return [leaves]


def _ends_of(x: Array, tables: tuple[Any, ...], roots: Array, levels: int) -> Array:
    """The same of few rows: a tree after the other, so that its nodes are near each other."""
    features, splits, missing, ends = tables
    flat = x.reshape(-1)
    found = np.repeat(roots, x.shape[0])
    at, going = found, None
    start = np.tile(np.arange(x.shape[0]) * x.shape[1], roots.size)
    for level in range(levels):
        values = flat.take(start + features.take(at))
        is_true = values <= splits.take(at)
        if missing is not None:
            is_true |= (values != values) & missing.take(at)
        at = ends.take(2 * at + is_true)
        if level % _LEVELS_BETWEEN == _LEVELS_BETWEEN - 1 and level < levels - 1:
            left = np.flatnonzero(ends.take(2 * at) != at)
            if 2 * left.size < at.size:
                if going is None:
                    found, going = at, left
                else:
                    found[going] = at
                    going = going[left]
                at, start = at[left], start[left]
    if going is None:
        found = at
    else:
        found[going] = at
    return found.reshape(roots.size, x.shape[0]).T
