"""Elements between quantised arrays: one map from bytes to bytes."""

from __future__ import annotations

import numpy as np

from dlprim.graph.expressions import Expression, functions_of, number, operand, substituted
from dlprim.graph.graph import Value
from dlprim.graph.passes.draft import Draft
from dlprim.graph.passes.precision.moves import bytes_of
from dlprim.graph.passes.precision.parameters import Parameters

# That make no NaN of numbers, whose place in 8 bits `quantize` alone decides.
_TOTAL = {
    "abs", "add", "erf", "gelu", "maximum", "minimum", "multiply", "negate", "relu", "sigmoid",
    "subtract", "tanh",
}  # fmt: skip


def map_bytes(draft: Draft, value: Value, parameters: Parameters, name: str) -> Value | None:
    """The value in 8 bits, if maps make it of such arrays and of constants."""
    inputs: list[Value] = []
    expression = _expression(draft, value, inputs)
    if expression is None or all(it in draft.constants for it in inputs):
        return None
    if np.broadcast_shapes(*(it.shape for it in inputs)) != value.shape:
        return None
    rounded = _rounded(expression, parameters)
    return draft.emit("map", inputs, name, expression=rounded, dtype=parameters.dtype)[0]


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
    if node is None or node.output.dtype != np.float32:
        return None
    if not functions_of(node.attributes["expression"]) <= _TOTAL:
        return None
    operands = [_expression(draft, it, inputs) for it in node.operands]
    if any(it is None for it in operands):
        return None
    return substituted(node.attributes["expression"], [it for it in operands if it is not None])


def _float(expression: Expression, parameters: Parameters) -> Expression:
    shifted = expression
    if parameters.zero_point:
        shifted = ("subtract", expression, number(float(parameters.zero_point)))
    return ("multiply", shifted, number(parameters.scale))


def _rounded(expression: Expression, parameters: Parameters) -> Expression:
    whole = np.iinfo(parameters.dtype)
    rounded: Expression = ("round", ("divide", expression, number(parameters.scale)))
    if parameters.zero_point:
        rounded = ("add", rounded, number(float(parameters.zero_point)))
    return (
        "minimum",
        ("maximum", rounded, number(float(whole.min))),
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
        case ("minimum", ("maximum", ("round", it), ("number", lowest)), ("number", highest)):
            found = it
        case ("minimum", ("maximum", it, ("number", lowest)), ("number", highest)):
            match it:
                case ("add", ("round", _), ("number", zero)) if zero == round(zero):
                    found = it
        case _:
            return None
    return found if (lowest, highest) == (whole.min, whole.max) else None
