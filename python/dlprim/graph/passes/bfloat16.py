"""Networks of float32 computed in bfloat16: products, and what stands between them.

What products make is bfloat16, and so is what is made of it; sums, and the inside of maps and
norms, stay float32. So do gradients by parameters: what sums and products of computed factors make
of halves for the outputs of the network is not rounded. What no product goes into, such as masks,
which hold the largest numbers of float32, stays as it is, and so do sums with masks, which would be
infinite, and inputs and outputs of the network.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dlprim.arguments.floats import dtype_named
from dlprim.graph.graph import Array, Graph, Node, Value
from dlprim.graph.passes.draft import Draft

_HALF, _SINGLE = dtype_named("bfloat16"), np.dtype(np.float32)
# Of which operands are arrays of the network; all others are parameters, which stay as they are.
_ARRAYS = {
    "attention": 3,
    "attention_gradient": 4,
    "convolution": 2,
    "convolution_weights_gradient": 2,
    "matmul": 2,
    "transposed_convolution": 2,
}
# Of rows of several arrays, which are of one type; the places of these.
_ROWS = {
    "add_normalize": (0, 1),
    "batch_norm": (0, 3),
    "batch_norm_gradient": (1, 0, 5, 6),
    "normalize_gradient": (0, 1, 3),
    "pool_gradient": (0, 1),
    "softmax_gradient": (0, 1),
}
_FOLLOWING = (
    *_ROWS,
    "concat",
    "cross_entropy",
    "dropout",
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
# Inputs, but for lengths.
_RECURRENT = {
    "recurrent": (*[_HALF] * 3, *[_SINGLE] * 2, _HALF, *[_SINGLE] * 3),
    "recurrent_gradient": (
        *(*[_HALF] * 4, _SINGLE, None, _HALF),
        *(*[_SINGLE] * 2, *[_HALF] * 2, _SINGLE),
    ),
}
_LEAST_BYTES = 1 << 12  # of weights that are rounded as they are packed
_TURNS = ("reshape", "transpose")
_MOVES = ("concat", "expand", "gather", "pad", "reshape", "slice", "transpose")


def _scores(graph: Graph) -> set[Value]:
    """What softmaxes read, where it is and in front of moves."""
    found: set[Value] = set()
    for node in reversed(graph.nodes):
        if node.operator == "softmax" or (node.operator in _MOVES and node.output in found):
            found.update(node.operands)
    return found


def _ends(graph: Graph) -> set[Value]:
    """Outputs, and what nothing but moves makes outputs of."""
    found, readers = set(graph.results), graph.readers()
    for node in reversed(graph.nodes):
        for value in node.outputs:
            after = readers.get(value)
            if after and all(it.operator in _TURNS and it.output in found for it in after):
                found.add(value)
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
    array = None if w is None else _known(draft, w)
    if w is None or array is None or w.dtype != _SINGLE or len(w.shape) != axes:
        return None
    if w.nbytes < _LEAST_BYTES:
        return None
    value = Value(w.name, w.shape, _HALF)
    draft.constants[value] = array
    return value


def _known(draft: Draft, value: Value) -> Array | None:
    """A constant, or a transposed one, such as a table of words that is a product's factor, too."""
    turn = draft.maker(value, "transpose")
    if turn is None or turn.operands[0] not in draft.constants:
        return draft.constants.get(value)
    return draft.constants[turn.operands[0]].transpose(turn.attributes["axes"])


def _packs_in_runs(draft: Draft, node: Node) -> bool:
    """Whether weights that a run computes are rounded as they are packed, too."""
    if node.operator not in ("convolution", "transposed_convolution"):
        return False
    w, is_biased = node.operands[1], len(node.operands) > 2
    is_pass = node.operator == "convolution" or not is_biased
    return is_pass and w not in draft.constants and len(w.shape) in (3, 4)


def _rounded(draft: Draft, value: Value) -> Value:
    """A factor in bfloat16: of one that is read in several orders the same rounded array."""
    move = draft.maker(value, *_TURNS)
    if move is None or value.dtype != _SINGLE or value in draft.constants:
        return cast(draft, value, _HALF)
    inner = _rounded(draft, move.operands[0])
    return draft.emit(move.operator, [inner], move.name, **move.attributes)[0]


def _is_half(value: Value | None) -> bool:
    return value is not None and value.dtype == _HALF


def _cast_at(draft: Draft, node: Node, places: Container[int]) -> list[Value | None]:
    return [
        _rounded(draft, it) if place in places and it is not None and it.dtype == _SINGLE else it
        for place, it in enumerate(node.inputs)
    ]


def _cast_recurrent(draft: Draft, node: Node) -> list[Value | None]:
    """Arrays, weights and h in bfloat16; biases, c and all else are float32 in any case."""
    return [
        it if it is None or it.dtype.kind in "iu" else cast(draft, it, dtype)
        for it, dtype in zip(node.inputs, _RECURRENT[node.operator], strict=False)
    ]


def _converted(draft: Draft, node: Node) -> list[Value | None] | None:
    """The inputs of the node in bfloat16, None where it stays as it is."""
    if node.operator in _RECURRENT and node.operands[0].dtype in (_HALF, _SINGLE):
        return _cast_recurrent(draft, node)
    if node.operator in _ARRAYS and node.operands[0].dtype in (_HALF, _SINGLE):
        weights = _cast_weights(draft, node)
        is_packed = weights is not None or _packs_in_runs(draft, node)
        inputs = _cast_at(draft, node, range(1 if is_packed else _ARRAYS[node.operator]))
        if weights is not None:
            inputs[1] = weights
        if node.operator == "convolution" and len(inputs) > 3:
            inputs[3] = None if inputs[3] is None else cast(draft, inputs[3], _HALF)
        return inputs
    varying = [it for it in node.operands if it not in draft.constants]
    if node.operator not in _FOLLOWING or not any(map(_is_half, varying)):
        return None
    if node.operator == "concat" or (node.operator == "pad" and _is_half(node.inputs[0])):
        return _cast_at(draft, node, range(len(node.inputs)))
    places = _ROWS.get(node.operator)
    if places is not None:
        is_any = any(_is_half(it) for place, it in enumerate(node.inputs) if place in places)
        return _cast_at(draft, node, places) if is_any else None
    return list(node.inputs) if node.operator == "map" or _is_half(node.inputs[0]) else None


def use_bfloat16(graph: Graph) -> Graph:
    """The network with bfloat16 where most of its time goes; a quantised one as it is."""
    if any("quantize" in node.operator for node in graph.nodes):
        return graph
    scores, ends = _scores(graph), _ends(graph)

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
        is_sum = node.operator == "convolution_weights_gradient"  # of a parameter
        if attributes.get("dtype") == "float32" and not (is_masked or is_sum):
            attributes["dtype"] = _HALF.name
        if _is_kept(draft, node, inputs, ends):
            attributes["dtype"] = _SINGLE.name
        return draft.emit(node.operator, inputs, node.name, **attributes)

    return _with_results_of(graph, Draft(graph).apply(rule))


def _is_kept(draft: Draft, node: Node, inputs: Sequence[Value | None], ends: set[Value]) -> bool:
    """Whether what a node makes of halves is an output as its sums are, in float32."""
    if node.outputs[0] not in ends or node.outputs[0].dtype != _SINGLE:
        return False
    if node.operator == "reduce":
        return node.attributes["function"] in ("sum", "mean") and _is_half(inputs[0])
    if node.operator != "matmul":
        return False
    factor, w, *_ = inputs
    is_layer = w in draft.constants and factor not in draft.constants and len(w.shape) == 2
    return is_layer or draft.constants.keys().isdisjoint(inputs)


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
