"""Nodes that no step computes as they are, as several that have steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dlprim.graph.expressions import operand
from dlprim.graph.graph import Graph, Node, Value
from dlprim.graph.passes.bfloat16 import cast
from dlprim.graph.passes.draft import Draft

_HALF, _SINGLE = np.dtype(np.float16), np.dtype(np.float32)
# What engines compute in float32. Maps do so of halves that they load and store; moves and what
# finds elements by index do not look at them.
_IN_FLOAT32 = (
    "add_normalize",
    "attention",
    "convolution",
    "dequantize",
    "einsum",
    "group_norm",
    "matmul",
    "normalize",
    "pool",
    "quantize",
    "recurrent",
    "reduce",
    "resample",
    "softmax",
    "transposed_convolution",
)
X, Y, Z = operand(0), operand(1), operand(2)


def _in_float32(draft: Draft, node: Node) -> Sequence[Value] | None:
    """A node of float16 on float32, what it makes rounded to float16."""
    values = (*node.operands, *node.outputs)
    if node.operator not in _IN_FLOAT32 or all(it.dtype != _HALF for it in values):
        return None
    operands = [
        cast(draft, it, _SINGLE) if it is not None and it.dtype == _HALF else it
        for it in node.inputs
    ]
    attributes = dict(node.attributes)
    if attributes.get("dtype") == _HALF.name:
        attributes["dtype"] = _SINGLE.name
    results = draft.emit(node.operator, operands, node.name, **attributes)
    zipped = zip(results, node.outputs, strict=True)
    return tuple(cast(draft, made, value.dtype) for made, value in zipped)


def round_halves(graph: Graph) -> Graph:
    """Networks of float16 compute in float32 and round what each operator makes."""

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        return _in_float32(draft, node)

    return Draft(graph).apply(rule)


def _softmax(draft: Draft, node: Node) -> Sequence[Value] | None:
    """Of doubles: by reductions and maps."""
    (x,) = node.operands
    if x.dtype != np.float64 or 0 in x.shape:
        return None
    axes, dtype = (node.attributes["axis"] % len(x.shape),), x.dtype.name

    def reduced(function: str, value: Value) -> Value:
        attributes = {"function": function, "axes": axes, "keepdims": True}
        return draft.emit("reduce", [value], node.name, **attributes)[0]

    def mapped(expression: tuple[object, ...], *values: Value) -> Sequence[Value]:
        return draft.emit("map", values, node.name, expression=expression, dtype=dtype)

    highest = reduced("max", x)
    (power,) = mapped(("exp", ("subtract", X, Y)), x, highest)
    total = reduced("sum", power)
    if node.attributes["log"]:
        return mapped(("subtract", ("subtract", X, Y), ("log", Z)), x, highest, total)
    return mapped(("divide", X, Y), power, total)


def _group_norm(draft: Draft, node: Node) -> Sequence[Value] | None:
    """Rows that are normalised, and a map by channels."""
    x, *parameters = node.operands
    groups = node.attributes["groups"]
    rows = (x.shape[0], groups, math.prod(x.shape[1:]) // groups)
    attributes = {"axes": 1, "rms": False, "epsilon": node.attributes["epsilon"]}
    (flat,) = draft.emit("reshape", [x], node.name, shape=rows)
    (made,) = draft.emit("normalize", [flat], node.name, **attributes)
    (whole,) = draft.emit("reshape", [made], node.name, shape=x.shape)
    channels = (x.shape[1], *[1] * (len(x.shape) - 2))
    by = [draft.emit("reshape", [it], node.name, shape=channels)[0] for it in parameters]
    expression = ("add", ("multiply", X, Y), Z)
    return draft.emit("map", [whole, *by], node.name, expression=expression, dtype=x.dtype.name)


_RULES = {"group_norm": _group_norm, "softmax": _softmax}


def write_out(graph: Graph) -> Graph:
    """Norms of groups, and softmaxes of doubles, by what there are steps for."""

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        made = _RULES.get(node.operator)
        return None if made is None else made(draft, node)

    return Draft(graph).apply(rule)
