"""Which arrays are kept in blocks of channels, so that convolutions reorder nothing between them.

Decided for the whole network before anything is made: a convolution makes blocks, and what can be
done on blocks as they lie goes on with them, gradients too. What cannot gets a plain copy of what
it reads. Convolutions of weights that a run computes are on plain arrays where nothing beside them
is in blocks: they reorder portions of their arrays, which stay in caches meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from dlprim import _core
from dlprim.graph.expressions import number, operand
from dlprim.graph.extents import is_known, plain
from dlprim.graph.graph import Graph, Node, Value
from dlprim.graph.lowering.formulas import is_computed

# Number of groups that blocks do not cross, by value.
Blocked = dict[Value, int]

_ZERO = number(0.0)
# Of the gradient and the result of relu, by their places among the operands.
_RELU_GRADIENTS = {
    ("where", ("less_equal", operand(y), _ZERO), _ZERO, operand(diff)): (diff, y)
    for diff, y in ((0, 1), (1, 0))
}

_FEW_FILTERS = 4  # of a group, as cpp/primitives/volumes/image_conv.cpp has it

# That take and give blocks.
_ON_BLOCKS = (
    "batch_norm",
    "batch_norm_gradient",
    "convolution",
    "convolution_weights_gradient",
    "map",
    "pool",
    "pool_gradient",
    "transposed_convolution",
)


@lru_cache(maxsize=1024)
def activations(
    shape: tuple[int, ...], groups: int, dtype: str, layout: str = "blocked"
) -> _core.Activations:
    """Blocks of channels of images of this shape, or channels-last ones."""
    return _core.Activations(shape, groups, dtype, layout)


def block_shape_of(value: Value, groups: int) -> tuple[int, ...]:
    """Of the blocked form of (N, C, H, W)."""
    n, _, height, width = value.shape
    known = (plain(n), int(value.shape[1]), plain(height), plain(width))
    _, blocks, _, _, channels = activations(known, groups, value.dtype.name).shapes["packed"]
    return n, blocks, height, width, channels


def _are_images(*values: Value) -> bool:
    """Whether the arrays are (N, C, H, W) of one type that primitives take."""
    dtype = values[0].dtype
    return is_computed(dtype) and all(
        len(it.shape) == 4 and 0 not in it.shape and it.dtype == dtype for it in values
    )


def _are_weights(w: Value, x: Value) -> bool:
    """Whether weights are packed for such images: float32 is rounded as it is packed."""
    is_packed = w.dtype.name in ("float32", x.dtype.name)
    return is_packed and len(w.shape) == 4 and 0 not in w.shape


def is_blocked_convolution(graph: Graph, node: Node) -> bool:
    """Whether `dlprim.Conv2d` computes the node with weights that are known."""
    if node.operator != "convolution":
        return False
    x, w = node.operands[:2]
    is_known = w in graph.constants and w.dtype == x.dtype
    return is_known and _are_images(x, node.output)


def _takes_images(node: Node) -> bool:
    """Whether a pass of `dlprim.Conv2d` computes the node, whatever its weights are."""
    if min(map(min, node.attributes["padding"])) < 0:
        return False
    if node.operator == "convolution":
        x, w = node.operands[:2]
        bias = (*node.inputs, None)[2]
        is_added = bias is None or is_computed(bias.dtype)
        return is_added and _are_weights(w, x) and _are_images(x, node.output)
    if node.operator == "transposed_convolution":
        more = zip(node.attributes["output_padding"], node.attributes["strides"], strict=True)
        is_gradient = len(node.operands) == 2 and all(0 <= extra < step for extra, step in more)
        diff, w = node.operands[:2]
        return is_gradient and _are_weights(w, diff) and _are_images(diff, node.output)
    is_summed = node.output.dtype.name in ("float32", node.operands[0].dtype.name)
    return is_summed and _are_images(*node.operands) and 0 not in node.output.shape


def sums_blocks(node: Node, blocked: Blocked) -> bool:
    """Whether the gradient of weights is of arrays in blocks; on plain ones it has their type."""
    is_near = any(it in blocked for it in node.operands)
    return (is_near or node.output.dtype != node.operands[0].dtype) and _takes_images(node)


def is_pointwise(node: Node) -> bool:
    """Whether a convolution of float32 is a product of all pixels with one matrix."""
    x, w = node.operands[:2]
    numbers = (*w.shape[2:], *node.attributes["strides"], node.attributes["groups"])
    is_inside = not any(map(any, node.attributes["padding"]))
    return x.dtype == np.float32 and set(numbers) == {1} and is_inside


def is_of_few_filters(node: Node) -> bool:
    """Whether the core makes a product of a convolution, whose blocks would be empty mostly."""
    w, groups = node.operands[1], node.attributes["groups"]
    is_bare = node.attributes.get("activation") is None
    return is_bare and bool(w.shape[0] // groups <= _FEW_FILTERS)


def _plain_reason(graph: Graph, node: Node) -> str:
    x, w = node.operands[:2]
    if len(x.shape) != 4:
        return f"x has {len(x.shape)} axes, expected 4"
    if is_blocked_convolution(graph, node):
        return "it is a product on images as they lie, and nothing beside it is in blocks"
    if w not in graph.constants:
        return "its weights are computed, and nothing beside it is in blocks"
    return f"its types are {x.dtype} and {w.dtype}, or an array has no elements"


def groups_of(node: Node) -> int:
    """Groups that the blocks of a convolution's arrays do not cross: a depthwise one has none."""
    groups: int = node.attributes["groups"]
    ends = (node.output, node.operands[0])
    if node.operator == "convolution_weights_gradient":
        ends = (node.operands[0], node.operands[1])
    return 1 if all(it.shape[1] == groups for it in ends) else groups


def _is_channel_like(value: Value, shape: tuple[int, ...]) -> bool:
    """Whether the value is broadcast to the shape as (1 or N, C, 1 or H, 1 or W)."""
    lead = (1,) * (4 - len(value.shape)) + value.shape
    return len(lead) == 4 and (lead[1] == shape[1] or value.size == 1)


def relu_gradient(node: Node) -> tuple[Value, Value] | None:
    """The gradient and the result of a relu of which a map makes the gradient of what it was of."""
    places = _RELU_GRADIENTS.get(node.attributes["expression"]) if node.operator == "map" else None
    if places is None:
        return None
    diff, y = (node.operands[it] for it in places)
    is_alike = all((it.shape, it.dtype) == (diff.shape, diff.dtype) for it in (y, node.output))
    return (diff, y) if is_alike else None


def is_let_through(node: Node, y: Value, blocked: Blocked) -> bool:
    """Whether a map makes the gradient of relu in the blocks of its result y, as bits of y lie."""
    found = relu_gradient(node)
    is_of_it = found is not None and found[1] is y
    return is_of_it and y in blocked and blocked.get(node.output) == blocked[y]


def _blocked_map(node: Node, blocked: Blocked) -> int | None:
    """Of a map one of whose operands is as large as the result, and blocked."""
    shape = node.output.shape
    if len(shape) != 4 or not is_computed(*(it.dtype for it in (*node.operands, node.output))):
        return None
    if not all(_is_channel_like(it, shape) for it in node.operands):
        return None
    found = relu_gradient(node)
    # What relu let through is known in the blocks of its result: others are reordered to these.
    operands = node.operands if found is None else found[::-1]
    return next((blocked[it] for it in operands if it.shape == shape and it in blocked), None)


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


def is_sum_of_pixels(node: Node) -> bool:
    """Whether the node sums images, or takes their mean, over all that is not channels."""
    return (
        node.operator == "reduce"
        and node.attributes["function"] in ("sum", "mean")
        and len(node.operands[0].shape) == 4
        and {axis % 4 for axis in node.attributes["axes"]} >= {0, 2, 3}
    )


def _keeps_blocks(graph: Graph, node: Node) -> bool:
    """Whether the first operand's blocks are those of the result."""
    if node.operator == "pool":
        return is_pool_of_blocks(node)
    if node.operator == "resample":
        is_known = all(it in graph.constants for it in node.operands[1:])
        return is_known and node.attributes["axis"] % 4 in (2, 3)
    return is_global_mean(node) and bool(node.attributes["keepdims"])


class _Layout:
    """Values in blocks, by and by."""

    def __init__(self, graph: Graph, inputs: Blocked) -> None:
        self._graph, self._readers, self._makers = graph, graph.readers(), graph.makers()
        self.blocked: Blocked = dict(inputs)

    def _is_read_so(self, value: Value) -> bool:
        """Whether something that reads the value could do so in blocks."""
        return any(it.operator in _ON_BLOCKS for it in self._readers.get(value, ()))

    def _is_product_alone(self, node: Node) -> bool:
        """Whether it is faster on images as they lie, and nothing beside it is in blocks."""
        x, residual = node.operands[0], (*node.inputs, None, None)[3]
        is_product = is_pointwise(node) or is_of_few_filters(node)
        if not is_product or residual is not None or x in self.blocked:
            return False
        maker, readers = self._makers.get(x), self._readers.get(node.output, ())
        is_moved = any(it is not None and it.operator == "transpose" for it in (maker, *readers))
        others = [it for it in self._readers[x] if it is not node and it.operator in _ON_BLOCKS]
        others += [it for it in readers if _keeps_blocks(self._graph, it)]
        return not is_moved and not others and not self._is_read_so(node.output)

    def groups(self, node: Node) -> int | None:
        """Of the blocks in which the node's first result is made, None where it is not."""
        blocked, operator, y = self.blocked, node.operator, node.outputs[0]
        if operator == "convolution" and is_blocked_convolution(self._graph, node):
            return None if self._is_product_alone(node) else groups_of(node)
        if operator in ("convolution", "transposed_convolution"):
            is_near = node.operands[0] in blocked or self._is_read_so(y)
            return groups_of(node) if is_near and _takes_images(node) else None
        if operator in ("batch_norm", "batch_norm_gradient"):
            x = node.operands[0 if operator == "batch_norm" else 1]
            return blocked.get(x, 1) if _are_images(x) else None
        if operator == "map":
            return _blocked_map(node, blocked)
        if operator == "pool_gradient":
            is_near = any(it in blocked for it in node.operands) and is_pool_of_blocks(node)
            return blocked.get(node.operands[-1], 1) if is_near else None
        if operator == "expand":
            return self._of_spread(node)
        if operator == "reshape":
            return self._of_joined(node)
        is_kept = node.operands and node.operands[0] in blocked
        return blocked[node.operands[0]] if is_kept and _keeps_blocks(self._graph, node) else None

    def _of_spread(self, node: Node) -> int | None:
        """Of an array that is repeated over pixels for the gradient of something in blocks."""
        (x,), y = node.operands, node.output
        is_image = len(x.shape) == 4 and _are_images(x, y) and x.shape[1] == y.shape[1]
        readers = self._readers.get(y, ())
        is_gradient = any(it.operator.endswith("_gradient") for it in readers)
        return 1 if is_image and is_gradient and x not in self._graph.constants else None

    def _of_joined(self, node: Node) -> int | None:
        """Of images whose channels come in the blocks that they are wanted in."""
        (x,), y = node.operands, node.output
        if len(x.shape) != 5 or not _are_images(y) or not is_known((*x.shape, *y.shape)):
            return None
        n, blocks, height, width, channels = block_shape_of(y, 1)
        is_alike = x.shape == (n, blocks, channels, height, width)
        return 1 if is_alike and self._is_read_so(y) else None


def plain_reasons(graph: Graph) -> Iterator[tuple[Node, str]]:
    """The convolutions that are not ones of blocks of channels, and why."""
    blocked = blocked_values(graph, {})
    for node in graph.nodes:
        if node.operator == "convolution" and node.output not in blocked:
            yield node, _plain_reason(graph, node)


def blocked_values(graph: Graph, inputs: Blocked) -> Blocked:
    """The values that are made in blocks, or are inputs in blocks."""
    layout = _Layout(graph, inputs)
    for node in graph.nodes:
        groups = layout.groups(node)
        if groups is None:
            continue
        layout.blocked[node.outputs[0]] = groups
        if node.operator == "batch_norm_gradient" and node.attributes["residual"]:
            layout.blocked[node.outputs[-1]] = groups
    return layout.blocked
