"""Products with weights of few bits, packed as `dlprim.quantize_weights` packs them.

They are calls of x, the packed bytes and a bias, which may be absent; attributes say what the bytes
are: ``channels``, (K, C), and ``form``, the settings of the core's layer.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim import _core as core
from dlprim.graph.graph import Node, Value
from dlprim.graph.operators.operator import Arrays, Attributes, Values, callee, there, widened
from dlprim.graph.operators.products import before_activation, finished

if TYPE_CHECKING:
    from dlprim.graph.builder import Builder


@lru_cache(maxsize=256)
def panel_layer(shape: tuple[int, int], form: tuple[Any, ...]) -> core.PanelLinear:
    """The layer of weights (K, C), shared by nodes that are alike."""
    return core.PanelLinear(shape, *form)


def _layer_of(attributes: Attributes) -> core.PanelLinear:
    return panel_layer(tuple(attributes["channels"]), tuple(attributes["form"]))


def _gradient(b: Builder, node: Node, diffs: Values) -> list[Value | str | None]:
    """Through what the weights stand for, which nobody trains."""
    x, packed, bias = (*node.inputs, None)[:3]
    diff = before_activation(b, node, there(diffs[0]))
    weights = b.constant(_layer_of(node.attributes).unpack(b.array(there(packed))))
    by_x = b.matmul(diff, b.cast(weights, diff.dtype))
    by_bias = None if bias is None else b.cast(b.sum_to(diff, bias.shape), bias.dtype)
    found: list[Value | str | None] = [b.cast(by_x, there(x).dtype), None, by_bias]
    return found[: len(node.inputs)]


@callee("panel_product", _gradient)
def panel_product(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """x times what the packed bytes stand for, then the bias and the activation."""
    x, packed, bias = (*arrays, None)[:3]
    sums = np.matmul(widened(x), _layer_of(attributes).unpack(packed).T)
    return [finished(sums, bias, None, attributes).astype(x.dtype, copy=False)]
