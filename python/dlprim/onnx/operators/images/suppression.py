"""Boxes that remain where others overlap them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dlprim.graph import Builder, Value
from dlprim.graph.graph import Array
from dlprim.onnx.operators.control import number_of
from dlprim.onnx.operators.shapes import one_number
from dlprim.onnx.registry import Call, RefusedError, operator

_MOST_AT_ONCE = 256  # boxes that are compared with each other


class _Limits(NamedTuple):
    """How many boxes of a class, how much they may overlap, and the score above which they are."""

    most: int
    threshold: float
    least: float


def _corners(boxes: Array, is_centered: bool) -> Array:
    """(4, n): the least y and x, the greatest y and x."""
    a, b, c, d = boxes.T.astype(np.float64)
    if is_centered:
        return np.stack([b - d / 2, a - c / 2, b + d / 2, a + c / 2])
    return np.stack([np.minimum(a, c), np.minimum(b, d), np.maximum(a, c), np.maximum(b, d)])


def _clashes(some: Array, others: Array, threshold: float) -> Array:
    """Whether two boxes share more of their area than they may, for each pair."""
    top, left, bottom, right = some
    y, x, y_end, x_end = others
    height = np.minimum.outer(bottom, y_end) - np.maximum.outer(top, y)
    width = np.minimum.outer(right, x_end) - np.maximum.outer(left, x)
    shared = np.maximum(height, 0) * np.maximum(width, 0)
    rest = np.add.outer((bottom - top) * (right - left), (y_end - y) * (x_end - x)) - shared
    with np.errstate(all="ignore"):
        clash: Array = ~(np.where(rest > 0, shared / rest, 0) <= threshold)
    return clash


def _in_order(scores: Array, least: float, most: int) -> Iterator[Array]:
    """Places of scores above the least, the best first; the others wait where few are read."""
    places = np.flatnonzero(scores > least)
    few = 4 * most + 64
    if few < len(places):
        known = scores[places]
        is_best = known >= np.partition(known, len(places) - few)[len(places) - few]
        best, places = places[is_best], places[~is_best]
        yield best[np.argsort(-scores[best], kind="stable")]
    yield places[np.argsort(-scores[places], kind="stable")]


def _kept(boxes: Array, scores: Array, limits: _Limits, is_centered: bool) -> list[int]:
    """The best box first, then the best of those that no kept one overlaps too much."""
    kept: list[int] = []
    found = np.empty((4, 0))
    step = min(max(2 * limits.most, 16), _MOST_AT_ONCE)
    for listed in _in_order(scores, limits.least, limits.most):
        for start in range(0, len(listed), step):
            places = listed[start : start + step]
            corners = _corners(boxes[places], is_centered)
            is_free = np.asarray(~_clashes(corners, found, limits.threshold).any(axis=1))
            clashes = _clashes(corners, corners, limits.threshold)
            taken: list[int] = []
            for place in range(len(places)):
                if len(kept) + len(taken) == limits.most:
                    break
                if is_free[place]:
                    taken.append(place)
                    is_free &= ~clashes[place]
            kept += places[taken].tolist()
            if len(kept) >= limits.most:
                return kept
            found = np.concatenate([found, corners[:, taken]], axis=1)
    return kept


def _selected(boxes: Array, scores: Array, limits: _Limits, is_centered: bool) -> Array:
    rows = [
        (sample, kind, place)
        for sample, kind in np.ndindex(*scores.shape[:2])
        for place in _kept(boxes[sample], scores[sample, kind], limits, is_centered)
    ]
    return np.array(rows, np.int64).reshape(-1, 3)


def _require_fit(boxes: Value | Array, scores: Value | Array) -> None:
    fits = len(boxes.shape) == len(scores.shape) == 3 and boxes.shape[2] == 4
    if not fits or (boxes.shape[0], boxes.shape[1]) != (scores.shape[0], scores.shape[2]):
        raise RefusedError(
            f"boxes of {list(boxes.shape)} and scores of {list(scores.shape)} do not fit, "
            "expected (N, S, 4), (N, C, S)"
        )


@operator("NonMaxSuppression", since=10)
def non_max_suppression(
    builder: Builder,
    boxes: Value,
    scores: Value,
    most: Value | None = None,
    iou_threshold: Value | None = None,
    score_threshold: Value | None = None,
    *,
    center_point_box: int = 0,
) -> Value:
    """How many boxes there are follows from their elements, which have to be known."""
    _require_fit(boxes, scores)
    count = 0 if most is None else one_number(builder, most)
    threshold = 0 if iou_threshold is None else one_number(builder, iou_threshold)
    least = -np.inf if score_threshold is None else one_number(builder, score_threshold)
    limits = _Limits(int(count), threshold, least)
    arrays = builder.array(boxes), builder.array(scores)
    return builder.constant(_selected(*arrays, limits, bool(center_point_box)))


@operator("NonMaxSuppression", since=10, on_values=True)
def non_max_suppression_of_arrays(
    call: Call,
    boxes: Array,
    scores: Array,
    most: Array | None = None,
    iou_threshold: Array | None = None,
    score_threshold: Array | None = None,
    *,
    center_point_box: int = 0,
) -> Array:
    _require_fit(boxes, scores)
    count = 0 if most is None else number_of(most)
    threshold = 0 if iou_threshold is None else iou_threshold.item()
    least = -np.inf if score_threshold is None else score_threshold.item()
    limits = _Limits(count, threshold, least)
    return _selected(boxes, scores, limits, bool(center_point_box))
