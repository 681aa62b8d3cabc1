"""Steps for what only training has: losses of classes, dropout."""

from __future__ import annotations

import numpy as np

from dlprim.graph.graph import Node
from dlprim.graph.lowering.formulas import is_computed
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.operators.dropout import keeping

# Up to which numbers of a step, which are float64, are all integers.
_MOST_EXACT = 1 << 53


def lower_cross_entropy(to: Lowering, node: Node) -> bool:
    """The loss, and its gradient from the same reading where somebody wants it."""
    x, targets, weight = (*node.inputs, None)[:3]
    assert x is not None
    assert targets is not None
    loss, slopes = node.outputs
    attributes = node.attributes
    is_known = abs(attributes["ignored"]) < _MOST_EXACT
    if not is_known or not is_computed(x.dtype) or loss.dtype != np.float32 or not x.size:
        return False
    if weight is not None and weight.dtype != np.float32:
        return False
    inputs = [it for it in (x, targets, weight) if it is not None]
    results = [loss]
    if to.readers.get(slopes) or slopes in to.graph.results:
        results.append(slopes)
    numbers = {
        "ignored": float(attributes["ignored"]),
        "smoothing": float(attributes["smoothing"]),
        "averages": float(attributes["reduction"] == "mean"),
        "rows": float(attributes["reduction"] == "none"),
    }
    places = [to.number(to.dense(it)) for it in inputs]
    made = [to.number(to.result(it)) for it in results]
    to.network.function("cross_entropy", numbers, places, made, f"cross_entropy {node.name}")
    return True


def lower_dropout(to: Lowering, node: Node) -> bool:
    """The mask is made again by each step that needs it."""
    x, offset = node.operands
    if not is_computed(x.dtype) or not x.size:
        return False
    threshold, scale = keeping(node.attributes["p"])
    numbers = {"threshold": float(threshold), "scale": scale}
    seed = to.constant(np.array([node.attributes["seed"]], np.uint64).view(np.int64))
    inputs = [to.number(to.dense(x)), seed, to.number(to.dense(offset))]
    results = [to.number(to.result(node.output))]
    to.network.function("dropout", numbers, inputs, results, f"dropout {node.name}")
    return True
