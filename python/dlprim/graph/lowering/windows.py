"""Steps for pooling, and for resizing of images in blocks."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from dlprim import _core
from dlprim.functions.extents.windows import Table
from dlprim.graph.extents import derived
from dlprim.graph.graph import Array, Node, Value
from dlprim.graph.lowering.formulas import is_computed
from dlprim.graph.lowering.layouts import activations, is_pool_of_blocks, pooled
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.lowering.padding import padded
from dlprim.graph.lowering.place import Place
from dlprim.graph.lowering.taps import Taps, folded
from dlprim.graph.operators.operator import Attributes
from dlprim.graph.operators.windows import pool_counts, pool_padding

# Elements from which on rows are programs of their own, and not blocks of channels.
_WIDE_ROW = 32
_FEW_CHANNELS = 8  # that leave most of a block empty
_MOST_IN_ROWS = 8  # of a window along an axis


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
    if not is_pool_of_blocks(node) or _is_faster_in_rows(to, node):
        return _lower_any_pool(to, node)
    groups = to.blocked.get(x, 1)
    values = {"src": to.blocks(x, groups), "dst": to.new_blocks(node.output, groups)}
    if any(_is_gradient_of(it, node) for it in to.readers.get(x, ())):
        values["taps"] = new_taps(to, node, node.output, groups)
    to.network.pool(pooling(to, node, groups), f"pool {node.name}", **values)
    return True


def _is_in_rows(dtype: np.dtype[Any]) -> bool:
    """Whether statements on rows read and write elements of the type."""
    return is_computed(dtype) or dtype == np.float16


def _is_faster_in_rows(to: Lowering, node: Node) -> bool:
    """Whether rows are long, what they are made of is near, and nothing has them in blocks."""
    (x,), y, it = node.operands, node.output, node.attributes
    is_plain = is_computed(x.dtype) and not {x, y} & set(to.blocked) and x.shape[-1] >= _WIDE_ROW
    readers = [reader for value in (x, y) for reader in to.readers.get(value, ())]
    is_alone = not any(
        reader.operator == "convolution" or _is_gradient_of(reader, node) for reader in readers
    )
    if not (is_plain and is_alone and max(it["kernel"]) <= _MOST_IN_ROWS):
        return False
    if x.shape[1] < _FEW_CHANNELS:
        return True
    # A stride, or padding, is a copy more, which pays for means of float32 or for dense maxima.
    is_max, is_dense = it["function"] == "max", it["strides"][-1] == 1
    if any(map(any, pool_padding(x.shape, it))):
        return bool(is_max and is_dense)
    return is_dense or (not is_max and x.dtype == np.float32)


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
    """Windows of any rank that may leave the array, along one axis after the other."""
    (x,) = node.operands
    it = node.attributes
    if not _is_in_rows(x.dtype) or 0 in (*x.shape, *node.output.shape):
        return False
    is_max, place, label = it["function"] == "max", to.place(x), f"pool {node.name}"
    axes = [_taps_along(axis, x.shape, it) for axis in range(len(it["kernel"]))]
    around = [
        (front, max(0, taps.reach - front - n))
        for n, (front, _), taps in zip(x.shape[2:], it["padding"], axes, strict=True)
    ]
    front = around[-1][0]
    around[-1] = front, max(0, axes[-1].width - front - x.shape[-1])
    if any(map(any, around)):
        outside = np.full(1, -np.inf if is_max else 0, x.dtype)
        beside = Place.dense(to.constant(outside), (1,), x.dtype)
        place = padded(to, place, [(0, 0), (0, 0), *around], beside, label)
    for axis, taps in enumerate(axes, 2):
        # Rounded once, at the last axis.
        dtype = x.dtype if axis == 1 + len(axes) else np.dtype(np.float32)
        made = folded(to, place, axis, taps, label, dtype)
        if made is None:
            return False
        place = made
    to.put(node.output, place)
    return True


def _taps_along(axis: int, shape: tuple[int, ...], attributes: Attributes) -> Taps:
    """What the windows read along an axis of pixels."""
    names = ("kernel", "strides", "dilations", "padding", "counts")
    along = {name: (attributes[name][axis],) for name in names}
    (kernel,), (stride,), (dilation,), _, (results,) = along.values()
    if attributes["function"] == "max":
        return Taps(results, stride, kernel, dilation)
    along["counts_padding"] = attributes["counts_padding"]
    weights = derived(_shares, (1, 1, shape[2 + axis]), along)
    return Taps(results, stride, kernel, dilation, weights)


def _shares(shape: tuple[int, ...], attributes: Attributes) -> Array:
    """What each element of a window along an axis counts for."""
    return np.ascontiguousarray(1 / pool_counts(shape, attributes).reshape(1, -1), np.float32)


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
