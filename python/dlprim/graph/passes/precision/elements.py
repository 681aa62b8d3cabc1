"""Elements of quantised arrays: maps that read bytes, and that end in bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlprim.graph.expressions import (
    Expression,
    is_condition,
    is_written,
    number,
    operand,
    substituted,
)
from dlprim.graph.graph import Graph, Node, Value
from dlprim.graph.operators.elements import broadcast_shape
from dlprim.graph.passes.draft import Draft
from dlprim.graph.passes.precision.moves import bytes_of
from dlprim.graph.passes.precision.parameters import Parameters, parameters_of

_ELEMENTS = ("float32", "uint8", "int8")


def map_bytes(draft: Draft, value: Value, parameters: Parameters, name: str) -> Value | None:
    """The value in 8 bits, if maps make it of such arrays and of constants."""
    found = byte_map(draft, value)
    if found is None:
        return None
    expression, inputs = rounded(found[0], parameters), found[1]
    return draft.emit("map", inputs, name, expression=expression, dtype=parameters.dtype)[0]


def byte_map(draft: Draft, value: Value) -> tuple[Expression, list[Value]] | None:
    """The expression of such a value, and the bytes and constants that it reads."""
    inputs: list[Value] = []
    expression = _expression(draft, value, inputs)
    if expression is None or all(it in draft.constants for it in inputs):
        return None
    if broadcast_shape(*(it.shape for it in inputs)) != value.shape:
        return None
    return expression, inputs


def _expression(draft: Draft, value: Value, inputs: list[Value]) -> Expression | None:
    """Of floats, of operands that it puts into the list."""
    known = bytes_of(draft, value)
    if known is not None or value in draft.constants:
        if value.dtype != np.float32:
            return None
        inputs.append(value if known is None else known.value)
        place = operand(len(inputs) - 1)
        return place if known is None else _float(place, known.parameters)
    node = draft.only_maker(value, "map")
    if node is None or not _has_float(node):
        return None
    operands = [_expression(draft, it, inputs) for it in node.operands]
    if any(it is None for it in operands):
        return None
    return substituted(node.attributes["expression"], [it for it in operands if it is not None])


def join_conversions(graph: Graph) -> Graph:
    """Maps read the bytes that floats were made of, and end in bytes where they are quantised."""

    def rule(draft: Draft, node: Node) -> Sequence[Value] | None:
        if node.operator == "map":
            return _reading_bytes(draft, node)
        return _ending_in_bytes(draft, node) if node.operator == "quantize" else None

    return Draft(graph).apply(rule)


def _reading_bytes(draft: Draft, node: Node) -> Sequence[Value] | None:
    if not _is_compiled(node):
        return None
    inputs, parts = list(node.operands), [operand(it) for it in range(len(node.operands))]
    for place, value in enumerate(inputs):
        before = draft.maker(value, "dequantize")
        parameters = None if before is None else parameters_of(draft, before)
        if before is not None and parameters is not None and value.dtype == np.float32:
            inputs[place] = before.operands[0]
            parts[place] = _float(parts[place], parameters)
    if inputs == list(node.operands):
        return None
    expression = substituted(node.attributes["expression"], parts)
    dtype = node.attributes["dtype"]
    return draft.emit("map", inputs, node.name, expression=expression, dtype=dtype)


def _ending_in_bytes(draft: Draft, node: Node) -> Sequence[Value] | None:
    parameters = parameters_of(draft, node)
    before = draft.only_maker(node.operands[0], "map")
    if parameters is None or before is None or not _has_float(before) or not _is_compiled(before):
        return None
    expression = rounded(before.attributes["expression"], parameters)
    return draft.emit(
        "map", before.operands, node.name, expression=expression, dtype=parameters.dtype
    )


def _has_float(node: Node) -> bool:
    """Whether the result of a map is a float32 that it computes."""
    expression = node.attributes["expression"]
    is_float = node.output.dtype == np.float32 and not is_condition(expression)
    return is_float and is_written(expression)


def _is_compiled(node: Node) -> bool:
    return is_written(node.attributes["expression"]) and all(
        it.dtype.name in _ELEMENTS for it in (*node.operands, node.output)
    )


def _float(expression: Expression, parameters: Parameters) -> Expression:
    shifted = expression
    if parameters.zero_point:
        shifted = ("subtract", expression, number(float(parameters.zero_point)))
    return ("multiply", shifted, number(parameters.scale))


def rounded(expression: Expression, parameters: Parameters) -> Expression:
    """In 8 bits; what is no number is the lowest, as `quantize` has it."""
    whole = np.iinfo(parameters.dtype)
    rounded: Expression = ("round", ("divide", expression, number(parameters.scale)))
    if parameters.zero_point:
        rounded = ("add", rounded, number(float(parameters.zero_point)))
    return (
        "minimum",
        ("fmax", rounded, number(float(whole.min))),
        number(float(whole.max)),
    )


def stored(expression: Expression, dtype: str) -> Expression | None:
    """What becomes the expression of a map where it is stored as bytes, which rounds and saturates.

    The zero point is added to a whole number, as it would else move halves to the other side. None
    of what is no such expression.
    """
    whole = np.iinfo(dtype)
    found: Expression | None = None
    match expression:
        case ("minimum", ("fmax", ("round", it), ("number", lowest)), ("number", highest)):
            found = it
        case ("minimum", ("fmax", it, ("number", lowest)), ("number", highest)):
            match it:
                case ("add", ("round", _), ("number", zero)) if float(zero).is_integer():
                    found = it
        case _:
            return None
    return found if (lowest, highest) == (whole.min, whole.max) else None
