"""How much memory a network takes, found out before any is."""

from __future__ import annotations

import math
import os
from collections.abc import Callable

from dlprim.graph.graph import Graph, Node
from dlprim.graph.operators.windows import pool_padding

# What a network may take unless somebody says less.
MOST_BYTES = 1 << 40
# Of an array that is computed ahead. A larger one costs more to keep than to compute.
MOST_FOLDED_BYTES = 1 << 26
# Operators whose results are their operands seen otherwise, and attributes of nodes whose results
# are never there as a whole.
_VIEWS = {"expand", "reshape", "slice", "transpose"}
_IN_PIECES = {"images", "pieces"}
# Of an element as operators compute by NumPy, with what stands beside it.
_WIDE, _COMPLEX = 8, 48


def _of_padding(node: Node) -> int:
    """What windows add around an array."""
    x = node.operands[0]
    padding = node.attributes["padding"]
    if node.operator == "pool":
        padding = pool_padding(x.shape, node.attributes)
    sides = zip(x.shape[2:], padding, strict=True)
    whole: int = math.prod(n + max(0, a) + max(0, b) for n, (a, b) in sides)
    return (math.prod(x.shape[:2]) * whole - x.size) * _WIDE


def _of_transposed(node: Node) -> int:
    """What is there before the padding is cut off."""
    x, w = node.operands[:2]
    it = node.attributes
    rows = zip(x.shape[2:], w.shape[2:], it["strides"], it["dilations"], strict=True)
    whole: int = math.prod((n - 1) * s + d * (k - 1) + 1 for n, k, s, d in rows)
    return (x.shape[0] * node.output.shape[1] * whole - node.output.size) * _WIDE


def _of_places(node: Node) -> int:
    """Every element of every window, and its place."""
    taps: int = math.prod(node.attributes["kernel"])
    return _of_padding(node) + 2 * node.outputs[0].size * taps * _WIDE


def _of_offsets(node: Node) -> int:
    """What is read for every tap of every window."""
    x, w = node.operands[:2]
    return 4 * x.shape[0] * x.shape[1] * math.prod((*w.shape[2:], *node.output.shape[2:])) * _WIDE


def _of_spectrum(node: Node) -> int:
    return max(node.operands[0].size, node.output.size) * _COMPLEX


_OPERATORS: dict[str, Callable[[Node], int]] = {
    "convolution": _of_padding,
    "pool": _of_padding,
    "transposed_convolution": _of_transposed,
}
_CALLS: dict[str, Callable[[Node], int]] = {
    "deform_conv": _of_offsets,
    "fourier": _of_spectrum,
    "max_pool_places": _of_places,
}


def half_of_memory() -> int:
    """Half of the machine's, in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def bytes_beside(node: Node) -> int:
    """What computing a node may take besides its operands and results."""
    table, name = _OPERATORS, node.operator
    if name == "call":
        table, name = _CALLS, node.attributes["function"]
    return table[name](node) if name in table and node.operands[0].size else 0


def require_room(what: str, count: int, most: int) -> None:
    """Refuses what takes more bytes than it may."""
    if count > most:
        raise ValueError(f"{what} would take {count} bytes, expected at most {most} (max_bytes)")


def require_room_for(graph: Graph, most: int) -> None:
    """Refuses a network whose results, or what a node takes beside others, are too large."""
    for node in graph.nodes:
        is_seen = node.operator in _VIEWS or not _IN_PIECES.isdisjoint(node.attributes)
        made = 0 if is_seen else sum(it.nbytes for it in node.outputs)
        require_room(f"{node.operator} '{node.name}'", made + bytes_beside(node), most)
    require_room("the results", sum(it.nbytes for it in graph.outputs), most)
