"""Steps for pooling of images in blocks."""

from __future__ import annotations

from functools import lru_cache

from dlprim import _core
from dlprim.graph.graph import Node
from dlprim.graph.lowering.layouts import is_pool_of_blocks
from dlprim.graph.lowering.lowering import Lowering, activations


@lru_cache(maxsize=256)
def _pooling(
    shape: tuple[int, ...], groups: int, dtype: str, kind: str, window: tuple[int, ...]
) -> _core.Pooling:
    return _core.Pooling(activations(shape, groups, dtype), kind, window)


def lower_pool(to: Lowering, node: Node) -> bool:
    """`MaxPool2d` and `AvgPool2d`."""
    (x,) = node.operands
    if not is_pool_of_blocks(node):
        return False
    groups = to.blocked.get(x, 1)
    it = node.attributes
    window = (*it["kernel"], *it["strides"], *(front for front, _ in it["padding"]))
    mean = "average_padded" if it["counts_padding"] else "average"
    kind = "max" if it["function"] == "max" else mean
    pooling = _pooling(x.shape, groups, x.dtype.name, kind, window)
    src = to.blocks(x, groups)
    dst = to.new_blocks(node.output, groups)
    to.network.pool(pooling, src, dst, f"pool {node.name}")
    return True
