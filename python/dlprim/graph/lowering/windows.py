"""Steps for pooling and resizing of images in blocks."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dlprim import _core
from dlprim.functions.extents.windows import Table
from dlprim.graph.graph import Array, Node
from dlprim.graph.lowering.layouts import is_pool_of_blocks
from dlprim.graph.lowering.lowering import Lowering, activations


@lru_cache(maxsize=256)
def _pooling(
    shape: tuple[int, ...], of: tuple[int, str, str], kind: str, window: tuple[int, ...]
) -> _core.Pooling:
    return _core.Pooling(activations(shape, *of), kind, window)


def pooling(node: Node, groups: int, layout: str = "blocked") -> _core.Pooling:
    """The primitive of a node of which `is_pool_of_blocks`."""
    (x,) = node.operands
    it = node.attributes
    window = (*it["kernel"], *it["strides"], *(front for front, _ in it["padding"]))
    mean = "average_padded" if it["counts_padding"] else "average"
    kind = "max" if it["function"] == "max" else mean
    return _pooling(x.shape, (groups, x.dtype.name, layout), kind, window)


def lower_pool(to: Lowering, node: Node) -> bool:
    """`MaxPool2d` and `AvgPool2d`."""
    (x,) = node.operands
    if not is_pool_of_blocks(node):
        return False
    groups = to.blocked.get(x, 1)
    src = to.blocks(x, groups)
    dst = to.new_blocks(node.output, groups)
    to.network.pool(pooling(node, groups), src, dst, f"pool {node.name}")
    return True


def lower_image_resample(to: Lowering, node: Node) -> None:
    """Along the height or the width of images in blocks, sums of pixels side by side."""
    x, places, weights = node.operands
    axis, groups = node.attributes["axis"] % 4, to.blocked[node.output]
    changed = _table(to.graph.constants[places], to.graph.constants[weights])
    kept = list(range(x.shape[5 - axis])), list(range(x.shape[5 - axis] + 1))
    same: Table = (*kept, [1.0] * x.shape[5 - axis])
    of = activations(x.shape, groups, x.dtype.name)
    rows, columns = (changed, same) if axis == 2 else (same, changed)
    resampling = _core.Resampling(of, rows, columns)
    src, dst = to.blocks(x, groups), to.new_blocks(node.output, groups)
    to.network.resample(resampling, src, dst, f"resample {node.name}")


def _table(places: Array, weights: Array) -> Table:
    """What is read twice added up, and zeros where what is read is not side by side."""
    begins = places.min(axis=1)
    counts = places.max(axis=1) + 1 - begins
    ends = np.append(0, np.cumsum(counts))
    listed = np.zeros(ends[-1])
    np.add.at(listed, places + (ends[:-1] - begins)[:, None], weights)
    return begins.tolist(), ends.tolist(), listed.tolist()
