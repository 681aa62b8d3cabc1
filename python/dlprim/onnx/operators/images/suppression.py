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


def _corners(boxes: Array, is_centered: bool) -> Array:
    """(..., 4): the least y and x, the greatest y and x."""
    if is_centered:
        x, y, width, height = np.moveaxis(boxes, -1, 0)
        return np.stack([y - height / 2, x - width / 2, y + height / 2, x + width / 2], -1)
    first, last = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(first, last), np.maximum(first, last)], -1)


def _overlaps(box: Array, others: Array) -> Array:
    """The shared part of the area of two boxes together, for each of the others."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=-1)
    areas = np.prod(others[:, 2:] - others[:, :2], axis=-1) + np.prod(box[2:] - box[:2])
    with np.errstate(all="ignore"):
        return np.where(areas > shared, shared / (areas - shared), 0)


def _in_order(scores: Array, least: float, most: int) -> Iterator[int]:
    """Places of scores above the least, the best first; few of many are found without the others."""
    places = np.flatnonzero(scores > least)
    few = 4 * most + 64
    if few < len(places):
        bound = np.partition(scores[places], len(places) - few)[len(places) - few]
        is_best = scores[places] >= bound
        best, places = places[is_best], places[~is_best]
        yield from best[np.argsort(-scores[best], kind="stable")].tolist()
    yield from places[np.argsort(-scores[places], kind="stable")].tolist()


def _kept(boxes: Array, scores: Array, most: int, threshold: float, least: float) -> list[int]:
    """The best box first, then the best of those that no kept one overlaps too much."""
    kept: list[int] = []
    found = np.empty((min(most, len(boxes)), 4))
    for place in _in_order(scores, least, most):
        if len(kept) >= most:
            break
        box = boxes[place]
        if not kept or _overlaps(box, found[: len(kept)]).max() <= threshold:
            found[len(kept)] = box
            kept.append(place)
    return kept


class _Limits(NamedTuple):
    """How many boxes of a class, how much they may overlap, and the score above which they are."""

    most: int
    threshold: float
    least: float


def _selected(boxes: Array, scores: Array, limits: _Limits, is_centered: bool) -> Array:
    corners = _corners(boxes.astype(np.float64), is_centered)
    rows = [
        (sample, kind, place)
        for sample, kind in np.ndindex(*scores.shape[:2])
        for place in _kept(corners[sample], scores[sample, kind], *limits)
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
    known = (builder.array(it) for it in (boxes, scores))
    return builder.constant(_selected(*known, limits, bool(center_point_box)))


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
