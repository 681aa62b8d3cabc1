"""What classifiers and regressors make of their sums: probabilities, and labels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Value
from dlprim.onnx.registry import RefusedError
from dlprim.onnx.strings import coded

X, Y = operand(0), operand(1)
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_NUMBERS = ("0", "1")
coded(_NUMBERS)  # before any input has them
_A = 0.147  # of Winitzki's approximation of the error function, which the operators' text means


def transform_named(name: str) -> str:
    """The name, refused where there is no such transform."""
    if name not in _TRANSFORMS:
        raise RefusedError(f"post_transform is '{name}', expected one of {', '.join(_TRANSFORMS)}")
    return name


def transform_numbered(place: int) -> str:
    """The name of a transform that a number says."""
    if not 0 <= place < len(_TRANSFORMS):
        raise RefusedError(f"post_transform is {place}, expected 0 to {len(_TRANSFORMS) - 1}")
    return _TRANSFORMS[place]


def _probit(p: Expression) -> Expression:
    """The quantile of the normal distribution, by the approximation that runtimes use."""
    x: Expression = ("subtract", ("multiply", number(2.0), p), number(1.0))
    inside: Expression = ("multiply", ("subtract", number(1.0), x), ("add", number(1.0), x))
    log: Expression = ("log", inside)
    v = ("add", number(2 / (math.pi * _A)), ("multiply", number(0.5), log))
    root = ("sqrt", ("subtract", ("multiply", v, v), ("multiply", number(1 / _A), log)))
    size = ("multiply", number(math.sqrt(2)), ("sqrt", ("subtract", root, v)))
    return ("where", ("less", x, number(0.0)), ("negate", size), size)


def _softmax_of_others(build: Builder, scores: Value) -> Value:
    """The softmax of what is not 0."""
    highest = build.reduce("max", scores, (1,), keepdims=True)
    is_zero = ("less_equal", ("abs", X), number(1e-7))
    power = build.map(("where", is_zero, number(0.0), ("exp", ("subtract", X, Y))), scores, highest)
    total = build.reduce("sum", power, (1,), keepdims=True)
    return build.map(("divide", X, Y), power, total)


def transformed(build: Builder, scores: Value, transform: str) -> Value:
    """Scores of several columns."""
    if transform == "LOGISTIC":
        return build.apply("sigmoid", scores)
    if transform == "SOFTMAX":
        return build.emit("softmax", [scores], axis=1, log=False)[0]
    if transform == "SOFTMAX_ZERO":
        return _softmax_of_others(build, scores)
    return scores if transform == "NONE" else build.map(_probit(X), scores)


def transformed_alone(build: Builder, scores: Value, transform: str) -> Value:
    """Scores of regressors: a single column is transformed by probit only."""
    if scores.shape[1] > 1 or transform == "PROBIT":
        return transformed(build, scores, transform)
    return scores


def of_two_classes(build: Builder, score: Value, transform: str, is_share: bool) -> Value:
    """Both columns of what only the second class has a score for.

    The first class has what is left of 1 where the score is a share, else the opposite.
    """
    opposite = build.apply("negate", score)
    if transform == "LOGISTIC":
        both = build.concat([opposite, score], 1)
        return build.apply("sigmoid", both)
    if is_share or transform == "PROBIT":
        opposite = build.map(("subtract", number(1.0), X), score)
    both = build.concat([opposite, score], 1)
    return build.map(_probit(X), both) if transform == "PROBIT" else both


class Labels:
    """The labels of classes, which are integers or texts."""

    def __init__(self, integers: Sequence[int], texts: Sequence[str]) -> None:
        if bool(integers) == bool(texts):
            raise RefusedError(
                f"{len(integers)} labels are integers and {len(texts)} are texts, expected one kind"
            )
        self.count = len(integers or texts)
        self._texts = bool(texts)
        self._array = coded(texts) if texts else np.array(integers, np.int64)

    def or_numbers(self) -> Labels:
        """Those of two classes, or 0 and 1 in their place where there is but one label."""
        if self.count != 1:
            return self
        return Labels([], _NUMBERS) if self._texts else Labels([0, 1], [])

    def at(self, build: Builder, places: Value) -> Value:
        """The labels of classes by number."""
        return build.gather(build.constant(self._array), places, 0)

    def of_highest(self, build: Builder, scores: Value) -> Value:
        """Of each row the first of the classes with the highest score."""
        shape = scores.shape[:1]
        places = build.call("argmax", [scores], [(shape, np.int64)], axis=1, last=False)[0]
        return self.at(build, places)

    def of_above(self, build: Builder, score: Value, threshold: float) -> Value:
        """The second where the only score is above a threshold, else the first."""
        above = build.map(("greater", X, number(threshold)), score, dtype=bool)
        return self.at(build, build.cast(build.reshape(above, score.shape[:1]), np.int64))
