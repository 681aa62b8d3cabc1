"""Steps for pooling, and for resizing of images in blocks."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from dlprim import _core
from dlprim.functions.extents.windows import Table
from dlprim.graph.extents import derived
from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.lowering.formulas import definition_text, is_computed, number_text
from dlprim.graph.lowering.layouts import activations, is_pool_of_blocks, pooled
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.lowering.padding import padded
from dlprim.graph.lowering.place import Place
from dlprim.graph.operators.operator import Attributes
from dlprim.graph.operators.windows import pool_counts, pool_padding


@lru_cache(maxsize=256)
def _pooling(
    shape: tuple[int, ...], of: tuple[int, str, str], kind: str, window: tuple[int, ...]
) -> _core.Pooling:
    return _core.Pooling(activations(shape, *of), kind, window)


def pooling(to: Lowering, node: Node, groups: int, layout: str = "blocked") -> Any:
    """The primitive of a node of which `is_pool_of_blocks`."""
    x, it = pooled(node), node.attributes
    window = (*it["kernel"], *it["strides"], *(front for front, _ in it["padding"]))
    mean = "average_padded" if it["counts_padding"] else "average"
    kind = "max" if it["function"] == "max" else mean
    return to.call(_pooling, x.shape, (groups, x.dtype.name, layout), kind, window)


def lower_pool(to: Lowering, node: Node) -> bool:
    """`MaxPool2d` and `AvgPool2d`, or a statement on an array with more around it."""
    (x,) = node.operands
    if not is_pool_of_blocks(node):
        return _lower_any_pool(to, node)
    groups = to.blocked.get(x, 1)
    values = {"src": to.blocks(x, groups), "dst": to.new_blocks(node.output, groups)}
    if any(_is_gradient_of(it, node) for it in to.readers.get(x, ())):
        values["taps"] = new_taps(to, node, node.output, groups)
    to.network.pool(pooling(to, node, groups), f"pool {node.name}", **values)
    return True


def taps_of(node: Node) -> tuple[Any, ...]:
    """What tells the places of maxima that a pooling, or its gradient, is about."""
    names = ("kernel", "strides", "padding", "counts")
    return ("taps", node.inputs[-1], *(node.attributes[it] for it in names))


def _is_gradient_of(other: Node, node: Node) -> bool:
    """Whether a node asks where the maxima of a pooling stand."""
    is_max = node.attributes["function"] == other.attributes.get("function") == "max"
    is_gradient = is_max and other.operator == "pool_gradient" and is_pool_of_blocks(other)
    return is_gradient and taps_of(other) == taps_of(node)


def new_taps(to: Lowering, node: Node, y: Value, groups: int) -> int:
    """Memory for where maxima stand in the windows that y has one element of each for."""
    number: int = to.network.temporary(to.block_shape(y, groups), np.uint8)
    to.shared[taps_of(node)] = number
    return number


def _lower_any_pool(to: Lowering, node: Node) -> bool:
    """Windows of any rank that may leave the array."""
    (x,) = node.operands
    it = node.attributes
    if not is_computed(x.dtype) or 0 in (*x.shape, *node.output.shape):
        return False
    is_max, place, label = it["function"] == "max", to.place(x), f"pool {node.name}"
    around = pool_padding(x.shape, it)
    if any(map(any, around)):
        outside = np.full(1, -np.inf if is_max else 0, x.dtype)
        beside = Place.dense(to.constant(outside), (1,), x.dtype)
        place = padded(to, place, [(0, 0), (0, 0), *around], beside, label)
    rank = len(it["kernel"])
    left = [f"i{axis}" for axis in range(rank)]
    taps = [
        f"{step}*i{axis}+{dilation}*k{axis}"
        for axis, (step, dilation) in enumerate(zip(it["strides"], it["dilations"], strict=True))
    ]
    bounds = [f"i{axis} in 0:{number_text(count)}" for axis, count in enumerate(it["counts"])]
    bounds += [f"k{axis} in 0:{extent}" for axis, extent in enumerate(it["kernel"])]
    read, operands, operator = f"x(n,c,{','.join(taps)})", [("x", place)], "max=!"
    if not is_max:
        shares = derived(_shares, x.shape, dict(it))
        operands.append(("by", Place.dense(to.constant(shares), shares.shape, shares.dtype)))
        read, operator = f"by({','.join(left)}) * {read}", "+=!"
    statement = f"y(n,c,{','.join(left)}) {operator} {read} where {', '.join(bounds)}"
    result = to.new(node.output.shape, x.dtype)
    text = definition_text([(name, it.shape) for name, it in operands], [statement])
    if not to.formula(text, [it for _, it in operands], result, label):
        return False
    to.put(node.output, result)
    return True


def _shares(shape: tuple[int, ...], attributes: Attributes) -> Array:
    """What each element of a window counts for."""
    return np.ascontiguousarray(1 / pool_counts(shape, attributes), np.float32)


def lower_image_resample(to: Lowering, node: Node) -> None:
    """Along the height or the width of images in blocks, sums of pixels side by side."""
    x, places, weights = node.operands
    axis, groups = node.attributes["axis"] % 4, to.blocked[node.output]
    changed = to.call(_table, to.graph.constants[places], to.graph.constants[weights])
    same = to.call(_same_table, x.shape[5 - axis])
    of = to.call(activations, x.shape, groups, x.dtype.name)
    rows, columns = (changed, same) if axis == 2 else (same, changed)
    resampling = to.call(_core.Resampling, of, rows, columns)
    src, dst = to.blocks(x, groups), to.new_blocks(node.output, groups)
    to.network.resample(resampling, src, dst, f"resample {node.name}")


def _same_table(extent: int) -> Table:
    """Each pixel as it is."""
    return list(range(extent)), list(range(extent + 1)), [1.0] * extent


def _table(places: Array, weights: Array) -> Table:
    """What is read twice added up, and zeros where what is read is not side by side."""
    begins = places.min(axis=1)
    counts = places.max(axis=1) + 1 - begins
    ends = np.append(0, np.cumsum(counts))
    listed = np.zeros(ends[-1])
    np.add.at(listed, places + (ends[:-1] - begins)[:, None], weights)
    return begins.tolist(), ends.tolist(), listed.tolist()
