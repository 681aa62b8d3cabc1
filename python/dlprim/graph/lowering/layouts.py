"""Which arrays are kept in blocks of channels, so that convolutions reorder nothing between them.

Decided for the whole network before anything is made: a convolution makes blocks, and what can be
done on blocks as they lie goes on with them. What cannot gets a plain copy of what it reads.
"""

from __future__ import annotations

import math

from dlprim.graph.graph import Graph, Node, Value
from dlprim.graph.lowering.formulas import is_computed

# Number of groups that blocks do not cross, by value.
Blocked = dict[Value, int]


def is_blocked_convolution(graph: Graph, node: Node) -> bool:
    """Whether `dlprim.Conv2d` computes the node."""
    if node.operator != "convolution":
        return False
    x, w = node.operands[:2]
    return (
        len(x.shape) == 4
        and w in graph.constants
        and is_computed(x.dtype, node.output.dtype)
        and x.dtype == node.output.dtype == w.dtype
        and 0 not in node.output.shape
        and 0 not in x.shape
    )


def plain_reason(graph: Graph, node: Node) -> str:
    """Why a convolution is not one of blocks of channels, empty where it is."""
    if node.operator != "convolution" or is_blocked_convolution(graph, node):
        return ""
    x, w = node.operands[:2]
    if len(x.shape) != 4:
        return f"x has {len(x.shape)} axes, expected 4"
    if w not in graph.constants:
        return "its weights are computed, expected constants"
    return f"its types are {x.dtype} and {w.dtype}, or an array has no elements"


def groups_of(node: Node) -> int:
    """Groups that the blocks of a convolution's arrays do not cross: a depthwise one has none."""
    groups: int = node.attributes["groups"]
    x, w = node.operands[:2]
    return 1 if groups == x.shape[1] == w.shape[0] else groups


def _is_channel_like(value: Value, shape: tuple[int, ...]) -> bool:
    """Whether the value is broadcast to the shape as (1 or N, C, 1 or H, 1 or W)."""
    lead = (1,) * (4 - len(value.shape)) + value.shape
    return len(lead) == 4 and (lead[1] == shape[1] or value.size == 1)


def _blocked_map(graph: Graph, node: Node, blocked: Blocked) -> int | None:
    """Of a map one of whose operands is as large as the result, and blocked."""
    shape = node.output.shape
    if len(shape) != 4 or not is_computed(*(it.dtype for it in (*node.operands, node.output))):
        return None
    groups = {blocked[it] for it in node.operands if it in blocked}
    is_led = any(it in blocked and it.shape == shape for it in node.operands)
    if not is_led or len(groups) != 1:
        return None
    for value in node.operands:
        if value in blocked:
            continue
        if value not in graph.constants or not _is_channel_like(value, shape):
            return None
    return groups.pop()


def pooled(node: Node) -> Value:
    """What is pooled, or has the shape of it."""
    return node.output if node.operator == "pool_gradient" else node.operands[0]


def is_pool_of_blocks(node: Node) -> bool:
    """Whether `dlprim.MaxPool2d` or `AvgPool2d` computes a pooling of images, or its gradient."""
    x, attributes = pooled(node), node.attributes
    if len(x.shape) != 4 or not is_computed(x.dtype) or 0 in x.shape:
        return False
    axes = zip(
        x.shape[2:],
        attributes["kernel"],
        attributes["strides"],
        attributes["padding"],
        attributes["counts"],
        strict=True,
    )
    is_taken = set(attributes["dilations"]) == {1} and math.prod(attributes["kernel"]) <= 256
    return is_taken and all(
        front == back and 2 * front <= kernel and count == (n + 2 * front - kernel) // step + 1
        for n, kernel, step, (front, back), count in axes
    )


def is_global_mean(node: Node) -> bool:
    """Whether the node takes the mean of images."""
    return (
        node.operator == "reduce"
        and node.attributes["function"] == "mean"
        and len(node.operands[0].shape) == 4
        and sorted(axis % 4 for axis in node.attributes["axes"]) == [2, 3]
    )


def _keeps_blocks(graph: Graph, node: Node) -> bool:
    """Whether the first operand's blocks are those of the result."""
    if node.operator == "pool":
        return is_pool_of_blocks(node)
    if node.operator == "resample":
        is_known = all(it in graph.constants for it in node.operands[1:])
        return is_known and node.attributes["axis"] % 4 in (2, 3)
    return is_global_mean(node) and bool(node.attributes["keepdims"])


def blocked_values(graph: Graph, inputs: Blocked) -> Blocked:
    """The values that are made in blocks, or are inputs in blocks."""
    blocked: Blocked = dict(inputs)
    for node in graph.nodes:
        if is_blocked_convolution(graph, node):
            blocked[node.output] = groups_of(node)
        elif node.operator == "map":
            groups = _blocked_map(graph, node, blocked)
            if groups is not None:
                blocked[node.output] = groups
        elif not node.operands or node.operands[0] not in blocked:
            continue
        elif _keeps_blocks(graph, node):
            blocked[node.output] = blocked[node.operands[0]]
    return blocked
