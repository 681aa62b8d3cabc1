"""Nodes that no step computes as they are, as several that have steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Graph, Node, Value
from dlprim.graph.operators.norms import normalises_alone
from dlprim.graph.operators.populations import NORMALISED, channels_of, factor_of
from dlprim.graph.passes.bfloat16 import cast
from dlprim.graph.passes.draft import Draft

_HALF, _SINGLE = np.dtype(np.float16), np.dtype(np.float32)
_LONG_ROW = 32  # elements
# What engines compute in float32. Maps do so of halves that they load and store; moves and what
# finds elements by index do not look at them.
_IN_FLOAT32 = (
    "add_normalize",
    "attention",
    "attention_gradient",
    "batch_norm",
    "batch_norm_gradient",
    "convolution",
    "cross_entropy",
    "dequantize",
    "dropout",
    "einsum",
    "group_norm",
    "matmul",
    "normalize",
    "normalize_gradient",
    "pool",
    "quantize",
    "recurrent",
    "recurrent_gradient",
    "reduce",
    "resample",
    "softmax",
    "softmax_gradient",
    "transposed_convolution",
)
_FEW_BITS = ("int4", "uint4", "int2", "uint2")
X, Y, Z = operand(0), operand(1), operand(2)


def _is_tiled(pool: Node) -> bool:
    """Whether windows lie side by side in long rows, and read each element once at most."""
    it = pool.attributes
    is_apart = all(size <= step for size, step in zip(it["kernel"], it["strides"], strict=True))
    is_inside = not any(map(any, it["padding"]))
    return is_apart and is_inside and pool.operands[0].shape[-1] >= _LONG_ROW


def _in_float32(draft: Draft, node: Node) -> Sequence[Value] | None:
    """A node of float16 on float32, what it makes rounded to float16."""
    values = (*node.operands, *node.outputs)
    if node.operator not in _IN_FLOAT32 or all(it.dtype != _HALF for it in values):
        return None
    if node.operator == "pool" and draft.maker(node.operands[0]) is None and _is_tiled(node):
        return None  # of an input, which nothing has in float32: rows are read as they are
    operands = [
        cast(draft, it, _SINGLE) if it is not None and it.dtype == _HALF else it
        for it in node.inputs
    ]
    attributes = dict(node.attributes)
    if attributes.get("dtype") == _HALF.name:
        attributes["dtype"] = _SINGLE.name
    results = draft.emit(node.operator, operands, node.name, **attributes)
    zipped = zip(results, node.outputs, strict=True)
    return tuple(cast(draft, made, value.dtype) for made, value in zipped)


def round_halves(graph: Graph) -> Graph:
    """Networks of float16 compute in float32 and round what each operator makes."""

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        return _in_float32(draft, node)

    return Draft(graph).apply(rule)


def _softmax(draft: Draft, node: Node) -> Sequence[Value] | None:
    """Of doubles: by reductions and maps."""
    (x,) = node.operands
    if x.dtype != np.float64 or 0 in x.shape:
        return None
    axes, dtype = (node.attributes["axis"] % len(x.shape),), x.dtype.name

    def reduced(function: str, value: Value) -> Value:
        attributes = {"function": function, "axes": axes, "keepdims": True}
        return draft.emit("reduce", [value], node.name, **attributes)[0]

    def mapped(expression: tuple[object, ...], *values: Value) -> Sequence[Value]:
        return draft.emit("map", values, node.name, expression=expression, dtype=dtype)

    highest = reduced("max", x)
    (power,) = mapped(("exp", ("subtract", X, Y)), x, highest)
    total = reduced("sum", power)
    if node.attributes["log"]:
        return mapped(("subtract", ("subtract", X, Y), ("log", Z)), x, highest, total)
    return mapped(("divide", X, Y), power, total)


def _group_norm(draft: Draft, node: Node) -> Sequence[Value] | None:
    """Rows that are normalised, and a map by channels, but where one row program does both."""
    if normalises_alone(node, draft.constants):
        return None
    x = node.operands[0]
    groups = node.attributes["groups"]
    rows = (x.shape[0], groups, math.prod(x.shape[1:]) // groups)
    attributes = {"axes": 1, "rms": False, "epsilon": node.attributes["epsilon"]}
    (flat,) = draft.emit("reshape", [x], node.name, shape=rows)
    (made,) = draft.emit("normalize", [flat], node.name, **attributes)
    (whole,) = draft.emit("reshape", [made], node.name, shape=x.shape)
    channels = (x.shape[1], *[1] * (len(x.shape) - 2))
    expression, operands = X, [whole]
    for function, parameter in zip(("multiply", "add"), node.inputs[1:], strict=True):
        if parameter is not None:
            expression = (function, expression, operand(len(operands)))
            operands += draft.emit("reshape", [parameter], node.name, shape=channels)
    if len(operands) == 1:
        return (whole,)
    return draft.emit("map", operands, node.name, expression=expression, dtype=x.dtype.name)


def _population_norm(draft: Draft, node: Node) -> Sequence[Value] | None:
    """A map by channels, whose factor is made of what there is for each."""
    x, mean, variance, weight, bias = node.operands
    factor = factor_of(node.attributes["epsilon"])
    dtype = x.dtype.name
    (made,) = draft.emit("map", [weight, variance], node.name, expression=factor, dtype=dtype)
    spread = [
        draft.emit("reshape", [it], node.name, shape=channels_of(x))[0] for it in (mean, made, bias)
    ]
    return draft.emit("map", [x, *spread], node.name, expression=NORMALISED, dtype=dtype)


def _matmul(draft: Draft, node: Node) -> Sequence[Value] | None:
    """Vectors as matrices of one row or column."""
    if len(node.operands) != 2 or "activation" in node.attributes:
        return None
    a, b = node.operands
    if len(a.shape) > 1 and len(b.shape) > 1:
        return None
    rows = a.shape if len(a.shape) > 1 else (1, *a.shape)
    columns = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    (left,) = draft.emit("reshape", [a], node.name, shape=rows)
    (right,) = draft.emit("reshape", [b], node.name, shape=columns)
    (made,) = draft.emit("matmul", [left, right], node.name, **node.attributes)
    return draft.emit("reshape", [made], node.name, shape=node.output.shape)


def _in_words(dtype: np.dtype[Any]) -> bool:
    """Whether the type has integers of more than 8 bits, of which no kernel quantises."""
    return dtype.kind in "iu" and dtype.itemsize > 1


def _along(draft: Draft, value: Value, node: Node) -> Value:
    """A parameter of a conversion, shaped to be broadcast."""
    rank = len(node.operands[0].shape)
    shape = [1] * rank
    if value.size != 1:
        shape[node.attributes["axis"] % rank] = value.size
    return draft.emit("reshape", [value], node.name, shape=tuple(shape))[0]


def _quantize(draft: Draft, node: Node) -> Sequence[Value] | None:
    """Into words: a map."""
    if not _in_words(node.output.dtype) or node.operands[0].dtype != _SINGLE:
        return None
    x, scale, *zero = node.operands
    limits = np.iinfo(node.output.dtype)
    made: Expression = ("round", ("divide", X, Y))
    parts = [x, _along(draft, scale, node)]
    if zero:
        parts.append(cast(draft, _along(draft, zero[0], node), _SINGLE))
        made = ("add", made, Z)
    lowest, highest = number(float(limits.min)), number(float(limits.max))
    made = ("minimum", ("fmax", made, lowest), highest)
    dtype = node.output.dtype.name
    return draft.emit("map", parts, node.name, expression=made, dtype=dtype)


def _dequantize(draft: Draft, node: Node) -> Sequence[Value] | None:
    """Out of words: maps, of which the difference is exact."""
    q, scale, *zero = node.operands
    if not _in_words(q.dtype) or node.output.dtype != _SINGLE:
        return None
    wide = np.dtype(np.int64)
    parts = [cast(draft, q, wide)]
    made: Expression = X
    if zero:
        parts.append(cast(draft, _along(draft, zero[0], node), wide))
        made = ("subtract", X, Y)
    (whole,) = draft.emit("map", parts, node.name, expression=made, dtype=_SINGLE.name)
    factor = cast(draft, _along(draft, scale, node), _SINGLE)
    made = ("multiply", X, Y)
    return draft.emit("map", [whole, factor], node.name, expression=made, dtype=_SINGLE.name)


def _map(draft: Draft, node: Node) -> Sequence[Value] | None:
    """Elements of fewer bits through floats and bytes, of which a table makes them."""
    expression, output = node.attributes["expression"], node.output
    is_cast = expression == X and len(node.operands) == 1
    operands = [
        cast(draft, it, _SINGLE) if not is_cast and _is_small(it.dtype) else it
        for it in node.operands
    ]
    is_small = _is_small(output.dtype) and output.dtype.name in _FEW_BITS
    is_made = is_small and (not is_cast or operands[0].dtype.itemsize > 1)
    if operands == list(node.operands) and not is_made:
        return None
    byte = ("uint8" if output.dtype.name[0] == "u" else "int8") if is_made else output.dtype.name
    made = draft.emit("map", operands, node.name, expression=expression, dtype=byte)
    return (cast(draft, made[0], output.dtype),)


def _is_small(dtype: np.dtype[Any]) -> bool:
    """Whether the type is one of numbers of up to 8 bits that NumPy itself does not have."""
    return dtype.itemsize == 1 and (dtype.kind in "Vf" or dtype.name in _FEW_BITS)


_RULES = {
    "dequantize": _dequantize,
    "group_norm": _group_norm,
    "map": _map,
    "matmul": _matmul,
    "population_norm": _population_norm,
    "quantize": _quantize,
    "softmax": _softmax,
}


def write_out(graph: Graph) -> Graph:
    """Norms of groups, softmaxes of doubles, types of few bits: by what there are steps for."""

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        made = _RULES.get(node.operator)
        return None if made is None else made(draft, node)

    return Draft(graph).apply(rule)
