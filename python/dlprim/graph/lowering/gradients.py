"""Steps for what gradients are made of: convolutions on plain arrays of weights that runs compute,
and the passes backward of these, of pools and of tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim import _core
from dlprim.functions.convolution import plain_conv
from dlprim.graph.graph import Node, Value
from dlprim.graph.lowering.formulas import is_computed, map_formula
from dlprim.graph.lowering.layouts import is_pool_of_blocks
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.lowering.parameters import row_of
from dlprim.graph.lowering.windows import new_taps, pooling, taps_of
from dlprim.primitives.conv_arguments import Geometry

Shape = tuple[int, ...]


def _plain(
    x_shape: Shape, w_shape: Shape, form: tuple[Any, ...], dtype: str, how: tuple[str | None, bool]
) -> _core.PlainConv2d:
    """On plain arrays; ``how`` is the activation, and whether there is a bias."""
    numbers: Any = (x_shape, w_shape, *form)
    activation, has_bias = how
    return plain_conv(Geometry(*numbers), dtype, has_bias, activation)


def _form_of(node: Node) -> tuple[Any, ...]:
    return tuple(node.attributes[it] for it in ("strides", "padding", "dilations", "groups"))


def _is_plain(node: Node, *values: Value) -> bool:
    """Whether the core's convolution on plain arrays takes arrays like these."""
    dtype = values[0].dtype
    return (
        all(len(it.shape) == 4 and 0 not in it.shape for it in values)
        and is_computed(*(it.dtype for it in values))
        and values[-1].dtype == dtype
        and min(min(pair) for pair in node.attributes["padding"]) >= 0
    )


def _number(to: Lowering, value: Value | None) -> int:
    return -1 if value is None else to.number(to.dense(value))


def _weights(to: Lowering, node: Node) -> int:
    """In the type of the images."""
    x, w = node.operands[:2]
    if w.dtype == x.dtype:
        return _number(to, w)
    rounded = to.new(w.shape, x.dtype)
    formula = map_formula(("input", 0), [to.dense(w)], rounded)
    assert formula is not None
    to.formula(*formula, f"{w.name} rounded")
    return to.number(rounded)


def lower_plain_convolution(to: Lowering, node: Node) -> bool:
    """Of weights that are no constants, packed in each run."""
    x, w = node.operands[:2]
    bias, residual = (*node.inputs[2:], None, None)[:2]
    if not _is_plain(node, x, w, node.output):
        return False
    row = -1 if bias is None else row_of(to, bias, bias.size)
    if row is None:
        return False
    how = (node.attributes.get("activation"), bias is not None)
    conv = to.call(_plain, x.shape, w.shape, _form_of(node), x.dtype.name, how)
    to.network.plain_conv2d(
        conv,
        f"convolution {node.name}",
        x=_number(to, x),
        w=_weights(to, node),
        bias=row,
        residual=_number(to, residual),
        y=to.number(to.result(node.output)),
    )
    return True


def lower_plain_images_gradient(to: Lowering, node: Node) -> bool:
    """The gradient of the images of a convolution, whatever it is here."""
    x, w = node.operands[:2]
    more = zip(node.attributes["output_padding"], node.attributes["strides"], strict=True)
    is_gradient = len(node.operands) == 2 and all(0 <= extra < step for extra, step in more)
    if not is_gradient or not _is_plain(node, x, w, node.output):
        return False
    conv = to.call(_plain, node.output.shape, w.shape, _form_of(node), x.dtype.name, (None, False))
    to.network.plain_conv2d_backward(
        conv,
        f"transposed convolution {node.name}",
        dy=_number(to, x),
        w=_weights(to, node),
        dx=to.number(to.result(node.output)),
    )
    return True


def lower_plain_weights_gradient(to: Lowering, node: Node) -> bool:
    """The pass of weights; it makes the gradient of a bias, too, which nothing reads."""
    x, diff = node.operands
    if not _is_plain(node, x, diff, node.output):
        return False
    w_shape = node.output.shape
    conv = to.call(_plain, x.shape, w_shape, _form_of(node), x.dtype.name, (None, False))
    to.network.plain_conv2d_backward(
        conv,
        f"weights of {node.name}",
        dy=_number(to, diff),
        x=_number(to, x),
        dw=to.number(to.result(node.output)),
        db=to.network.temporary(w_shape[:1], np.float32),
    )
    return True


def lower_pool_gradient(to: Lowering, node: Node) -> bool:
    """On blocks; a maximum stands where the pooling has found it, or is looked for again."""
    diff, x = (*node.inputs, None)[:2]
    assert diff is not None
    if not is_pool_of_blocks(node):
        return False
    groups, label = to.blocked.get(node.output, 1), f"gradient of {node.name}"
    values: dict[str, int] = {}
    if x is not None:
        values["taps"] = _taps(to, node, x, groups)
    values["diff_dst"] = to.blocks(diff, groups)
    values["diff_src"] = to.new_blocks(node.output, groups)
    to.network.pool_backward(pooling(to, node, groups), label, **values)
    return True


def _taps(to: Lowering, node: Node, x: Value, groups: int) -> int:
    known = to.shared.get(taps_of(node))
    if known is not None:
        return known
    y = node.operands[0]  # of its shape
    again = to.network.temporary(to.block_shape(y, groups), y.dtype)
    taps = new_taps(to, node, y, groups)
    to.network.pool(
        pooling(to, node, groups),
        f"pool {node.name}",
        src=to.blocks(x, groups),
        dst=again,
        taps=taps,
    )
    return taps


def lower_scatter_add(to: Lowering, node: Node) -> bool:
    """Sums of rows in the order of places, in float32."""
    places, x = node.operands
    axis, depth = node.attributes["axis"], len(places.shape)
    if not is_computed(x.dtype) or not (x.size and node.output.size):
        return False
    if places.dtype.name not in ("int32", "int64"):
        return False
    label = f"scatter {node.name}"
    rank = len(x.shape)
    lead, own = tuple(range(axis)), tuple(range(axis, axis + depth))
    source = to.place(x).transposed((*own, *lead, *range(axis + depth, rank)))
    if not source.is_dense:
        strided, source = source, to.new(source.shape, x.dtype)
        to.network.copy(to.number(strided), to.number(source), label)
    shape = (node.attributes["extent"], *source.shape[depth:])
    sums = to.new(shape, np.dtype(np.float32))
    indices = to.number(to.dense(places))
    argument = node.attributes.get("argument", "")
    to.network.scatter_add(to.number(source), indices, to.number(sums), label, argument)
    result = sums
    if node.output.dtype != np.float32:
        result = to.new(shape, node.output.dtype)
        rounded = map_formula(("input", 0), [sums], result)
        if rounded is None or not to.formula(*rounded, label):
            return False
    to.put(
        node.output, result.transposed((*(it + 1 for it in lead), 0, *range(axis + 1, len(shape))))
    )
    return True
