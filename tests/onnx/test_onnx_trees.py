"""Ensembles of trees against plain loops over their nodes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import dlprim.onnx
from drawing import RNG

pytest.importorskip("onnx.helper", reason="onnx makes the models that are read here")
tables: Any = import_module("table_models")
numpy_helper: Any = import_module("onnx.numpy_helper")
node, run, softmax = tables.node, tables.run, tables.softmax


def table(rows: int, columns: int) -> np.ndarray:
    return RNG.standard_normal((rows, columns)).astype(np.float32)


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_trees_of_every_comparison(how: str, dtype: Any) -> None:
    for trees, depth, targets in ((1, 0, 1), (1, 5, 1), (7, 3, 2), (12, 5, 3)):
        made = tables.forest(RNG, trees, depth, 4)
        x = RNG.integers(-3, 4, (20, 4)).astype(dtype)
        x[RNG.random(x.shape) < 0.1] = np.nan
        weights = [
            (leaf, to, float(np.float32(RNG.standard_normal())))
            for leaf in made.leaves
            for to in range(targets)
        ]
        base = [0.5, -1.0, 2.0][:targets]
        named = {**made.nodes, **tables.listed(weights, "target"), "n_targets": targets}
        node_of = node(
            "TreeEnsembleRegressor", ["x"], ["y"], aggregate_function=how, base_values=base, **named
        )
        (y,) = run([node_of], {"x": x})
        right = tables.sums(made, weights, x, targets, how) + base
        np.testing.assert_allclose(y, right, rtol=1e-4, atol=1e-5)


def test_a_leaf_of_no_finite_number_is_of_its_rows_alone() -> None:
    made = tables.forest(RNG, 3, 3, 4)
    x, numbers = table(40, 4), RNG.random(len(made.leaves)).astype(np.float32)
    numbers[0] = np.inf
    weights = [(leaf, 0, float(it)) for leaf, it in zip(made.leaves, numbers, strict=True)]
    named = {**made.nodes, **tables.listed(weights, "target"), "n_targets": 1}
    (y,) = run([node("TreeEnsembleRegressor", ["x"], ["y"], **named)], {"x": x})
    right = tables.sums(made, weights, x, 1, "SUM")
    assert np.isfinite(right).any()
    np.testing.assert_allclose(y, right, rtol=1e-4, atol=1e-5)


def test_trees_of_several_classes() -> None:
    made, x = tables.forest(RNG, 12, 5, 4), table(50, 4) * 3
    weights = [(leaf, int(RNG.integers(4)), float(RNG.random())) for leaf in made.leaves]
    labels = {"classlabels_strings": ["a", "b", "c", "d"], "post_transform": "SOFTMAX"}
    named = {**made.nodes, **tables.listed(weights, "class"), **labels}
    label, y = run([node("TreeEnsembleClassifier", ["x"], ["l", "y"], **named)], {"x": x}, "l y")
    scores = tables.sums(made, weights, x, 4, "SUM")
    np.testing.assert_allclose(y, softmax(scores), rtol=1e-4)
    second, first = np.sort(scores, axis=1)[:, -2:].T
    is_clear = first - second > 1e-4
    right = np.array(["a", "b", "c", "d"], object)[scores.argmax(axis=1)]
    assert is_clear.sum() > 40
    assert (label == right)[is_clear].all()


@pytest.mark.parametrize("is_share", [True, False])
def test_trees_of_two_classes_have_one_score(is_share: bool) -> None:
    made, x = tables.forest(RNG, 5, 4, 4), table(40, 4) * 3
    draw = RNG.random if is_share else RNG.standard_normal
    weights = [(leaf, 0, float(np.float32(draw() / 4))) for leaf in made.leaves]
    named = {**made.nodes, **tables.listed(weights, "class"), "classlabels_int64s": [3, 8]}
    label, y = run([node("TreeEnsembleClassifier", ["x"], ["l", "y"], **named)], {"x": x}, "l y")
    score = tables.sums(made, weights, x, 1, "SUM")
    first = 1 - score if is_share else -score
    np.testing.assert_allclose(y, np.hstack([first, score]), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(label, np.where(score[:, 0] > 0.5 * is_share, 8, 3))


@pytest.mark.any_level
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes_truenodeids": [0, 0, 0]}, "a tree has not one root, expected one node"),
        ({"nodes_truenodeids": [7, 0, 0]}, "a node that no tree has"),
        ({"nodes_featureids": [9, 0, 0]}, "features 9 to 9 are asked for, expected 0 to 1"),
        ({"nodes_modes": ["BRANCH", "LEAF", "LEAF"]}, "expected LEAF or"),
        ({"nodes_values": [0.5]}, "nodes_values has 1 numbers, expected 3"),
        ({"nodes_nodeids": [0, 1, 1]}, "a node is listed twice"),
        ({"target_ids": [0, 5]}, "weights are for 0 to 5, expected 0 to 0"),
        ({"target_nodeids": [1, 8]}, "a weight names a node that no tree has"),
        ({"base_values": [1.0, 2.0]}, "base_values has 2 numbers, expected 1"),
        ({"aggregate_function": "MEDIAN"}, "aggregate_function is 'MEDIAN', expected one of"),
        ({"post_transform": "TANH"}, "post_transform is 'TANH', expected one of"),
    ],
)
def test_damaged_trees_are_refused(changes: dict[str, Any], message: str) -> None:
    sound = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [1, 0, 0],
        "nodes_values": [0.5, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [1.0, 2.0],
    }
    x = np.float32([[0, 0], [0, 1]])
    (y,) = run([node("TreeEnsembleRegressor", ["x"], ["y"], **sound)], {"x": x})
    np.testing.assert_array_equal(y, [[1], [2]])
    with pytest.raises(dlprim.onnx.ModelError, match=message):
        run([node("TreeEnsembleRegressor", ["x"], ["y"], **sound | changes)], {"x": x})


@pytest.mark.any_level
def test_a_tree_is_a_leaf_or_asks_for_members_of_a_set() -> None:
    """As opset 5 writes it: two nodes, of which the first asks for a member, and four leaves."""
    x = np.array([[1.5, 0], [4, 0], [2, 0], [2, 9], [np.nan, 9]])
    made = node(
        "TreeEnsemble",
        ["x"],
        ["y"],
        n_targets=2,
        aggregate_function=1,
        tree_roots=[0, 2],
        nodes_featureids=[0, 1, 0],
        nodes_modes=numpy_helper.from_array(np.uint8([6, 1, 0])),
        nodes_splits=numpy_helper.from_array(np.array([0, 5.0, 0])),
        nodes_truenodeids=[0, 1, 3],
        nodes_trueleafs=[1, 1, 1],
        nodes_falsenodeids=[1, 2, 3],
        nodes_falseleafs=[0, 1, 1],
        membership_values=numpy_helper.from_array(np.array([1.5, 4, 7, np.nan])),
        leaf_targetids=[0, 1, 0, 1],
        leaf_weights=numpy_helper.from_array(np.array([10.0, 20, 30, 0.5])),
    )
    (y,) = run([made], {"x": x}, opset=5)
    np.testing.assert_array_equal(y, [[10, 0.5], [10, 0.5], [0, 20.5], [30, 0.5], [30, 0.5]])
    assert y.dtype == np.float64
