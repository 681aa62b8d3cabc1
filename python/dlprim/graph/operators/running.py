"""Functions for `call` nodes along an axis: sums and products of all elements up to each one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.graph.expressions import number, operand
from dlprim.graph.graph import Node, Value
from dlprim.graph.operators.elements import converted
from dlprim.graph.operators.indexed import alike
from dlprim.graph.operators.operator import Arrays, Attributes, Values, callee, there, widened

if TYPE_CHECKING:
    from dlprim.graph.builder import Builder


def _running_sum_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    turned = {**node.attributes, "reverse": not node.attributes["reverse"]}
    return [b.emit("call", [diffs[0]], **turned)[0]]


def _running_product_gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    """For each element the products that it is in, without it, so that zeros may be among them.

    They are a matrix for each row: products of the elements in front, times those from behind the
    element up to each result.
    """
    (x,), axis, form = node.operands, node.attributes["axis"], node.attributes
    axes = [*(it for it in range(len(x.shape)) if it != axis), axis]
    rows, diff = (_last(b, it, axes, form["reverse"]) for it in (x, there(diffs[0])))
    count = x.shape[axis]
    last = len(axes) - 1
    if form["exclusive"] and count:
        starts = [1 if it == last else 0 for it in range(len(axes))]
        inner = (*rows.shape[:-1], count - 1)
        diff = b.slice(diff, starts, inner, [1] * len(axes))
        diff = b.emit("pad", [diff], mode="constant", widths=((0, 0),) * last + ((0, 1),))[0]
    how = {"axis": last, "exclusive": True, "reverse": False}
    before = alike(b, "running_product", rows, [rows], **how)
    behind = b.constant(np.tri(count, count, -1, dtype=bool).T, "behind")
    factors = b.map(
        ("where", operand(1), operand(0), number(1.0)),
        b.reshape(rows, (*rows.shape[:-1], 1, count)),
        behind,
    )
    how = {"axis": last + 1, "exclusive": False, "reverse": False}
    products = alike(b, "running_product", factors, [factors], **how)
    reached = b.constant(np.tri(count, count, dtype=bool).T, "reached")
    shares = b.map(
        ("where", operand(2), ("multiply", operand(0), operand(1)), number(0.0)),
        products,
        b.reshape(diff, (*rows.shape[:-1], 1, count)),
        reached,
    )
    made = b.apply("multiply", before, b.reduce("sum", shares, (last + 1,)))
    return [_from_last(b, made, axes, form["reverse"])]


def _last(b: Builder, x: Value, axes: list[int], is_turned: bool) -> Value:
    """x with the axes in this order, the last one turned."""
    moved = b.transpose(x, axes)
    return _turned(b, moved) if is_turned else moved


def _from_last(b: Builder, x: Value, axes: list[int], is_turned: bool) -> Value:
    moved = _turned(b, x) if is_turned else x
    return b.transpose(moved, [axes.index(axis) for axis in range(len(axes))])


def _turned(b: Builder, x: Value) -> Value:
    last = len(x.shape) - 1
    starts = [max(0, x.shape[it] - 1) if it == last else 0 for it in range(last + 1)]
    return b.slice(x, starts, x.shape, [-1 if it == last else 1 for it in range(last + 1)])


def _running(compute: Callable[..., Any], first: int) -> Callable[..., list[Any]]:
    def summed(arrays: Arrays, attributes: Attributes) -> list[Any]:
        """Along an axis, of all elements up to each one, or in front of it if ``exclusive``."""
        x, axis = arrays[0], attributes["axis"]
        y = np.flip(widened(x), axis) if attributes["reverse"] else widened(x)
        if attributes["exclusive"] and x.shape[axis]:
            one = np.full_like(np.take(y, [0], axis=axis), first)
            rest = np.take(y, np.arange(x.shape[axis] - 1), axis=axis)
            y = np.concatenate([one, rest], axis=axis)
        with np.errstate(all="ignore"):
            y = compute(y, axis=axis)
        y = np.flip(y, axis) if attributes["reverse"] else y
        return [converted(y, x.dtype)]

    return summed


callee("running_sum", _running_sum_gradient)(_running(np.cumsum, 0))
callee("running_product", _running_product_gradient)(_running(np.cumprod, 1))
