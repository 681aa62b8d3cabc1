"""Ensembles of trees: what leaves say of targets and classes, put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import operand
from dlprim.graph.graph import Array, Value
from dlprim.onnx.operators.ml.features import ML, table_of
from dlprim.onnx.operators.ml.scores import (
    Labels,
    of_two_classes,
    transform_named,
    transform_numbered,
    transformed,
    transformed_alone,
)
from dlprim.onnx.operators.ml.trees import (
    MODES,
    Nodes,
    Trees,
    is_leaf,
    trees_of,
    with_members,
)
from dlprim.onnx.registry import RefusedError, operator

X, Y = operand(0), operand(1)
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


class Weights(NamedTuple):
    """What leaves give: for each weight the node, the target and the number."""

    nodes: Array
    targets: Array
    numbers: Array


class Forest(NamedTuple):
    """Nodes, the roots of trees among them, and weights of leaves for some targets."""

    nodes: Nodes
    roots: Array
    weights: Weights
    targets: int


# ---------------------------------------------------------------- sums over trees


class _Leaves(NamedTuple):
    """What nodes give: between starts, outputs and numbers; whether all leaves give to all."""

    starts: Array
    outputs: Array
    numbers: Array
    are_full: bool


def _leaves(forest: Forest, trees: Trees, dtype: Any) -> _Leaves:
    nodes, targets, numbers = forest.weights
    if targets.size and (targets.min() < 0 or targets.max() >= forest.targets):
        raise RefusedError(
            f"weights are for {targets.min()} to {targets.max()}, expected 0 to "
            f"{forest.targets - 1}"
        )
    count = trees.nodes.size
    cells, place = np.unique(nodes * forest.targets + targets, return_inverse=True)
    sums = np.bincount(place, numbers, cells.size)
    counts = np.bincount(cells // forest.targets, minlength=count)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    are_full = bool((counts[is_leaf(trees.nodes)] == forest.targets).all())
    outputs = (cells % forest.targets).astype(np.int32)
    return _Leaves(starts, outputs, sums.astype(dtype), are_full)


def _aggregated(
    build: Builder, x: Value, forest: Forest, aggregate: str
) -> tuple[Value, Value | None]:
    """A number for each row and target; and which are there, where that differs among leaves."""
    dtype = np.dtype(np.float64 if x.dtype.name == "float64" else np.float32)
    trees = trees_of(forest.nodes, forest.roots, x.shape[1], dtype)
    leaves = _leaves(forest, trees, dtype)
    shape = (x.shape[0], forest.targets)
    words = trees.nodes.view(np.int32).reshape(trees.nodes.size, -1)
    constants = (words, trees.roots, *leaves[:3])
    results = [(shape, dtype)] * (1 if leaves.are_full else 2)
    function = {"MIN": 1, "MAX": 2}.get(aggregate, 0)
    operands = [build.cast(x, dtype), *map(build.constant, constants)]
    result, *there = build.call("tree_sums", operands, results, aggregate=function)
    if aggregate == "AVERAGE":
        count = np.array(len(forest.roots), dtype)
        result = build.apply("divide", result, build.constant(count))
    return result, there[0] if there else None


def _with_base(build: Builder, sums: Value, base: Array) -> Value:
    """The base values of all targets added, where there are any."""
    if not base.size:
        return sums
    if base.size != sums.shape[1]:
        raise RefusedError(f"base_values has {base.size} numbers, expected {sums.shape[1]}")
    return build.apply("add", sums, build.constant(base.reshape(-1).astype(sums.dtype)))


def _regressed(
    build: Builder, x: Value, forest: Forest, how: tuple[str, str], base: Array
) -> Value:
    aggregate, transform = how
    sums, _ = _aggregated(build, x, forest, aggregate)
    return transformed_alone(build, _with_base(build, sums, base), transform)


# ---------------------------------------------------------------- nodes by numbers of trees


def _column(attributes: Mapping[str, Any], name: str, count: int, default: Any = None) -> Array:
    """A list of an element for each node, or of each weight."""
    given = attributes.get(name)
    if given is None or not len(given):
        if default is None:
            raise RefusedError(f"{name} is left out, expected a list")
        return np.full(count, default)
    array = np.asarray(given).reshape(-1)
    if array.size != count:
        raise RefusedError(f"{name} has {array.size} elements, expected {count}")
    return array


def _numbers(attributes: Mapping[str, Any], name: str) -> Array:
    """A list of numbers, which may be a tensor instead."""
    tensor = attributes.get(f"{name}_as_tensor")
    given = attributes.get(name) if tensor is None else tensor
    array = np.asarray(() if given is None else given)
    if array.dtype.kind not in "fiu":
        raise RefusedError(f"{name} is of {array.dtype}, expected numbers")
    return array.reshape(-1).astype(np.float64 if array.dtype.name == "float64" else np.float32)


class _Places:
    """Where a node is that has a number in a tree."""

    def __init__(self, trees: Array, numbers: Array) -> None:
        self._order = np.lexsort((numbers, trees))
        self._trees, self._numbers = trees[self._order], numbers[self._order]
        same = (self._trees[1:] == self._trees[:-1]) & (self._numbers[1:] == self._numbers[:-1])
        if same.any():
            raise RefusedError("a node is listed twice, expected each number of a tree once")

    def of(self, trees: Array, numbers: Array) -> Array:
        """Places in the lists; refuses nodes that are not there."""
        pair = [("tree", np.int64), ("node", np.int64)]
        known = np.empty(self._trees.size, pair)
        known["tree"], known["node"] = self._trees, self._numbers
        wanted = np.empty(trees.size, pair)
        wanted["tree"], wanted["node"] = trees, numbers
        found = np.minimum(np.searchsorted(known, wanted), known.size - 1)
        if not np.array_equal(known[found], wanted):
            raise RefusedError("a node or a weight names a node that no tree has")
        return self._order[found]


def _forest_of(attributes: Mapping[str, Any], kind: str, targets: int) -> Forest:
    """What the operators before opset 5 list: nodes by tree and number, weights in the same way."""
    trees = np.asarray(attributes.get("nodes_treeids") or (), np.int64)
    count = trees.size
    if not count or targets < 1:
        raise RefusedError(f"there are {count} nodes and {targets} targets, expected some of each")
    names = _column(attributes, "nodes_modes", count)
    known = [f"BRANCH_{it}" for it in MODES[:-1]]
    others = set(names.tolist()) - {*known, "LEAF"}
    if others:
        raise RefusedError(f"nodes_modes has {sorted(others)[:4]}, expected LEAF or {known}")
    modes = np.full(count, -1)
    for place, name in enumerate(known):
        modes[names == name] = place
    numbers = _column(attributes, "nodes_nodeids", count)
    places, inner = _Places(trees, numbers), modes >= 0
    ends = []
    for name in ("nodes_truenodeids", "nodes_falsenodeids"):
        end = np.arange(count)
        end[inner] = places.of(trees[inner], _column(attributes, name, count)[inner])
        ends.append(end)
    splits = _numbers(attributes, "nodes_values")
    if splits.size != count:
        raise RefusedError(f"nodes_values has {splits.size} numbers, expected {count}")
    missing = _column(attributes, "nodes_missing_value_tracks_true", count, 0)
    features = _column(attributes, "nodes_featureids", count)
    nodes = Nodes(modes, features, splits, missing, ends[0], ends[1])
    ids = _column(attributes, f"{kind}_ids", len(attributes.get(f"{kind}_ids") or ()))
    weights = _numbers(attributes, f"{kind}_weights")
    if weights.size != ids.size:
        raise RefusedError(f"{kind}_weights has {weights.size} numbers, expected {ids.size}")
    listed = [_column(attributes, f"{kind}_{it}", ids.size) for it in ("treeids", "nodeids")]
    return Forest(nodes, _roots(trees, nodes), Weights(places.of(*listed), ids, weights), targets)


def _roots(trees: Array, nodes: Nodes) -> Array:
    """Of each tree, in the order of the list, the node to which no other leads."""
    inner = nodes.modes >= 0
    is_end = np.zeros(trees.size, bool)
    is_end[nodes.true[inner]] = is_end[nodes.false[inner]] = True
    free = np.flatnonzero(~is_end)
    known, counts = np.unique(trees, return_counts=True)
    alone = known[counts == 1]  # trees of a leaf
    is_one = np.array_equal(np.sort(trees[free]), known)
    if not is_one or not (inner[free] | np.isin(trees[free], alone)).all():
        raise RefusedError("a tree has not one root, expected one node to which no other leads")
    return free


# ---------------------------------------------------------------- operators


def _regressor(build: Builder, x: Value, attributes: Mapping[str, Any]) -> Value:
    aggregate = attributes["aggregate_function"]
    if aggregate not in _AGGREGATES:
        raise RefusedError(f"aggregate_function is '{aggregate}', expected one of {_AGGREGATES}")
    how = aggregate, transform_named(attributes["post_transform"])
    forest = _forest_of(attributes, "target", attributes["n_targets"])
    y = _regressed(build, table_of(x, build), forest, how, _numbers(attributes, "base_values"))
    return build.cast(y, np.float32)


def _classifier(build: Builder, x: Value, attributes: Mapping[str, Any]) -> tuple[Value, Value]:
    """Labels and scores; of two classes only one may have weights."""
    labels = Labels(attributes["classlabels_int64s"], attributes["classlabels_strings"])
    transform = transform_named(attributes["post_transform"])
    forest, table = _forest_of(attributes, "class", labels.count), table_of(x, build)
    base, given = _numbers(attributes, "base_values"), np.unique(forest.weights.targets)
    is_share = bool((forest.weights.numbers >= 0).all())
    if labels.count <= 2 and given.tolist() == [0] and base.size < 2:
        weights = forest.weights._replace(targets=0 * forest.weights.targets)
        score, _ = _aggregated(build, table, forest._replace(weights=weights, targets=1), "SUM")
        score = build.cast(_with_base(build, score, base), np.float32)
        threshold = 0.5 if is_share and labels.count == 2 else 0.0
        label = labels.or_numbers().of_above(build, score, threshold)
        if labels.count == 1:
            return label, transformed_alone(build, score, transform)
        return label, of_two_classes(build, score, transform, is_share)
    sums, there = _aggregated(build, table, forest, "SUM")
    if labels.count == 2 and given.tolist() == [1]:
        score = build.slice(sums, (0, 1), (sums.shape[0], 1), (1, 1))
        label = labels.of_above(build, score, 0.5 if is_share else 0.0)
        return label, transformed(build, build.cast(sums, np.float32), transform)
    scores = _with_base(build, sums, base)
    ranked = scores
    if there is not None and not base.size and not is_share:
        lowest = ("where", ("greater", Y, ("number", 0.0)), X, ("number", -np.inf))
        ranked = build.map(lowest, scores, there)
    label = labels.of_highest(build, ranked)
    return label, transformed(build, build.cast(scores, np.float32), transform)


@operator("TreeEnsembleRegressor", domain=ML)
def regressor(
    build: Builder,
    x: Value,
    *,
    aggregate_function: str = "SUM",
    base_values: tuple[float, ...] = (),
    base_values_as_tensor: Array | None = None,
    n_targets: int = 1,
    nodes_falsenodeids: tuple[int, ...] = (),
    nodes_featureids: tuple[int, ...] = (),
    nodes_hitrates: tuple[float, ...] = (),
    nodes_hitrates_as_tensor: Array | None = None,
    nodes_missing_value_tracks_true: tuple[int, ...] = (),
    nodes_modes: tuple[str, ...] = (),
    nodes_nodeids: tuple[int, ...] = (),
    nodes_treeids: tuple[int, ...] = (),
    nodes_truenodeids: tuple[int, ...] = (),
    nodes_values: tuple[float, ...] = (),
    nodes_values_as_tensor: Array | None = None,
    post_transform: str = "NONE",
    target_ids: tuple[int, ...] = (),
    target_nodeids: tuple[int, ...] = (),
    target_treeids: tuple[int, ...] = (),
    target_weights: tuple[float, ...] = (),
    target_weights_as_tensor: Array | None = None,
) -> Value:
    return _regressor(build, x, locals())


@operator("TreeEnsembleClassifier", domain=ML)
def classifier(
    build: Builder,
    x: Value,
    *,
    base_values: tuple[float, ...] = (),
    base_values_as_tensor: Array | None = None,
    class_ids: tuple[int, ...] = (),
    class_nodeids: tuple[int, ...] = (),
    class_treeids: tuple[int, ...] = (),
    class_weights: tuple[float, ...] = (),
    class_weights_as_tensor: Array | None = None,
    classlabels_int64s: tuple[int, ...] = (),
    classlabels_strings: tuple[str, ...] = (),
    nodes_falsenodeids: tuple[int, ...] = (),
    nodes_featureids: tuple[int, ...] = (),
    nodes_hitrates: tuple[float, ...] = (),
    nodes_hitrates_as_tensor: Array | None = None,
    nodes_missing_value_tracks_true: tuple[int, ...] = (),
    nodes_modes: tuple[str, ...] = (),
    nodes_nodeids: tuple[int, ...] = (),
    nodes_treeids: tuple[int, ...] = (),
    nodes_truenodeids: tuple[int, ...] = (),
    nodes_values: tuple[float, ...] = (),
    nodes_values_as_tensor: Array | None = None,
    post_transform: str = "NONE",
) -> tuple[Value, Value]:
    return _classifier(build, x, locals())


def _sets(members: Array | None, asking: int) -> list[list[float]]:
    """The members of each set, which end with what is no number."""
    given = np.asarray(() if members is None else members, np.float64).reshape(-1)
    ends = np.flatnonzero(np.isnan(given))
    if ends.size != asking or (given.size and not np.isnan(given[-1])):
        raise RefusedError(
            f"membership_values has {ends.size} sets, expected one for each of {asking} nodes"
        )
    parts = np.split(given, ends + 1)[:-1] if ends.size else []
    return [part[:-1].tolist() for part in parts]


@operator("TreeEnsemble", since=5, domain=ML)
def tree_ensemble(
    build: Builder,
    x: Value,
    *,
    aggregate_function: int = 1,
    leaf_targetids: tuple[int, ...],
    leaf_weights: Array,
    membership_values: Array | None = None,
    n_targets: int = 1,
    nodes_falseleafs: tuple[int, ...],
    nodes_falsenodeids: tuple[int, ...],
    nodes_featureids: tuple[int, ...],
    nodes_hitrates: Array | None = None,
    nodes_missing_value_tracks_true: tuple[int, ...] = (),
    nodes_modes: Array,
    nodes_splits: Array,
    nodes_truenodeids: tuple[int, ...],
    nodes_trueleafs: tuple[int, ...],
    post_transform: int = 0,
    tree_roots: tuple[int, ...],
) -> Value:
    if not 0 <= aggregate_function < len(_AGGREGATES) or n_targets < 1:
        raise RefusedError(
            f"aggregate_function is {aggregate_function} and n_targets {n_targets}, expected 0 to "
            f"{len(_AGGREGATES) - 1}, and 1 or more"
        )
    how = _AGGREGATES[aggregate_function], transform_numbered(post_transform)
    y = _regressed(build, table_of(x, build), _flat_forest(locals()), how, np.empty(0))
    return build.cast(y, x.dtype)


def _flat_forest(given: Mapping[str, Any]) -> Forest:
    """Ends of nodes are places of nodes, or of leaves, which stand behind the nodes here."""
    count = len(given["nodes_featureids"])
    modes = np.asarray(given["nodes_modes"]).reshape(-1).astype(np.int64)
    if modes.size != count or not count or modes.min() < 0 or modes.max() >= len(MODES):
        raise RefusedError(f"nodes_modes is expected to be {count} numbers, 0 to {len(MODES) - 1}")
    weights, splits = (_numbers(given, name) for name in ("leaf_weights", "nodes_splits"))
    leaves = np.asarray(given["leaf_targetids"], np.int64)
    if not leaves.size or weights.size != leaves.size or splits.size != count:
        raise RefusedError(
            f"leaf_weights has {weights.size} numbers and nodes_splits {splits.size}, expected "
            f"{leaves.size} and {count}"
        )
    behind, itself = np.zeros(leaves.size, np.int64), count + np.arange(leaves.size)
    missing = _column(given, "nodes_missing_value_tracks_true", count, 0)
    columns = [(modes, behind - 1), (_column(given, "nodes_featureids", count), behind)]
    columns += [(splits, behind), (missing, behind)]
    for side in ("true", "false"):
        is_leaf = _column(given, f"nodes_{side}leafs", count) != 0
        ends = _column(given, f"nodes_{side}nodeids", count) + count * is_leaf
        columns.append((ends, itself))
    nodes = Nodes(*(np.concatenate(pair) for pair in columns))
    asking = int((modes == MODES.index("MEMBER")).sum())
    nodes = with_members(nodes, _sets(given["membership_values"], asking))
    roots = np.array(given["tree_roots"], np.int64)
    return Forest(nodes, roots, Weights(itself, leaves, weights), given["n_targets"])
