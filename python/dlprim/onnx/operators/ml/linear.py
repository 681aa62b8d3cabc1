"""Linear models: products of features and coefficients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.graph import Value
from dlprim.onnx.operators.ml.features import ML, in_floats, table_of
from dlprim.onnx.operators.ml.scores import (
    Labels,
    of_two_classes,
    transform_named,
    transformed,
    transformed_alone,
)
from dlprim.onnx.registry import RefusedError, operator


def weighted(
    build: Builder, x: Value, rows: np.ndarray, added: Sequence[float], what: str
) -> Value:
    """x times the rows of a matrix, plus a number for each of them."""
    if rows.shape[1] != x.shape[1]:
        raise RefusedError(
            f"{what} are for {rows.shape[1]} features, expected {x.shape[1]} of the input"
        )
    y = build.matmul(x, build.constant(np.ascontiguousarray(rows.T)))
    if not any(added):
        return y
    return build.apply("add", y, build.constant(np.array(added, np.float32)))


def _rows(given: Sequence[float], count: int, intercepts: Sequence[float]) -> np.ndarray:
    """The coefficients of each target or class."""
    if count < 1 or not given or len(given) % count or len(intercepts) not in (0, count):
        raise RefusedError(
            f"{len(given)} coefficients and {len(intercepts)} intercepts do not fit {count} of "
            "these models, expected as many for each"
        )
    return np.array(given, np.float32).reshape(count, -1)


@operator("LinearRegressor", domain=ML)
def linear_regressor(
    build: Builder,
    x: Value,
    *,
    coefficients: tuple[float, ...] = (),
    intercepts: tuple[float, ...] = (),
    post_transform: str = "NONE",
    targets: int = 1,
) -> Value:
    transform, rows = transform_named(post_transform), _rows(coefficients, targets, intercepts)
    table = in_floats(build, table_of(x, build))
    y = weighted(build, table, rows, intercepts, "coefficients")
    return transformed_alone(build, y, transform)


@operator("LinearClassifier", domain=ML)
def linear_classifier(
    build: Builder,
    x: Value,
    *,
    classlabels_ints: tuple[int, ...] = (),
    classlabels_strings: tuple[str, ...] = (),
    coefficients: tuple[float, ...],
    intercepts: tuple[float, ...] = (),
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> tuple[Value, Value]:
    """Labels and scores; two classes may have the coefficients of the second one only."""
    labels = Labels(classlabels_ints, classlabels_strings)
    transform = transform_named(post_transform)
    count = len(intercepts) or labels.count
    if count != labels.count and (count, labels.count) != (1, 2):
        raise RefusedError(f"{count} intercepts are given, expected {labels.count} of the labels")
    table = in_floats(build, table_of(x, build))
    rows = _rows(coefficients, count, intercepts)
    scores = weighted(build, table, rows, intercepts, "coefficients")
    if count == 1:
        label = labels.or_numbers().of_above(build, scores, 0)
        if labels.count == 1:
            return label, transformed_alone(build, scores, transform)
        return label, of_two_classes(build, scores, transform, is_share=True)
    return labels.of_highest(build, scores), transformed(build, scores, transform)
