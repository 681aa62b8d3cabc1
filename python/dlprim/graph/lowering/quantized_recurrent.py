"""Recurrent layers in 8 bits: one network for a step of time, which a step of the core repeats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Array, Graph, Node, Value
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.operators.quantized import in_bytes
from dlprim.graph.passes.draft import Draft

_CENTER = 128  # of the bytes of a state
_PRODUCT = {
    "x_zero_point": _CENTER,
    "y_zero_point": 0,
    "dtype": "float32",
    "residual_scale": 1.0,
    "inner": None,
    "lowest": -math.inf,
    "highest": math.inf,
}
_MOST_AT_ONCE = 4096  # elements of a state that a loop of the core makes bytes of
_FLOAT32 = np.dtype(np.float32)


class _Step:
    """The graph of one step of time: gates and states to the next states."""

    def __init__(self, samples: int, r: Array, scale: Array) -> None:
        self._r, self._scale = r, scale
        shape = (samples, r.shape[0])
        inputs = (
            Value("gates", (samples, r.shape[1]), _FLOAT32),
            *(Value(name, shape, _FLOAT32) for name in ("h", "c")),
        )
        self._draft = Draft(Graph(inputs, (), (), {}))
        outputs = self._states(*inputs)
        nodes = tuple(dict.fromkeys(self._draft.makers.values()))
        self.graph = Graph(inputs, outputs, nodes, self._draft.constants)

    def _emit(self, operator: str, inputs: Sequence[Value | None], **named: Any) -> Sequence[Value]:
        return self._draft.emit(operator, inputs, operator, **named)

    def _map(self, expression: Expression, *inputs: Value) -> Value:
        return self._emit("map", inputs, expression=expression, dtype="float32")[0]

    def _constant(self, array: Array) -> Value:
        return self._draft.constant(array, "constant")

    def _states(self, gates: Value, h: Value, c: Value) -> tuple[Value, Value]:
        hidden = h.shape[1]
        summed = self._summed(gates, h)
        i, o, f, g = (
            self._emit("slice", [summed], starts=(0, at * hidden), counts=h.shape, steps=(1, 1))[0]
            for at in range(4)
        )
        kept = ("multiply", ("sigmoid", operand(0)), operand(1))
        new = ("multiply", ("sigmoid", operand(2)), ("tanh", operand(3)))
        cell = self._map(("add", kept, new), f, c, i, g)
        shown = ("multiply", ("sigmoid", operand(0)), ("tanh", operand(1)))
        return self._map(shown, o, cell), cell

    def _summed(self, gates: Value, h: Value) -> Value:
        """With the products with the state, which stand for floats when the zero is taken away."""
        q, step, zero = self._in_bytes(h)
        operands = [q, self._constant(self._r), self._constant(self._scale), None, None]
        (product,) = self._emit("quantized_matmul", operands, **_PRODUCT)
        columns = self._r.sum(0, np.int64) * self._scale.astype(np.float64)
        shift = ("subtract", operand(3), number(float(_CENTER)))
        less = ("subtract", operand(1), ("multiply", operand(2), shift))
        inputs = [gates, product, self._constant(columns.astype(np.float32)), zero, step]
        return self._map(("add", operand(0), ("multiply", less, operand(4))), *inputs)

    def _in_bytes(self, h: Value) -> Sequence[Value]:
        """As `in_bytes`: of few elements in one step, which five would be."""
        if h.size > _MOST_AT_ONCE:
            return in_bytes(self._emit, h)
        results = ((h.shape, "uint8"), ((), "float32"), ((), "uint8"))
        return self._emit("call", [h], function="in_bytes", results=results)


def _zeros(shape: tuple[int, ...]) -> Array:
    return np.zeros(shape, np.float32)


def lower_quantized_lstm(to: Lowering, node: Node) -> bool:
    """States lie in what they are results of; the cell alternates between two places."""
    gates, r, scale, *given = node.inputs
    assert gates is not None
    assert r is not None
    assert scale is not None
    weights, factors = to.graph.constants.get(r), to.graph.constants.get(scale)
    if weights is None or factors is None or 0 in gates.shape:
        return False
    body = to.network_of(_Step(gates.shape[1], weights, factors).graph)
    if body.runs_alone:
        return False
    y, *last = node.outputs
    shape, is_reverse = last[0].shape, node.attributes["reverse"]
    states = [
        to.constant(to.call(_zeros, shape)) if it is None else to.number(to.dense(it))
        for it in (*given, None, None)[:2]
    ]
    places = [to.result(y), to.new((2, *shape), y.dtype)]
    results = [to.number(it) for it in places]
    inputs = ([to.number(to.dense(gates))], states)
    to.network.repeat(body, inputs, (results, [0, 1]), is_reverse, f"lstm {node.name}")
    latest = 0 if is_reverse else y.shape[0] - 1
    for value, place, at in zip(last, places, (latest, latest % 2), strict=True):
        part = place.sliced((at, 0, 0), (1, *shape), (1, 1, 1)).reshaped(shape)
        assert part is not None
        to.put(value, part)
    return True
