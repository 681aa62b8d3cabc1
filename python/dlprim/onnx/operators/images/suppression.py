"""Boxes that remain where others overlap them."""

from __future__ import annotations

import numpy as np

from dlprim.graph import Builder, Value
from dlprim.graph.graph import Array
from dlprim.onnx.operators.shapes import one_number
from dlprim.onnx.registry import RefusedError, operator


def _number(builder: Builder, value: Value | None, default: float) -> float:
    return default if value is None else float(one_number(builder, value))


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


def _kept(boxes: Array, scores: Array, most: int, threshold: float, least: float) -> list[int]:
    """The best box first, then the best of those that no kept one overlaps too much."""
    order = [place for place in np.argsort(-scores, kind="stable") if scores[place] > least]
    kept: list[int] = []
    while order and len(kept) < most:
        best, *rest = order
        kept.append(int(best))
        overlaps = _overlaps(boxes[best], boxes[rest])
        order = [it for it, overlap in zip(rest, overlaps, strict=True) if overlap <= threshold]
    return kept


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
    fits = len(boxes.shape) == len(scores.shape) == 3 and boxes.shape[2] == 4
    if not fits or (boxes.shape[0], boxes.shape[1]) != (scores.shape[0], scores.shape[2]):
        raise RefusedError(f"{boxes!r} and {scores!r} do not fit, expected (N, S, 4), (N, C, S)")
    count = _number(builder, most, 0)
    threshold = _number(builder, iou_threshold, 0)
    least = _number(builder, score_threshold, -np.inf)
    corners = _corners(builder.array(boxes).astype(np.float64), bool(center_point_box))
    known = builder.array(scores)
    rows = [
        (sample, kind, place)
        for sample, kind in np.ndindex(*known.shape[:2])
        for place in _kept(corners[sample], known[sample, kind], int(count), threshold, least)
    ]
    return builder.constant(np.array(rows, np.int64).reshape(-1, 3))
