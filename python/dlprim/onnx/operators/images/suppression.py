"""Boxes that remain where others overlap them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dlprim import _core
from dlprim.graph import Builder, Value
from dlprim.graph.graph import Array
from dlprim.onnx.operators.control import number_of
from dlprim.onnx.operators.shapes import one_number
from dlprim.onnx.registry import Call, RefusedError, operator


class _Limits(NamedTuple):
    """How many boxes of a class, how much they may overlap, and the score above which they are."""

    most: int
    threshold: float
    least: float


def _selected(boxes: Array, scores: Array, limits: _Limits, is_centered: bool) -> Array:
    if boxes.dtype != np.float32 or scores.dtype != np.float32:
        raise RefusedError(
            f"boxes are of {boxes.dtype}, scores of {scores.dtype}, expected float32"
        )
    return _core.kept_boxes(boxes, scores, *limits, is_centered)


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
