"""Support vector machines: products with vectors, a kernel function, and votes of pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import number, operand
from dlprim.graph.graph import Array, Value
from dlprim.graph.operators.operator import NO_FUNCTION, Arrays, Attributes, callee
from dlprim.graph.room import require_room
from dlprim.onnx.operators.ml.features import ML, in_floats, table_of
from dlprim.onnx.operators.ml.linear import weighted
from dlprim.onnx.operators.ml.scores import (
    Labels,
    of_two_classes,
    transform_named,
    transformed,
    transformed_alone,
)
from dlprim.onnx.registry import RefusedError, operator

X, Y, Z = operand(0), operand(1), operand(2)
_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
_MOST_CLASSES = 4096


def _kernel(
    build: Builder, x: Value, vectors: Array, kind: str, parameters: Sequence[float]
) -> Value:
    """The kernel function of each row and each vector; gamma, coef0 and degree are parameters."""
    if kind not in _KERNELS:
        raise RefusedError(f"kernel_type is '{kind}', expected one of {', '.join(_KERNELS)}")
    if len(parameters) not in (0, 3):
        raise RefusedError(f"kernel_params has {len(parameters)} numbers, expected 3")
    gamma, offset, degree = parameters or (0.0, 0.0, 0.0)
    product = weighted(build, x, vectors, (), "support_vectors")
    if kind == "LINEAR":
        return product
    if kind == "RBF":
        squares = build.map(("multiply", X, X), x)
        own = build.reduce("sum", squares, (1,), keepdims=True)
        others = np.sum(vectors.astype(np.float64) ** 2, axis=1).astype(np.float32)
        twice = ("subtract", ("add", Y, Z), ("multiply", number(2.0), X))
        apart = ("multiply", number(-gamma), ("maximum", twice, number(0.0)))
        return build.map(("exp", apart), product, own, build.constant(others))
    inner = ("add", ("multiply", number(gamma), X), number(offset))
    if kind == "SIGMOID":
        return build.map(("tanh", inner), product)
    if not (degree == int(degree) and 1 <= degree <= 8):
        return build.map(("power", inner, number(degree)), product)
    power = inner
    for _ in range(int(degree) - 1):
        power = ("multiply", power, inner)
    return build.map(power, product)


def _vectors(given: Sequence[float], count: int) -> Array:
    if count < 1 or not given or len(given) % count:
        raise RefusedError(f"support_vectors has {len(given)} numbers, expected {count} vectors")
    return np.array(given, np.float32).reshape(count, -1)


@operator("SVMRegressor", domain=ML)
def svm_regressor(
    build: Builder,
    x: Value,
    *,
    coefficients: tuple[float, ...] = (),
    kernel_params: tuple[float, ...] = (),
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: tuple[float, ...] = (),
    support_vectors: tuple[float, ...] = (),
) -> Value:
    """Without support vectors, a linear model."""
    transform, table = transform_named(post_transform), in_floats(build, table_of(x, build))
    if len(rho) != 1 or not coefficients:
        raise RefusedError(
            f"rho has {len(rho)} numbers and coefficients {len(coefficients)}, expected 1 and some"
        )
    if n_supports > 0:
        vectors = _vectors(support_vectors, n_supports)
        table = _kernel(build, table, vectors, kernel_type, kernel_params)
    rows = np.array([coefficients], np.float32)
    y = weighted(build, table, rows, rho, "coefficients")
    if one_class:
        y = build.map(("where", ("greater", X, number(0.0)), number(1.0), number(-1.0)), y)
    return transformed_alone(build, y, transform)


def _pairs(build: Builder, counts: Sequence[int], coefficients: Sequence[float]) -> Array:
    """A row for each pair of classes: what multiplies the kernels of the vectors of both."""
    ends = np.cumsum([0, *counts])
    if len(coefficients) != (len(counts) - 1) * ends[-1]:
        raise RefusedError(
            f"{len(coefficients)} coefficients, expected {len(counts) - 1} for each of the "
            f"{ends[-1]} support vectors"
        )
    given = np.array(coefficients, np.float32).reshape(len(counts) - 1, ends[-1])
    parts = [slice(*it) for it in pairwise(ends.tolist())]
    shape = (len(counts) * (len(counts) - 1) // 2, int(ends[-1]))
    require_room("coefficients of pairs", 2 * 4 * math.prod(shape), build.max_bytes)
    rows = np.zeros(shape, np.float32)
    for row, (i, j) in zip(rows, combinations(range(len(counts)), 2), strict=True):
        row[parts[i]] = given[j - 1, parts[i]]
        row[parts[j]] = given[i, parts[j]]
    return rows


def _votes(build: Builder, scores: Value, classes: int) -> Value:
    """How many pairs each class wins, by the scores of pairs, of which the first wins above 0."""
    pairs = list(combinations(range(classes), 2))
    signs = np.zeros((len(pairs), classes), np.float32)
    seconds = np.zeros(classes, np.float32)
    for row, (i, j) in zip(signs, pairs, strict=True):
        row[i], row[j] = 1, -1
        seconds[j] += 1
    wins = build.map(("where", ("greater", X, number(0.0)), number(1.0), number(0.0)), scores)
    won = build.matmul(wins, build.constant(signs))
    return build.apply("add", won, build.constant(seconds))


@callee("pairwise_probabilities", NO_FUNCTION)
def pairwise_probabilities(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """Of classes, of the probabilities that the first of each pair wins.

    By the second way of Wu, Lin and Weng (2004), its steps and its end as libsvm has them.
    """
    wins, classes = arrays[0].astype(np.float64), attributes["results"][0][0][1]
    rows = wins.shape[0]
    r = np.zeros((rows, classes, classes))
    for win, (i, j) in zip(wins.T, combinations(range(classes), 2), strict=True):
        r[:, i, j], r[:, j, i] = win, 1 - win
    q = -r * r.transpose(0, 2, 1)
    diagonal = np.arange(classes)
    q[:, diagonal, diagonal] = (r * r).sum(axis=1)
    p = np.full((rows, classes), 1 / classes)
    going = np.arange(rows)
    for _ in range(max(100, classes)):
        within, at = q[going], p[going]
        qp = np.einsum("nij,nj->ni", within, at)
        pqp = np.sum(at * qp, axis=1)
        is_left = np.abs(qp - pqp[:, None]).max(axis=1) >= 0.005 / classes
        if not is_left.any():
            break
        going, within, at = going[is_left], within[is_left], at[is_left]
        qp, pqp = qp[is_left], pqp[is_left]
        for t in range(classes):
            own = within[:, t, t]
            more = (pqp - qp[:, t]) / own
            at[:, t] += more
            pqp = (pqp + more * (more * own + 2 * qp[:, t])) / (1 + more) ** 2
            qp = (qp + more[:, None] * within[:, t]) / (1 + more[:, None])
            at /= 1 + more[:, None]
        p[going] = at
    return [p.astype(np.float32)]


def _probabilities(
    build: Builder, scores: Value, a: Sequence[float], b: Sequence[float], classes: int
) -> Value:
    """Of each class, of the scores of pairs and what was fitted to them."""
    pairs = scores.shape[1]
    if len(a) != pairs or len(b) != pairs:
        raise RefusedError(f"prob_a and prob_b have {len(a)} and {len(b)}, expected {pairs}")
    factor, shift = (build.constant(np.array(it, np.float32)) for it in (a, b))
    share = ("sigmoid", ("negate", ("add", ("multiply", X, Y), Z)))
    inside = ("minimum", ("maximum", share, number(1e-7)), number(1 - 1e-7))
    wins = build.map(inside, scores, factor, shift)
    shape = (scores.shape[0], classes)
    return build.call("pairwise_probabilities", [wins], [(shape, np.float32)])[0]


@operator("SVMClassifier", domain=ML)
def svm_classifier(
    build: Builder,
    x: Value,
    *,
    classlabels_ints: tuple[int, ...] = (),
    classlabels_strings: tuple[str, ...] = (),
    coefficients: tuple[float, ...] = (),
    kernel_params: tuple[float, ...] = (),
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: tuple[float, ...] = (),
    prob_b: tuple[float, ...] = (),
    rho: tuple[float, ...] = (),
    support_vectors: tuple[float, ...] = (),
    vectors_per_class: tuple[int, ...] = (),
) -> tuple[Value, Value]:
    """Labels and scores: of classes where they are fitted, else of pairs of classes."""
    labels, transform = (
        Labels(classlabels_ints, classlabels_strings),
        transform_named(post_transform),
    )
    table, count = in_floats(build, table_of(x, build)), labels.count
    if not sum(vectors_per_class):
        return _linear(build, table, labels, coefficients, rho, transform)
    is_whole = len(vectors_per_class) == count and min(vectors_per_class) >= 0
    if not is_whole or not 2 <= count <= _MOST_CLASSES:
        raise RefusedError(
            f"vectors_per_class has {len(vectors_per_class)} numbers, expected one of 0 or more "
            f"for each of the {count} labels, which are 2 to {_MOST_CLASSES}"
        )
    pairs = _pairs(build, vectors_per_class, coefficients)
    if len(rho) != len(pairs):
        raise RefusedError(f"rho has {len(rho)} numbers, expected {len(pairs)} of pairs of classes")
    vectors = _vectors(support_vectors, sum(vectors_per_class))
    kernels = _kernel(build, table, vectors, kernel_type, kernel_params)
    scores = weighted(build, kernels, pairs, rho, "coefficients")
    label = labels.of_highest(build, _votes(build, scores, count))
    if prob_a or prob_b:
        scores = _probabilities(build, scores, prob_a, prob_b, count)
        return label, transformed(build, scores, transform)
    if count == 2:
        if min(coefficients) >= 0:
            label = labels.of_highest(build, build.concat([scores, scores], 1))
        is_share = transform != "NONE"
        return label, of_two_classes(build, scores, transform, is_share)
    return label, transformed(build, scores, transform)


def _linear(
    build: Builder,
    table: Value,
    labels: Labels,
    coefficients: Sequence[float],
    rho: Sequence[float],
    transform: str,
) -> tuple[Value, Value]:
    """Without support vectors: a row of coefficients for each class."""
    if not rho or not coefficients or len(coefficients) % labels.count:
        raise RefusedError(
            f"{len(coefficients)} coefficients and {len(rho)} numbers of rho do not fit "
            f"{labels.count} labels"
        )
    rows = np.array(coefficients, np.float32).reshape(labels.count, -1)
    scores = weighted(build, table, rows, [rho[0]] * labels.count, "coefficients")
    return labels.of_highest(build, scores), transformed(build, scores, transform)
