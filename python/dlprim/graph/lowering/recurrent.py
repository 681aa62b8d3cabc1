"""Steps for recurrent layers: the `LSTM` and `GRU` primitives with weights packed once."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.lowering.formulas import is_computed
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.lowering.products import core_of
from dlprim.primitives.operands import scheduled
from dlprim.primitives.rnn import GRU, LSTM
from dlprim.tuning import store


@lru_cache(maxsize=64)
def _layer(
    schedules: store.Travelled | None,
    cell: str,
    x_shape: tuple[int, int, int],
    hidden: int,
    reverse: bool,
) -> LSTM | GRU:
    primitive = LSTM if cell == "lstm" else GRU
    return scheduled(primitive(x_shape, hidden, dtype="float32", reverse=reverse), schedules)


def _known(to: Lowering, value: Value | None, dtype: np.dtype[np.generic]) -> Array | None:
    if value is None:
        return None
    return np.ascontiguousarray(to.graph.constants[value], dtype)


def lower_recurrent(to: Lowering, node: Node) -> bool:
    """One primitive for the layer; states of float32 alone."""
    x, w, r, *others = (*node.inputs, None, None, None, None)[:7]
    biases, (h_0, c_0) = others[:2], others[2:]
    assert x is not None
    assert r is not None
    packed = [it for it in (w, r, *biases) if it is not None]
    is_known = all(value in to.graph.constants for value in packed)
    if not is_computed(x.dtype) or x.dtype.name != "float32" or not is_known or 0 in x.shape:
        return False
    steps, samples, channels = x.shape
    cell, is_reverse = node.attributes["cell"], node.attributes["reverse"]
    extents, hidden = (steps, samples, channels), r.shape[1]
    travelled = store.travelled()
    layer = to.call(_layer, travelled, cell, extents, hidden, is_reverse)
    plain = [_known(to, value, x.dtype) for value in (w, r, *biases)]
    # Their form has nothing of the steps and the samples.
    one = _layer(travelled, cell, (1, 1, channels), hidden, is_reverse)
    weights = one.pack_weights(*plain)
    operands = {name: to.constant(array) for name, array in weights.operands().items()}
    states = {"h_0": h_0, "c_0": c_0}
    for name, value in states.items():
        if value is not None:
            operands[name] = to.number(to.dense(value))
    results = [to.number(to.result(value)) for value in node.outputs]
    operands.update(zip(("dst", "h_n", "c_n"), results, strict=False))
    src = to.number(to.dense(x))
    to.network.rnn(to.call(core_of, layer), f"{cell} {node.name}", src=src, **operands)
    return True
