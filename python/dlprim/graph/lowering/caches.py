"""Steps for caches that are written where they lie."""

from __future__ import annotations

from dlprim.graph.graph import Node
from dlprim.graph.lowering.lowering import Lowering


def lower_placed_rows(to: Lowering, node: Node) -> bool:
    """A step that writes the rows alone where nothing reads what the cache was."""
    cache, rows, places = node.operands
    landing = to.landing(node.output, replaced=cache)
    # A state lies in C order, and what it becomes lies there.
    source = to.place(cache) if landing is not None else to.dense(cache)
    place = to.place(rows)
    if place.shape[3] > 1 and place.strides[3] != place.dtype.itemsize:
        place = to.dense(rows)
    result = to.new(cache.shape, cache.dtype) if landing is None else landing
    to.put(node.output, result)
    values = [*map(to.number, (source, place, to.dense(places), result))]
    to.network.placed_rows(values, f"placed_rows {node.name}")
    return True
