"""Steps for mixtures of experts: the rows of each expert run through a network of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlprim.graph.expressions import Expression, operand
from dlprim.graph.graph import Array, Graph, Node, Value
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.operators.experts import between
from dlprim.graph.operators.operator import Attributes
from dlprim.graph.passes import optimized
from dlprim.graph.passes.draft import Draft

# Of pieces of rows: networks are made for these, whatever the number of rows.
_SIZES = (1, 4, 16, 64)
_SUM: Expression = ("add", operand(0), operand(1))


def _graph(rows: int, layers: list[Array | None], attributes: Attributes) -> Graph:
    """So many rows through one expert, of weights (results, inputs) and biases."""
    first = layers[0]
    assert first is not None
    x = Value("x", (rows, first.shape[1]), first.dtype)
    draft = Draft(Graph((x,), (), (), {}))

    def emit(operator: str, inputs: Sequence[Value | None], **named: Any) -> Sequence[Value]:
        return draft.emit(operator, inputs, operator, **named)

    def layer(y: Value, place: int) -> Value:
        w, bias = layers[2 * place : 2 * place + 2]
        assert w is not None
        (made,) = emit("matmul", [y, draft.constant(w.T, "weights")])
        if bias is None:
            return made
        operands = [made, draft.constant(bias, "bias")]
        return emit("map", operands, expression=_SUM, dtype=made.dtype.name)[0]

    has_third = len(layers) > 4 and layers[4] is not None
    other = layer(x, 2) if has_third else None
    y = layer(between(emit, layer(x, 0), other, attributes), 1)
    nodes = tuple(dict.fromkeys(draft.makers.values()))
    return optimized(Graph((x,), (y,), nodes, draft.constants))


def lower_experts(to: Lowering, node: Node) -> bool:
    """One step, where all weights are known."""
    x, shares, *values = node.inputs
    assert x is not None
    assert shares is not None
    arrays = [None if it is None else to.graph.constants.get(it) for it in values]
    is_known = all(
        (it is None) == (array is None) for it, array in zip(values, arrays, strict=True)
    )
    if not is_known or x.dtype != np.float32 or 0 in x.shape:
        return False
    experts = []
    for expert in range(shares.shape[0]):
        own = [None if it is None else it[expert] for it in arrays]
        experts.append([to.fixed_network_of(_graph(size, own, node.attributes)) for size in _SIZES])
    places = [to.number(to.dense(it)) for it in (x, shares)]
    result = to.number(to.result(node.output))
    to.network.routed(experts, list(_SIZES), (*places, result), f"experts {node.name}")
    return True
