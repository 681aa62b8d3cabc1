"""Calls of functions that the core has too: neither formulas nor products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dlprim.graph.graph import Node
from dlprim.graph.lowering.indexed import PLACED
from dlprim.graph.lowering.integers import TYPES
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.lowering.products import lower_panel_product

_FLOATS = ("float32", "float64")


class _Native(NamedTuple):
    """Of which types the core has a function, by the operand that says so; attributes in words."""

    dtypes: tuple[str, ...]
    operand: int = 0
    words: Mapping[str, tuple[str, ...]] = {}


_MODES = {"mode": ("nearest", "linear")}
_NATIVE = {
    "argmax": _Native(tuple(TYPES)),
    "argmin": _Native(tuple(TYPES)),
    "crop_and_resize": _Native(("float32",), words=_MODES),
    "in_bytes": _Native(("float32",)),
    "inverse": _Native(_FLOATS),
    "look_up": _Native((*_FLOATS, "int64", "timedelta64")),
    "murmur3": _Native((*_FLOATS, "int32", "int64", "uint32", "uint64")),
    "one_hot": _Native(("int64",)),
    "repeated_ngrams": _Native(("float32",), 1),
    "tree_sums": _Native(_FLOATS),
    "weighted_rows": _Native(_FLOATS),
}
# Of matrices beyond, LAPACK's blocks take less time.
_MOST_INVERTED = 128


def _suits(function: str, native: _Native, node: Node) -> bool:
    """Whether the core has the function for these operands."""
    first, *others = node.operands
    if node.operands[native.operand].dtype.name not in native.dtypes:
        return False
    if 0 in (it.size for it in (first, *node.outputs)):
        return False
    if function == "inverse":
        return first.shape[-1] <= _MOST_INVERTED
    if function == "look_up":
        return others[0].dtype.kind == first.dtype.kind.replace("m", "i")
    return True


def lower_call(to: Lowering, node: Node) -> bool:
    """A step of the core, where it has the function for these types."""
    attributes = dict(node.attributes)
    function = attributes.pop("function")
    if function == "panel_product":
        return lower_panel_product(to, node)
    if function in PLACED:
        return PLACED[function](to, node)
    native = _NATIVE.get(function)
    operands = node.operands
    if native is None or not _suits(function, native, node):
        return False
    del attributes["results"]
    numbers = {
        name: float(native.words[name].index(value) if name in native.words else value)
        for name, value in attributes.items()
    }
    inputs = [to.number(to.dense(value)) for value in operands]
    outputs = [to.number(to.result(value)) for value in node.outputs]
    to.network.function(function, numbers, inputs, outputs, f"{function} {node.name}")
    return True
