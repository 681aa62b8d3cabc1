"""Operators that name strides, where they say no more than a view does.

PyTorch's own functions write strides into what they made, such as the mean of channels-last
images, and the gradient of that scatters through them. Networks have no strides, and those of an
intermediate result are nobody's business: what takes all elements in the order of the axes is a
view.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from dlprim.torch.forms import form_of

_aten = torch.ops.aten


def _axes(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Those that say something about memory."""
    return [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]


def _in_c_order(shape: Sequence[int]) -> list[tuple[int, int]]:
    return _axes(shape, [math.prod(shape[axis + 1 :]) for axis in range(len(shape))])


def _takes_all(node: Any, shape: Sequence[Any], strides: Sequence[Any], offset: Any) -> bool:
    """Whether the strides see every element of a tensor once, in the order of its axes."""
    tensor = node.meta["val"]
    own = tuple(tensor.shape), tensor.stride()
    if not all(isinstance(it, int) for it in (*own[0], *own[1], *shape, *strides)):
        return False
    if offset not in (None, tensor.storage_offset()) or math.prod(shape) != tensor.numel():
        return False
    form = form_of(*own)
    if form.has_gaps or form.spread:
        return False
    wanted = _axes(shape, strides)
    return wanted == _axes(*own) or (_in_c_order(shape) == wanted and tensor.is_contiguous())


def _view(node: Node) -> tuple[Any, Sequence[int]] | None:
    """What the node sees in which shape, None where it is no view."""
    args: Any = node.args
    if node.target is _aten.as_strided.default:
        x, shape, strides = args[:3]
        return (x, shape) if _takes_all(x, shape, strides, (*args, None)[3]) else None
    if node.target is _aten.as_strided_scatter.default:
        x, part, shape, strides = args[:4]
        is_whole = _takes_all(x, shape, strides, (*args, None)[4])
        return (part, tuple(x.meta["val"].shape)) if is_whole else None
    if node.target is _aten.copy.default:
        old, new = (it.meta["val"] for it in args[:2])
        is_alike = (old.dtype, old.shape) == (new.dtype, new.shape)
        return (args[1], tuple(new.shape)) if is_alike else None
    return None


def as_views(traced: GraphModule) -> None:
    """Replaces operators that name strides by views."""
    for node in list(traced.graph.nodes):
        found = _view(node) if node.op == "call_function" else None
        if found is None or not all(isinstance(it, int) for it in found[1]):
            continue
        with traced.graph.inserting_before(node):
            made = traced.graph.call_function(_aten.view.default, (found[0], list(found[1])))
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        traced.graph.erase_node(node)
