"""Models of tables: features, linear models, support vectors, labels that are texts."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlprim
import dlprim.onnx
from dlprim.graph.operators.operator import CALLS
from drawing import RNG

pytest.importorskip("onnx.helper", reason="onnx makes the models that are read here")
tables: Any = import_module("table_models")
helper: Any = import_module("onnx.helper")
node, run, softmax = tables.node, tables.run, tables.softmax


def table(rows: int, columns: int) -> np.ndarray:
    return RNG.standard_normal((rows, columns)).astype(np.float32)


def texts(*words: str) -> np.ndarray:
    return np.array(words, object)


# ---------------------------------------------------------------- features


def test_scaler_and_binarizer_take_integers_and_floats() -> None:
    for x in (table(5, 3), np.arange(15).reshape(5, 3)):
        offset, scale = [1.0, -2.0, 0.5], [2.0, 0.25, 3.0]
        (y,) = run([node("Scaler", ["x"], ["y"], offset=offset, scale=scale)], {"x": x})
        np.testing.assert_allclose(y, (x - offset) * np.array(scale), rtol=1e-5, atol=1e-6)
        assert y.dtype == np.float32
        (y,) = run([node("Binarizer", ["x"], ["y"], threshold=0.5)], {"x": x})
        np.testing.assert_array_equal(y, x > 0.5)
        assert y.dtype == x.dtype


def test_rows_are_divided_by_their_length() -> None:
    x = table(7, 30)
    x[3] = 0
    lengths = {"MAX": x.max(axis=1), "L1": np.abs(x).sum(axis=1), "L2": np.linalg.norm(x, axis=1)}
    for norm, length in lengths.items():
        (y,) = run([node("Normalizer", ["x"], ["y"], norm=norm)], {"x": x})
        right = x / np.where(length == 0, 1, length)[:, None]
        np.testing.assert_allclose(y, right, rtol=1e-5)


def test_missing_values_are_filled_in() -> None:
    x = table(6, 4)
    x[1, 2] = x[4, 0] = np.nan
    values = [1.0, 2.0, 3.0, 4.0]
    missing = {"imputed_value_floats": values, "replaced_value_float": float("nan")}
    (y,) = run([node("Imputer", ["x"], ["y"], **missing)], {"x": x})
    np.testing.assert_array_equal(y, np.where(np.isnan(x), np.float32(values), x))
    x = np.array([[1, -7], [-7, 5]])
    missing = {"imputed_value_int64s": [9], "replaced_value_int64": -7}
    (y,) = run([node("Imputer", ["x"], ["y"], **missing)], {"x": x})
    np.testing.assert_array_equal(y, [[1, 9], [9, 5]])


def test_columns_are_put_side_by_side_and_taken() -> None:
    a, b = table(4, 3), np.arange(8).reshape(4, 2)
    joined = node("FeatureVectorizer", ["a", "b"], ["y"], inputdimensions=[2, 3])
    (y,) = run([joined], {"a": a, "b": b})
    np.testing.assert_array_equal(y, np.hstack([a[:, :2], b, np.zeros((4, 1))]).astype(np.float32))
    places = np.array([2, 0])
    taken = node("ArrayFeatureExtractor", ["x", "p"], ["y"])
    for x, right in ((a, a[:, places]), (a[0], a[:1, places])):
        (y,) = run([taken], {"x": x, "p": places})
        np.testing.assert_array_equal(y, right)


# ---------------------------------------------------------------- texts


@pytest.mark.any_level
def test_texts_are_taken_for_numbers_and_back() -> None:
    x = texts("cat", "dog", "emu", "cat").reshape(2, 2)
    keys, values = ["dog", "cat"], [5, 7]
    there = node("LabelEncoder", ["x"], ["y"], keys_strings=keys, values_int64s=values)
    back = node("LabelEncoder", ["y"], ["z"], keys_int64s=values, values_strings=keys)
    y, z = run([there, back], {"x": x}, "y z")
    np.testing.assert_array_equal(y, [[7, 5], [-1, 7]])
    assert z.tolist() == [["cat", "dog"], ["_Unused", "cat"]]
    mapper = node("CategoryMapper", ["x"], ["y"], cats_strings=keys, cats_int64s=values)
    np.testing.assert_array_equal(run([mapper], {"x": x})[0], y)
    encoder = node("LabelEncoder", ["x"], ["y"], classes_strings=keys, default_int64=-3)
    np.testing.assert_array_equal(run([encoder], {"x": x}, opset=1)[0], [[1, 0], [-3, 1]])


@pytest.mark.any_level
def test_numbers_that_are_none_are_keys_too() -> None:
    x = np.float32([1.5, np.nan, 2, -0.0])
    keys, values = [float("nan"), 0.0, 1.5], [3.0, 4.0, 5.0]
    encoder = node("LabelEncoder", ["x"], ["y"], keys_floats=keys, values_floats=values)
    np.testing.assert_array_equal(run([encoder], {"x": x}, opset=4)[0], [5, 3, 0, 4])


@pytest.mark.any_level
def test_categories_become_columns() -> None:
    x = texts("a", "c", "b", "z").reshape(4, 1)
    encoder = node("OneHotEncoder", ["x"], ["y"], cats_strings=["a", "b", "c"])
    (y,) = run([encoder], {"x": x})
    np.testing.assert_array_equal(y[:, 0], np.eye(4, 3, dtype=np.float32)[[0, 2, 1, 3]])
    strict = node("OneHotEncoder", ["x"], ["y"], cats_int64s=[1, 2], zeros=0)
    np.testing.assert_array_equal(run([strict], {"x": np.float32([2.5, 1])})[0], [[0, 1], [1, 0]])
    with pytest.raises(dlprim.onnx.ModelError, match="no category of OneHotEncoder, expected"):
        run([strict], {"x": np.float32([3])})


@pytest.mark.any_level
def test_texts_travel() -> None:
    """Through moves and comparisons, those of the model and those that only the call has."""
    x, other = texts("new", "old", "newer"), texts("old", "old", "newer")
    nodes = [
        helper.make_node("Constant", [], ["c"], value_strings=["old", "known"]),
        helper.make_node("Concat", ["x", "c"], ["y"], axis=0),
        helper.make_node("Equal", ["x", "other"], ["same"]),
        helper.make_node("Where", ["same", "x", "other"], ["z"]),
    ]
    for given in (x, x.astype(str)):
        made = tables.model(nodes, {"x": x, "other": other}, ["y", "same", "z"])
        y, same, z = dlprim.onnx.load(made)(given, other)
        assert y.tolist() == ["new", "old", "newer", "old", "known"]
        np.testing.assert_array_equal(same, [False, True, True])
        assert z.tolist() == other.tolist()
        assert y.dtype == object


@pytest.mark.any_level
@pytest.mark.parametrize(
    ("op", "message"),
    [("Cast", "input 0 is of string, expected one of"), ("Neg", "is of string, expected one of")],
)
def test_what_computes_refuses_texts(op: str, message: str) -> None:
    named = {"to": 1} if op == "Cast" else {}
    with pytest.raises(dlprim.onnx.ModelError, match=message):
        run([helper.make_node(op, ["x"], ["y"], **named)], {"x": texts("1", "2")})


@pytest.mark.any_level
@pytest.mark.parametrize("given", [np.zeros(2), np.array([1, "a"], object), np.array([b"a", b"b"])])
def test_inputs_of_texts_take_nothing_else(given: np.ndarray) -> None:
    made = tables.model([helper.make_node("Identity", ["x"], ["y"])], {"x": texts("a", "b")}, ["y"])
    with pytest.raises(TypeError, match=r"input 'x'.*expected str"):
        dlprim.onnx.load(made)(given)


def test_rows_become_dicts(tmp_path: Path) -> None:
    x = table(3, 2)
    for labels in ({"classlabels_strings": ["no", "yes"]}, {"classlabels_int64s": [4, 8]}):
        made = tables.model([node("ZipMap", ["x"], ["y"], **labels)], {"x": x}, ["y"])
        keys = next(iter(labels.values()))
        right = [dict(zip(keys, row, strict=True)) for row in x.tolist()]
        model = dlprim.onnx.load(made)
        assert model(x) == right
        assert model(x[:1]) == right[:1]
        assert "y: list of dicts" in model.explain()
        model.save(tmp_path / "model.dlprim")
        assert dlprim.load(tmp_path / "model.dlprim")(x) == right


# ---------------------------------------------------------------- linear models


@pytest.mark.parametrize(("features", "classes"), [(4, 3), (784, 10)])
def test_linear_models(features: int, classes: int) -> None:
    x, w, b = table(9, features), table(classes, features), table(1, classes)[0]
    named = {"coefficients": w.ravel().tolist(), "intercepts": b.tolist()}
    scores = x.astype(np.float64) @ w.T + b
    (y,) = run([node("LinearRegressor", ["x"], ["y"], targets=classes, **named)], {"x": x})
    np.testing.assert_allclose(y, scores, rtol=1e-4, atol=1e-4)
    names = [f"class {it}" for it in range(classes)]
    transforms = {"NONE": scores, "SOFTMAX": softmax(scores), "LOGISTIC": 1 / (1 + np.exp(-scores))}
    for transform, right in transforms.items():
        how = {"post_transform": transform, "classlabels_strings": names}
        label, y = run(
            [node("LinearClassifier", ["x"], ["l", "y"], **named, **how)], {"x": x}, "l y"
        )
        np.testing.assert_allclose(y, right, rtol=1e-3, atol=1e-4)
        assert label.tolist() == [names[it] for it in scores.argmax(axis=1)]


def test_two_classes_may_have_one_row_of_coefficients() -> None:
    x, w = table(8, 5), table(1, 5)[0]
    score = (x @ w + np.float32(0.25)).astype(np.float64)[:, None]
    named = {"coefficients": w.tolist(), "intercepts": [0.25], "classlabels_ints": [4, 6]}
    logistic = 1 / (1 + np.exp(np.hstack([score, -score])))
    for transform, right in (("NONE", np.hstack([1 - score, score])), ("LOGISTIC", logistic)):
        made = node("LinearClassifier", ["x"], ["l", "y"], post_transform=transform, **named)
        label, y = run([made], {"x": x}, "l y")
        np.testing.assert_allclose(y, right, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(label, np.where(score[:, 0] > 0, 6, 4))


# ---------------------------------------------------------------- support vectors


def kernels(kind: str, x: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    gamma, offset, degree = 0.3, 0.5, 3
    product = x @ vectors.T
    if kind == "RBF":
        apart = ((x[:, None] - vectors[None]) ** 2).sum(axis=2)
        return np.asarray(np.exp(-gamma * apart))
    inner = gamma * product + offset
    found = {"LINEAR": product, "POLY": inner**degree, "SIGMOID": np.tanh(inner)}
    return np.asarray(found[kind])


@pytest.mark.parametrize("kind", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vectors(kind: str) -> None:
    x, vectors, factors = table(9, 6), table(8, 6), table(2, 8)
    named = {"kernel_type": kind, "kernel_params": [0.3, 0.5, 3.0]}
    named["support_vectors"] = vectors.ravel().tolist()
    wide = kernels(kind, x.astype(np.float64), vectors.astype(np.float64))
    how = {"coefficients": factors[0].tolist(), "rho": [0.2], "n_supports": 8}
    (y,) = run([node("SVMRegressor", ["x"], ["y"], **named, **how)], {"x": x})
    np.testing.assert_allclose(y[:, 0], wide @ factors[0] + 0.2, rtol=1e-3, atol=1e-3)
    counts, rho = [3, 1, 4], [0.1, -0.2, 0.3]
    how = {"coefficients": factors.ravel().tolist(), "rho": rho, "vectors_per_class": counts}
    labels = {"classlabels_ints": [5, 6, 7]}
    made = node("SVMClassifier", ["x"], ["l", "y"], **named, **how, **labels)
    label, y = run([made], {"x": x}, "l y")
    part, votes, scores = np.split(np.arange(8), np.cumsum(counts)[:-1]), np.zeros((9, 3)), []
    for pair, (i, j) in enumerate([(0, 1), (0, 2), (1, 2)]):
        score = wide[:, part[i]] @ factors[j - 1, part[i]] + wide[:, part[j]] @ factors[i, part[j]]
        scores.append(score + rho[pair])
        votes[np.arange(9), np.where(scores[-1] > 0, i, j)] += 1
    np.testing.assert_allclose(y, np.stack(scores, axis=1), rtol=1e-3, atol=1e-3)
    assert np.abs(scores).min() > 1e-3
    np.testing.assert_array_equal(label, 5 + votes.argmax(axis=1))


def test_pairs_of_many_classes_take_no_more_than_they_may() -> None:
    """Their matrix grows with the third power of classes that have a vector each."""
    count, x = 300, np.ones((2, 1), np.float32)
    how = {"coefficients": [1.0] * (count - 1) * count, "vectors_per_class": [1] * count}
    how |= {"rho": [0.0] * (count * (count - 1) // 2), "support_vectors": [1.0] * count}
    made = node("SVMClassifier", ["x"], ["l", "y"], classlabels_ints=list(range(count)), **how)
    whole = tables.model([made], {"x": x}, ["l", "y"], 3)
    with pytest.raises(ValueError, match="coefficients of pairs would take"):
        dlprim.onnx.load(whole, max_bytes=1 << 26)(x)


def test_probabilities_of_classes_agree_with_those_of_pairs() -> None:
    """Where pairs come from probabilities of classes, these come out."""
    right = np.float64([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
    pairs = [(0, 1), (0, 2), (1, 2)]
    wins = np.stack([right[:, i] / (right[:, i] + right[:, j]) for i, j in pairs], axis=1)
    attributes = {"results": (((2, 3), "float32"),)}
    (found,) = CALLS["pairwise_probabilities"].compute([wins.astype(np.float32)], attributes)
    np.testing.assert_allclose(found, right, atol=0.01)
