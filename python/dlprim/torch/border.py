"""Images that the forward pass keeps for the backward one, in the blocks that both compute on.

PyTorch hands on what a graph saves, whatever it is: nobody but the other graph looks at it. So
images are saved as arrays (N, blocks, H, W, channels of a block), which are what a network has of
them, and neither pass reorders anything. PyTorch runs the functions here as they are.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from dlprim.graph.graph import Value
from dlprim.graph.lowering.layouts import block_shape_of
from dlprim.torch.again import wide_convolution_backward
from dlprim.torch.operators import DTYPES

_aten = torch.ops.aten
# Gradients that are computed on blocks, and what hands a gradient on to these: all of them take the
# gradient of the result, and images that are theirs.
_ON_BLOCKS = (
    _aten.convolution_backward.default,
    _aten.native_batch_norm_backward.default,
    _aten.threshold_backward.default,
    wide_convolution_backward,
)


def in_blocks(x: Any, channels: int) -> Any:
    """Images (N, C, H, W) in blocks of so many channels."""
    n, c, height, width = x.shape
    split = x.reshape(n, c // channels, channels, height, width)
    return split.permute(0, 1, 3, 4, 2).contiguous()


def from_blocks(x: Any) -> Any:
    """Images (N, C, H, W) of blocks of channels."""
    n, blocks, height, width, channels = x.shape
    return x.permute(0, 1, 4, 2, 3).reshape(n, blocks * channels, height, width)


def _channels(tensor: Any) -> int | None:
    """Of a block of such images, None where they have no whole ones."""
    is_known = isinstance(tensor, torch.Tensor) and all(isinstance(it, int) for it in tensor.shape)
    dtypes = (torch.float32, torch.bfloat16)
    if not is_known or tensor.dim() != 4 or tensor.dtype not in dtypes or not tensor.numel():
        return None
    value = Value("images", tuple(tensor.shape), DTYPES[tensor.dtype])
    _, blocks, _, _, channels = block_shape_of(value, 1)
    return channels if blocks * channels == tensor.shape[1] else None


def _source(node: Node) -> Node:
    """What the node is, behind names that PyTorch gives it for autograd's sake."""
    while node.target in (_aten.detach.default, _aten.alias.default):
        (node,) = node.all_input_nodes
    return node


def saved_in_blocks(forward: GraphModule, backward: GraphModule, results: int) -> None:
    """Saves images in blocks; behind so many results of the forward graph is what it saves."""
    end = next(it for it in forward.graph.nodes if it.op == "output")
    outputs = list(end.args[0])
    placeholders = {it.name: it for it in backward.graph.nodes if it.op == "placeholder"}
    known: dict[Node, tuple[Node, Node]] = {}  # in blocks in the one graph, plain in the other
    for at, saved in enumerate(outputs):
        if at < results or not isinstance(saved, Node):
            continue
        node, read = _source(saved), placeholders.get(saved.name)
        channels = _channels(node.meta.get("val"))
        if read is None or channels is None or not (node in known or _is_for_blocks(node, read)):
            continue
        if node not in known:
            known[node] = _both_ways(node, channels, end, read)
        outputs[at], plain = known[node]
        read.replace_all_uses_with(plain, delete_user_cb=lambda it, plain=plain: it is not plain)
        read.meta["val"] = outputs[at].meta["val"]
    end.args = (tuple(outputs),)
    for graph in (forward, backward):
        graph.recompile()


def _both_ways(node: Node, channels: int, end: Node, read: Node) -> tuple[Node, Node]:
    whole = node.meta["val"]
    n, c, height, width = whole.shape
    with end.graph.inserting_before(end):
        blocks = end.graph.call_function(in_blocks, (node, channels))
    blocks.meta["val"] = whole.new_empty((n, c // channels, height, width, channels))
    first = next(it for it in read.graph.nodes if it.op != "placeholder")
    with read.graph.inserting_before(first):
        plain = read.graph.call_function(from_blocks, (read,))
    plain.meta["val"] = whole
    return blocks, plain


def _is_for_blocks(node: Node, read: Node) -> bool:
    """Whether it is computed, and read by what takes blocks."""
    readers = [it for it in read.users if it.target in _ON_BLOCKS and read in it.args[:2]]
    return node.op == "call_function" and bool(readers)
