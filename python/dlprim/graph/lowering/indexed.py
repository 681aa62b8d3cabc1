"""Steps for elements at places that arrays say, and for elements that other types read."""

from __future__ import annotations

from dataclasses import replace

from dlprim.graph.graph import Node
from dlprim.graph.lowering.folds import lower_running, lower_top
from dlprim.graph.lowering.integers import TYPES
from dlprim.graph.lowering.lowering import Lower, Lowering

_INDICES = ("int32", "int64")


def _lower_indexed(to: Lowering, node: Node, axis: int, batch: int) -> bool:
    x, places, *updates = node.operands
    if places.dtype.name not in _INDICES or (updates and x.dtype.name not in TYPES):
        return False
    written = to.number(to.dense(updates[0])) if updates else -1
    values = [to.number(to.dense(x)), to.number(to.dense(places)), written]
    values.append(to.number(to.result(node.output)))
    how = node.attributes.get("how", "none")
    to.network.indexed(values, (axis, batch, how), f"{node.attributes['function']} {node.name}")
    return True


def _lower_along_axis(to: Lowering, node: Node) -> bool:
    return _lower_indexed(to, node, node.attributes["axis"], 0)


def _lower_along_axes(to: Lowering, node: Node) -> bool:
    return _lower_indexed(to, node, -1, node.attributes.get("batch_dims", 0))


def _lower_bit_cast(to: Lowering, node: Node) -> bool:
    """A view."""
    to.put(node.output, replace(to.dense(node.operands[0]), dtype=node.output.dtype))
    return True


# By the function of a call.
PLACED: dict[str, Lower] = {
    "bit_cast": _lower_bit_cast,
    "gather_elements": _lower_along_axis,
    "gather_nd": _lower_along_axes,
    "running_product": lower_running,
    "running_sum": lower_running,
    "scatter_elements": _lower_along_axis,
    "scatter_nd": _lower_along_axes,
    "top_k": lower_top,
}
