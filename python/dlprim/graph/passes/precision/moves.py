"""Moves of quantised arrays: a byte moves as the float that it stands for."""

from __future__ import annotations

import numpy as np

from dlprim.graph.graph import Node, Value
from dlprim.graph.passes.draft import Draft
from dlprim.graph.passes.precision.parameters import Bytes, Parameters, parameters_of

# Of moves, which inputs are moved.
_MOVED = {
    "reshape": slice(1),
    "transpose": slice(1),
    "expand": slice(1),
    "slice": slice(1),
    "pad": slice(1),
    "gather": slice(1),
    "pool": slice(1),
    "concat": slice(None),
}


def bytes_of(draft: Draft, value: Value | None) -> Bytes | None:
    """The array in 8 bits, if it is one that was dequantised, and perhaps moved since."""
    node = draft.maker(value, "dequantize", *_MOVED)
    if node is None or node.output.dtype != np.float32:
        return None
    if node.operator != "dequantize":
        return moved_bytes(draft, node)
    parameters = parameters_of(draft, node)
    return None if parameters is None else Bytes(node.operands[0], parameters)


def moved_bytes(draft: Draft, node: Node) -> Bytes | None:
    """The result of a move in 8 bits, if its operands all are, with the same parameters."""
    if not may_move(draft, node):
        return None
    found = [bytes_of(draft, value) for value in node.inputs[_MOVED[node.operator]]]
    first = found[0]
    if first is None or any(it is None or it.parameters != first.parameters for it in found):
        return None
    values = [it.value for it in found if it is not None]
    return Bytes(move(draft, node, values, first.parameters), first.parameters)


def moved_values(node: Node) -> tuple[Value | None, ...]:
    """What the node moves."""
    return node.inputs[_MOVED[node.operator]]


def move(draft: Draft, node: Node, values: list[Value], parameters: Parameters) -> Value:
    """The same move of other values, which have these parameters."""
    others = list(node.inputs[len(values) :])
    if node.operator == "pad" and node.attributes["mode"] == "constant":
        zero = np.asarray(parameters.zero_point, parameters.dtype)
        others = [draft.constant(zero, f"{node.name}.zero_point")]
    return draft.emit(node.operator, [*values, *others], node.name, **node.attributes)[0]


def may_move(draft: Draft, node: Node | None) -> bool:
    """Whether a node moves bytes as it moves the floats that they stand for."""
    if node is None or node.operator not in _MOVED:
        return False
    if node.operator == "pad" and node.attributes["mode"] == "constant":
        value = node.inputs[1] if len(node.inputs) > 1 else None
        return value is None or draft.number(value) == 0
    return node.operator != "pool" or _takes_a_pixel_each(node)


def _takes_a_pixel_each(node: Node) -> bool:
    """Of maxima: whether no window is all padding, which has no value in 8 bits."""
    attributes = node.attributes
    if attributes["function"] != "max" or any(it != 1 for it in attributes["dilations"]):
        return False
    zipped = zip(
        node.operands[0].shape[2:],
        node.output.shape[2:],
        attributes["kernel"],
        attributes["strides"],
        attributes["padding"],
        strict=True,
    )
    return all(
        front < kernel and (count - 1) * stride - front < extent
        for extent, count, kernel, stride, (front, _) in zipped
    )
