"""Products with weights of few bits, packed as `dlprim.quantize_weights` packs them.

They are calls of x, the packed bytes and a bias, which may be absent; attributes say what the bytes
are: ``channels``, (K, C), and ``form``, the settings of the core's layer.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from dlprim import _core as core
from dlprim.graph.operators.operator import Arrays, Attributes, callee, widened
from dlprim.graph.operators.products import finished


@lru_cache(maxsize=256)
def panel_layer(shape: tuple[int, int], form: tuple[Any, ...]) -> core.PanelLinear:
    """The layer of weights (K, C), shared by nodes that are alike."""
    return core.PanelLinear(shape, *form)


@callee("panel_product", "its weights are rounded, and nobody trains them")
def panel_product(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """x times what the packed bytes stand for, then the bias and the activation."""
    x, packed, bias = (*arrays, None)[:3]
    layer = panel_layer(tuple(attributes["channels"]), tuple(attributes["form"]))
    sums = np.matmul(widened(x), layer.unpack(packed).T)
    return [finished(sums, bias, None, attributes).astype(x.dtype, copy=False)]
