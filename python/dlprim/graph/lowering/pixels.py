"""Steps on the pixels of images in blocks: sums and means of them, and the gradient of relu.

That gradient and its sums by channel, the gradient of a bias, are one pass over memory. Where a
layer keeps bits that say what relu let through, it reads these.
"""

from __future__ import annotations

import numpy as np

from dlprim.graph.graph import Node, Value
from dlprim.graph.lowering.formulas import text_of_sum
from dlprim.graph.lowering.layouts import (
    activations,
    is_global_mean,
    is_let_through,
    is_sum_of_pixels,
    relu_gradient,
)
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.lowering.place import Place

_SINGLE = np.dtype(np.float32)


def lower_relu_gradient(to: Lowering, node: Node) -> bool:
    """With its sums by channel, where they are asked for."""
    found, groups = relu_gradient(node), to.blocked[node.output]
    if found is None:
        return False
    diff, y = found
    is_known = is_let_through(node, y, to.blocked)
    mask = to.shared.get(("relu mask", y)) if is_known else None
    values = {"diff_dst": to.blocks(diff, groups)}
    values |= {"dst": to.blocks(y, groups)} if mask is None else {"relu_mask": mask}
    values["diff_src"] = to.new_blocks(node.output, groups)
    if any(is_sum_of_pixels(it) for it in to.readers.get(node.output, ())):
        values["diff_bias"] = _new_sums(to, node.output)
    form = to.call(activations, diff.shape, groups, diff.dtype.name)
    to.network.relu_backward(form, f"map {node.name}", **values)
    return True


def _new_sums(to: Lowering, x: Value) -> int:
    """Memory for the sums by channel of an array, of which other steps learn."""
    number: int = to.network.temporary(x.shape[1:2], _SINGLE)
    to.shared["sums", x] = number
    return number


def _channel_sums(to: Lowering, x: Value, label: str) -> Place:
    """The sums in float32 over all that is not channels."""
    sums = to.shared.get(("sums", x))
    if sums is None:
        groups = to.blocked[x]
        sums = _new_sums(to, x)
        form = to.call(activations, x.shape, groups, x.dtype.name)
        to.network.relu_backward(form, label, diff_dst=to.blocks(x, groups), diff_bias=sums)
    return Place.dense(sums, x.shape[1:2], _SINGLE)


def lower_image_sums(to: Lowering, node: Node) -> bool:
    """Sums or means of pixels of each image, or of all images, and of channels behind these."""
    if is_global_mean(node):
        return _lower_global_mean(to, node)
    if not is_sum_of_pixels(node):
        return False
    (x,), function = node.operands, node.attributes["function"]
    label, is_total = f"{function} {node.name}", len(node.attributes["axes"]) == 4
    sums = _channel_sums(to, x, label)
    if is_total or function == "mean" or node.output.dtype != _SINGLE:
        (channels,) = sums.shape
        row = sums.reshaped((1, channels))
        assert row is not None
        parts = ("y(i) +=!" if is_total else "y(j) +=!", "x(i,j)")
        result = to.new((1,) if is_total else (channels,), node.output.dtype)
        pixels = x.size if is_total else x.shape[0] * x.shape[2] * x.shape[3]
        text = text_of_sum(row.shape, parts, pixels if function == "mean" else 1)
        if not to.formula(text, [row], result, label):
            return False
        sums = result
    reshaped = sums.reshaped(node.output.shape)
    assert reshaped is not None
    to.put(node.output, reshaped)
    return True


def _lower_global_mean(to: Lowering, node: Node) -> bool:
    (x,) = node.operands
    groups = to.blocked[x]
    n, c, h, w, b = to.block_shape(x, groups)
    place = Place.dense(to.blocks(x, groups), (n, c, h * w, b), x.dtype)
    whole = Value(node.output.name, (*x.shape[:2], 1, 1), node.output.dtype)
    result = to.new((n, c, b), whole.dtype)
    text = text_of_sum(place.shape, ("y(n,c,b) +=!", "x(n,c,p,b)"), h * w)
    if not to.formula(text, [place], result, f"mean {node.name}"):
        return False
    blocks = Place.dense(result.root, (n, c, 1, 1, b), whole.dtype)
    to.put_blocks(whole, groups, to.number(blocks))
    if node.attributes["keepdims"]:
        to.put_blocks(node.output, groups, to.number(blocks))
    else:
        reshaped = to.place(whole).reshaped(node.output.shape)
        assert reshaped is not None
        to.put(node.output, reshaped)
    return True


def keeps_mask(to: Lowering, y: Value) -> bool:
    """Whether something asks what the relu that made y let through."""
    for it in to.readers.get(y, ()):
        if it.operator == "batch_norm_gradient" and it.inputs[5] is y:
            return True
        if is_let_through(it, y, to.blocked):
            return True
    return False
