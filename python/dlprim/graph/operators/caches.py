"""Caches of keys and values: rows written behind those that are there, and attention to these.

How many places are filled is data, so that one graph serves all steps of a sequence.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.graph.graph import Array
from dlprim.graph.operators.attention import for_each_head, infer_attention, softmax_of_scores
from dlprim.graph.operators.elements import converted
from dlprim.graph.operators.operator import (
    NO_FUNCTION,
    Arrays,
    Attributes,
    Operator,
    Result,
    Values,
    there,
    widened,
)


def _require_counts(value: Any, samples: int) -> None:
    if value.dtype != np.int64 or value.shape != (samples,):
        raise ValueError(f"counts are {value!r}, expected int64 of [{samples}]")


# ---------------------------------------------------------------- rows


def _infer_placed(values: Values, attributes: Attributes) -> list[Result]:
    """Cache (N, H, C, D), rows (N, H, S, D), first places (N) -> the cache with the rows."""
    cache, rows, places = (there(it) for it in values)
    _require_counts(places, cache.shape[0])
    fits = len(cache.shape) == len(rows.shape) == 4 and cache.dtype == rows.dtype
    others = (0, 1, 3)
    if not fits or any(cache.shape[it] != rows.shape[it] for it in others):
        raise ValueError(f"rows of {list(rows.shape)} do not fit a cache of {list(cache.shape)}")
    return [(cache.shape, cache.dtype)]


def _compute_placed(arrays: Arrays, attributes: Attributes) -> list[Any]:
    cache, rows, places = arrays
    count, most = rows.shape[2], cache.shape[2]
    made = np.array(cache)
    for place in places:
        if not 0 <= place <= most - count:
            raise IndexError(f"a cache of {most} places has none for {count} rows from {place} on")
    for sample, place in enumerate(places):
        made[sample, :, place : place + count] = rows[sample]
    return [made]


# ---------------------------------------------------------------- attention


def _infer_filled(values: Values, attributes: Attributes) -> list[Result]:
    """As attention, of q, k, v, how many places count (N), and a mask."""
    q, k, v, fill = (there(it) for it in values[:4])
    _require_counts(fill, q.shape[0])
    return infer_attention([q, k, v], attributes)


def seen_places(attributes: Attributes, fill: Array, queries: int, places: int) -> Array:
    """Which of the places of each sequence its queries see, (N, 1, Q, K)."""
    key = np.arange(places)
    count = fill.reshape(-1, 1, 1, 1)
    own = count - queries + np.arange(queries)[:, None]
    seen = key < count
    if attributes["causal"]:
        seen = seen & (key <= own)
        if attributes["window"]:
            seen = seen & (key > own - attributes["window"])
    return np.broadcast_to(seen, (len(fill), 1, queries, places))


def _compute_filled(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """What is in places that do not count does not matter, whatever it is."""
    q, k, v = (widened(array) for array in arrays[:3])
    fill = np.clip(arrays[3], 0, k.shape[2])
    counts = np.arange(k.shape[2])[:, None] < fill.reshape(-1, 1, 1, 1)
    k, v = for_each_head(q, *(np.where(counts, it, 0) for it in (k, v)))
    seen = seen_places(attributes, fill, q.shape[2], k.shape[2])
    mask = arrays[4] if len(arrays) > 4 else None
    if mask is not None:
        added = np.where(mask, 0, -np.inf) if mask.dtype == bool else mask
        seen = np.where(seen, added, -np.inf)
    with np.errstate(all="ignore"):
        how = {**attributes, "causal": False}
        weights = softmax_of_scores(q @ k.swapaxes(-1, -2), seen, how)
        return [converted(weights @ v, arrays[0].dtype)]


CACHES = {
    "filled_attention": Operator("contract", _infer_filled, _compute_filled, NO_FUNCTION),
    "placed_rows": Operator("move", _infer_placed, _compute_placed, NO_FUNCTION),
}
