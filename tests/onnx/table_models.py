"""Models of ai.onnx.ml, and what they are to compute, written out in plain loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, ValueInfoProto, helper

import dlprim.onnx

ML = "ai.onnx.ml"
COMPARED = {
    "BRANCH_LEQ": np.less_equal,
    "BRANCH_LT": np.less,
    "BRANCH_GTE": np.greater_equal,
    "BRANCH_GT": np.greater,
    "BRANCH_EQ": np.equal,
    "BRANCH_NEQ": np.not_equal,
}


def model(
    nodes: Sequence[Any], inputs: Mapping[str, Any], outputs: Sequence[str], opset: int = 3
) -> Any:
    """Of nodes, for inputs like these; outputs say no type."""
    values = [
        helper.make_tensor_value_info(name, _code(array), [None] * array.ndim)
        for name, array in inputs.items()
    ]
    results = [ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "tables", values, results)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _code(array: np.ndarray) -> int:
    if array.dtype == object:
        return TensorProto.STRING
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    return helper.make_node(op, inputs, outputs, domain=ML, **attributes)


def run(nodes: Any, inputs: dict[str, np.ndarray], outputs: str = "y", opset: int = 3) -> list[Any]:
    made = model(nodes, inputs, outputs.split(), opset)
    return list(dlprim.onnx.load(made).run(inputs))


def softmax(x: np.ndarray) -> np.ndarray:
    power = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(power / power.sum(axis=1, keepdims=True))


class Forest(NamedTuple):
    """Lists of nodes as attributes have them, and the leaves: trees and numbers."""

    nodes: dict[str, list[Any]]
    leaves: list[tuple[int, int]]


def forest(random: np.random.Generator, trees: int, depth: int, features: int) -> Forest:
    """Drawn trees with comparisons of every kind."""
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    columns: dict[str, list[Any]] = {f"nodes_{it}": [] for it in names}
    columns["nodes_missing_value_tracks_true"] = []
    leaves = []
    for tree in range(trees):
        rows: list[list[Any]] = []

        def grow(level: int, tree: int = tree, rows: list[list[Any]] = rows) -> int:
            number = len(rows)
            rows.append([tree, number, 0, 0.0, "LEAF", 0, 0, 0])
            if level == depth or random.random() < 0.1:
                leaves.append((tree, number))
                return number
            kind, at = random.choice(list(COMPARED)), random.integers(features)
            rows[number][2:5] = int(at), float(random.integers(-2, 3)), str(kind)
            rows[number][7] = int(random.integers(2))
            rows[number][5:7] = grow(level + 1), grow(level + 1)
            return number

        grow(0)
        for row in rows:
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
    return Forest(columns, leaves)


def leaf_of(nodes: Mapping[str, list[Any]], tree: int, row: np.ndarray) -> int:
    """The number of the leaf where a row ends."""
    places = {
        number: place
        for place, number in enumerate(nodes["nodes_nodeids"])
        if nodes["nodes_treeids"][place] == tree
    }
    at = places[0]
    while nodes["nodes_modes"][at] != "LEAF":
        value = row[nodes["nodes_featureids"][at]]
        is_true = COMPARED[nodes["nodes_modes"][at]](value, nodes["nodes_values"][at])
        is_true |= bool(np.isnan(value) and nodes["nodes_missing_value_tracks_true"][at])
        at = places[nodes["nodes_truenodeids" if is_true else "nodes_falsenodeids"][at]]
    return int(nodes["nodes_nodeids"][at])


Weights = Sequence[tuple[tuple[int, int], int, float]]


def sums(made: Forest, weights: Weights, x: np.ndarray, targets: int, how: str) -> np.ndarray:
    """Of each row and target, the weights of all leaves where it ends put together."""
    functions = {"SUM": np.sum, "MIN": np.min, "MAX": np.max}
    trees = sorted(set(made.nodes["nodes_treeids"]))
    result = np.zeros((len(x), targets))
    for place, row in enumerate(x):
        ends = {(tree, leaf_of(made.nodes, tree, row)) for tree in trees}
        for target in range(targets):
            given = [w for leaf, to, w in weights if leaf in ends and to == target]
            if how == "AVERAGE":
                result[place, target] = np.sum(given) / len(trees)
            elif given:
                result[place, target] = functions[how](given)
    return result


def listed(weights: Weights, kind: str) -> dict[str, list[Any]]:
    """Weights as attributes of targets or classes."""
    return {
        f"{kind}_treeids": [leaf[0] for leaf, _, _ in weights],
        f"{kind}_nodeids": [leaf[1] for leaf, _, _ in weights],
        f"{kind}_ids": [to for _, to, _ in weights],
        f"{kind}_weights": [weight for _, _, weight in weights],
    }
