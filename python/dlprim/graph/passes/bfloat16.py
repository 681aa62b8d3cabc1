"""Networks of float32 computed in bfloat16: products, and what stands between them.

What products make is bfloat16, and so is what is made of it; sums, and the inside of maps and
norms, stay float32. What no product goes into, such as masks, which hold the largest numbers of
float32, stays as it is, and so do sums with masks, which would be infinite, and inputs and outputs
of the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dlprim.arguments.floats import dtype_named
from dlprim.graph.graph import Graph, Node, Value
from dlprim.graph.passes.draft import Draft

_HALF, _SINGLE = dtype_named("bfloat16"), np.dtype(np.float32)
_PRODUCTS = ("attention", "convolution", "matmul", "transposed_convolution")
# Of which operands are arrays of the network; all others are parameters, which stay as they are.
_ARRAYS = {"attention": 3, "convolution": 2, "matmul": 2, "transposed_convolution": 2}
_FOLLOWING = (
    "add_normalize",
    "concat",
    "expand",
    "gather",
    "group_norm",
    "map",
    "normalize",
    "pad",
    "pool",
    "reduce",
    "reshape",
    "slice",
    "softmax",
    "transpose",
)
_RECURRENT = (*[_HALF] * 3, *[_SINGLE] * 2, _HALF, *[_SINGLE] * 3)  # inputs, but for lengths
_LEAST_BYTES = 1 << 12  # of weights that are rounded as they are packed
_MOVES = ("concat", "expand", "gather", "pad", "reshape", "slice", "transpose")


def _scores(graph: Graph) -> set[Value]:
    """What softmaxes read, where it is and in front of moves."""
    found: set[Value] = set()
    for node in reversed(graph.nodes):
        if node.operator == "softmax" or (node.operator in _MOVES and node.output in found):
            found.update(node.operands)
    return found


def cast(draft: Draft, value: Value, dtype: Any) -> Value:
    """The value in another type, known at once where it is a constant."""
    if value.dtype == dtype:
        return value
    if value in draft.constants:
        return draft.constant(draft.constants[value].astype(dtype), value.name)
    expression = ("input", 0)
    return draft.emit("map", [value], value.name, expression=expression, dtype=dtype.name)[0]


def _cast_weights(draft: Draft, node: Node) -> Value | None:
    """Large weights in bfloat16, which their packing rounds; None where they are none."""
    w = node.inputs[1]
    axes = {"matmul": 2, "convolution": 4}.get(node.operator)
    if w is None or w not in draft.constants or w.dtype != _SINGLE or len(w.shape) != axes:
        return None
    if w.nbytes < _LEAST_BYTES:
        return None
    value = Value(w.name, w.shape, _HALF)
    draft.constants[value] = draft.constants[w]
    return value


def _is_half(value: Value | None) -> bool:
    return value is not None and value.dtype == _HALF


def _cast_first(draft: Draft, node: Node, count: int) -> list[Value | None]:
    return [
        cast(draft, it, _HALF) if place < count and it is not None and it.dtype == _SINGLE else it
        for place, it in enumerate(node.inputs)
    ]


def _cast_recurrent(draft: Draft, node: Node) -> list[Value | None]:
    """x, weights and h in bfloat16; biases, c and peepholes are float32 in any case."""
    return [
        it if it is None or it.dtype.kind in "iu" else cast(draft, it, dtype)
        for it, dtype in zip(node.inputs, _RECURRENT, strict=False)
    ]


def _converted(draft: Draft, node: Node) -> list[Value | None] | None:
    """The inputs of the node in bfloat16, None where it stays as it is."""
    if node.operator == "recurrent" and node.operands[0].dtype in (_HALF, _SINGLE):
        return _cast_recurrent(draft, node)
    if node.operator in _PRODUCTS and node.operands[0].dtype in (_HALF, _SINGLE):
        weights = _cast_weights(draft, node)
        inputs = _cast_first(draft, node, 1 if weights else _ARRAYS[node.operator])
        if weights is not None:
            inputs[1] = weights
        if node.operator == "convolution" and len(inputs) > 3:
            inputs[3] = None if inputs[3] is None else cast(draft, inputs[3], _HALF)
        return inputs
    varying = [it for it in node.operands if it not in draft.constants]
    if node.operator not in _FOLLOWING or not any(map(_is_half, varying)):
        return None
    if node.operator == "concat" or (node.operator == "pad" and _is_half(node.inputs[0])):
        return _cast_first(draft, node, len(node.inputs))
    if node.operator == "add_normalize":
        return _cast_first(draft, node, 2)
    return list(node.inputs) if node.operator == "map" or _is_half(node.inputs[0]) else None


def use_bfloat16(graph: Graph) -> Graph:
    """The network with bfloat16 where most of its time goes; a quantised one as it is."""
    if any("quantize" in node.operator for node in graph.nodes):
        return graph
    scores = _scores(graph)

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        inputs = _converted(draft, node)
        if inputs is None:
            if not any(map(_is_half, node.inputs)):
                return None
            given = graph.inputs if node.operator == "update" else ()  # with copies in halves
            inputs = [
                cast(draft, it, _SINGLE)
                if it is not None and _is_half(it) and it not in given
                else it
                for it in node.inputs
            ]
            return draft.emit(node.operator, inputs, node.name, **node.attributes)
        attributes = dict(node.attributes)
        is_masked = node.operator == "map" and node.output in scores
        if attributes.get("dtype") == "float32" and not is_masked:
            attributes["dtype"] = _HALF.name
        return draft.emit(node.operator, inputs, node.name, **attributes)

    return _with_results_of(graph, Draft(graph).apply(rule))


def _with_results_of(graph: Graph, made: Graph) -> Graph:
    """The graph with outputs, and values that states become, of the types of another."""
    results, nodes = [], list(made.nodes)
    for before, value in zip(graph.results, made.results, strict=True):
        if value.dtype == before.dtype:
            results.append(value)
            continue
        result = Value(before.name, value.shape, before.dtype)
        attributes = {"expression": ("input", 0), "dtype": before.dtype.name}
        nodes.append(Node("map", (value,), (result,), attributes, before.name))
        results.append(result)
    count = len(made.outputs)
    states = dict(zip(made.states, results[count:], strict=True))
    return replace(made, outputs=tuple(results[:count]), nodes=tuple(nodes), states=states)
