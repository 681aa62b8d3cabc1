"""What a `map` node computes for every element, as a tree of tuples.

``("add", ("input", 0), ("number", 1.0))`` is the first operand plus one. The table has a row for
each function: what NumPy computes, and how it is written in the notation of `dlprim.define`, None
where the row engine does not compute it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dlprim.graph.extents import Extent
from dlprim.graph.graph import Array

Expression = tuple[Any, ...]


def _erf(x: Array) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(x).astype(np.asarray(x).dtype)


def sigmoid(x: Array) -> Any:
    """The logistic function."""
    with np.errstate(all="ignore"):
        return 1 / (1 + np.exp(-x))


def _softplus(x: Array) -> Any:
    return np.logaddexp(x, np.zeros((), x.dtype))


def _mish(x: Array) -> Any:
    return np.where(
        np.isneginf(x), np.negative(0 * sigmoid(x)), x * np.tanh(_softplus(x))
    )  # the limit, -0


def _swish(x: Array) -> Any:
    share = sigmoid(x)
    return np.where(np.isneginf(x), np.negative(share), x * share)  # the limit, -0


def _gelu(x: Array) -> Any:
    share = (1 + _erf(x * np.asarray(math.sqrt(0.5), x.dtype))) / 2
    return np.where(np.isneginf(x), np.negative(share), x * share)  # the limit, -0


def _shifted(left: Array, right: Array, is_left: bool) -> Any:
    """Bits shifted; by the width or more none is left, to the right the sign; below 0 is more."""
    dtype = np.asarray(left).dtype
    bits = dtype.itemsize * 8
    is_inside = (right >= 0) & (right < bits)
    shift = np.left_shift if is_left else np.right_shift
    shifted = shift(left, np.where(is_inside, right, bits - 1).astype(dtype))
    if not is_left and dtype.kind == "i":
        return shifted
    return np.where(is_inside, shifted, 0).astype(dtype)


def _divided(a: Array, b: Array) -> Any:
    """Integers are divided towards zero, by zero to zero; the least one by -1 is itself."""
    if np.issubdtype(np.result_type(a, b), np.floating):
        return np.divide(a, b)
    quotient = np.floor_divide(a, b)
    has_rest = (np.remainder(a, b) != 0) & ((np.asarray(a) < 0) != (np.asarray(b) < 0))
    return np.where(np.asarray(b) == 0, 0, quotient + (has_rest & (np.asarray(b) != 0)))


def _power(a: Array, b: Array) -> Any:
    """Integers to powers below zero are cut towards zero."""
    if not np.issubdtype(np.result_type(a, b), np.signedinteger):
        return np.power(a, b)
    b = np.asarray(b)
    base = np.where((b < 0) & (np.abs(a) != 1), 0, a)  # 1 and -1 are their inverses
    return np.power(base, np.where(b < 0, 2 - (b & 1), b))


def _gelu_tanh(x: Array) -> Any:
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def _relu6(x: Array) -> Any:
    return np.clip(x, np.zeros((), x.dtype), np.full((), 6, x.dtype))


class Function(NamedTuple):
    """A row of the table: how NumPy computes it; its text with operands ``{0}`` and so on."""

    compute: Callable[..., Any]
    text: str | None = None
    is_condition: bool = False


FUNCTIONS: dict[str, Function] = {
    "abs": Function(np.abs, "fabs({0})"),
    "acos": Function(np.arccos, "acos({0})"),
    "acosh": Function(np.arccosh, "acosh({0})"),
    "add": Function(np.add, "({0} + {1})"),
    "and": Function(np.logical_and, "({0} && {1})", True),
    "asin": Function(np.arcsin, "asin({0})"),
    "asinh": Function(np.arcsinh, "asinh({0})"),
    "atan": Function(np.arctan, "atan({0})"),
    "atanh": Function(np.arctanh, "atanh({0})"),
    "bitwise_and": Function(np.bitwise_and),
    "bitwise_not": Function(np.bitwise_not),
    "bitwise_or": Function(np.bitwise_or),
    "bitwise_xor": Function(np.bitwise_xor),
    "ceil": Function(np.ceil, "ceil({0})"),
    "cos": Function(np.cos, "cos({0})"),
    "cosh": Function(np.cosh, "cosh({0})"),
    "divide": Function(_divided, "({0} / {1})"),
    "equal": Function(np.equal, "({0} == {1})", True),
    "erf": Function(_erf, "erf({0})"),
    "exp": Function(np.exp, "exp({0})"),
    "floor": Function(np.floor, "floor({0})"),
    "fmax": Function(np.fmax, "fmax({0}, {1})"),
    "fmod": Function(np.fmod, "fmod({0}, {1})"),
    "gelu": Function(_gelu, "gelu({0})"),
    "gelu_tanh": Function(
        _gelu_tanh, "(0.5 * {0} * (1 + tanh(0.7978845608 * ({0} + 0.044715 * {0} * {0} * {0}))))"
    ),
    "greater": Function(np.greater, "({0} > {1})", True),
    "greater_equal": Function(np.greater_equal, "({0} >= {1})", True),
    "hardsigmoid": Function(
        lambda x: _relu6(x + 3) / 6, "({0} + 3 > 6 ? 1 : relu({0} + 3) * 0.1666666667)"
    ),
    "hardswish": Function(
        lambda x: x * (_relu6(x + 3) / 6),
        "({0} * ({0} + 3 > 6 ? 1 : relu({0} + 3) * 0.1666666667))",
    ),
    "is_inf": Function(np.isinf, "(fabs({0}) > 3.4028234663852886e38)", True),
    "is_nan": Function(np.isnan, "({0} != {0})", True),
    "less": Function(np.less, "({0} < {1})", True),
    "less_equal": Function(np.less_equal, "({0} <= {1})", True),
    "log": Function(np.log, "log({0})"),
    "maximum": Function(np.maximum, "({1} != {1} ? {1} : ({0} < {1} ? {1} : {0}))"),
    "minimum": Function(np.minimum, "({1} != {1} ? {1} : ({0} > {1} ? {1} : {0}))"),
    "mish": Function(_mish, "mish({0})"),
    "multiply": Function(np.multiply, "({0} * {1})"),
    "negate": Function(np.negative, "(-{0})"),
    "not": Function(np.logical_not, "(!{0})", True),
    "not_equal": Function(np.not_equal, "({0} != {1})", True),
    "or": Function(np.logical_or, "({0} || {1})", True),
    "power": Function(_power, "pow({0}, {1})"),
    "reciprocal": Function(np.reciprocal, "(1 / {0})"),
    "relu": Function(lambda x: np.where(x < 0, np.zeros((), x.dtype), x), "relu({0})"),
    "relu6": Function(_relu6, "({0} > 6 ? 6 : relu({0}))"),
    "remainder": Function(np.remainder, "({0} % {1})"),
    "round": Function(np.rint, "rint({0})"),
    "shift_left": Function(lambda a, b: _shifted(a, b, True)),
    "shift_right": Function(lambda a, b: _shifted(a, b, False)),
    "sigmoid": Function(sigmoid, "sigmoid({0})"),
    "sign": Function(np.sign, "sign({0})"),
    "sin": Function(np.sin, "sin({0})"),
    "sinh": Function(np.sinh, "sinh({0})"),
    "softplus": Function(_softplus, "softplus({0})"),
    "sqrt": Function(np.sqrt, "sqrt({0})"),
    "subtract": Function(np.subtract, "({0} - {1})"),
    "swish": Function(_swish, "swish({0})"),
    "tan": Function(np.tan, "tan({0})"),
    "tanh": Function(np.tanh, "tanh({0})"),
    "where": Function(np.where, "({0} ? {1} : {2})"),
    "xor": Function(np.logical_xor, "(({0} || {1}) && !({0} && {1}))", True),
}


# Of an expression and a number behind it. What is no number stays, which max and min may lose.
_BOUNDS = {
    "maximum": "({0} < {1} ? {1} : {0})",
    "minimum": "({0} > {1} ? {1} : {0})",
}


def operand(index: int) -> Expression:
    """The operand of a node with this number."""
    return ("input", index)


def number(value: float) -> Expression:
    """A number that stands in the expression."""
    return ("number", value)


def evaluate(expression: Expression, arrays: Sequence[Array]) -> Any:
    """The expression of these operands by NumPy, which broadcasts them."""
    name, *operands = expression
    if name == "input":
        return arrays[operands[0]]
    if name == "number":
        return operands[0]
    values = [evaluate(it, arrays) for it in operands]
    if all(not isinstance(value, np.ndarray | np.generic) for value in values):
        values = [np.asarray(value) for value in values]
    return FUNCTIONS[name].compute(*values)


def substituted(expression: Expression, operands: Sequence[Expression]) -> Expression:
    """The expression with other expressions for its operands."""
    name, *rest = expression
    if name == "input":
        return operands[rest[0]]
    if name == "number":
        return expression
    return (name, *(substituted(it, operands) for it in rest))


def functions_of(expression: Expression) -> set[str]:
    """The functions that it calls."""
    name, *rest = expression
    if name in ("input", "number"):
        return set()
    return {name}.union(*(functions_of(it) for it in rest))


def inputs_of(expression: Expression) -> list[int]:
    """The operands in the order in which they are read, as often as they are."""
    name, *rest = expression
    if name == "input":
        return [rest[0]]
    if name == "number":
        return []
    return [index for it in rest for index in inputs_of(it)]


def numbers_of(expression: Expression) -> list[Any]:
    """The numbers that stand in it."""
    name, *rest = expression
    if name in ("input", "number"):
        return rest if name == "number" else []
    return [it for part in rest for it in numbers_of(part)]


def is_condition(expression: Expression) -> bool:
    """Whether what it computes is true or false."""
    return expression[0] in FUNCTIONS and FUNCTIONS[expression[0]].is_condition


def makes_floats(expression: Expression, dtypes: Sequence[np.dtype[Any]]) -> bool:
    """Whether NumPy computes the expression in floats, of operands of these types."""
    name, *rest = expression
    if name == "input":
        return dtypes[rest[0]].kind in "fV"
    if is_condition(expression):
        return False
    return name == "number" or any(
        makes_floats(it, dtypes) for it in (rest[1:] if name == "where" else rest)
    )


def _is_flag(expression: Expression, dtypes: Sequence[np.dtype[Any]]) -> bool:
    name, *parts = expression
    return is_condition(expression) or (name == "input" and dtypes[parts[0]].kind == "b")


def computes_floats(expression: Expression, dtypes: Sequence[np.dtype[Any]]) -> bool:
    """Whether NumPy computes nothing in integers, of operands of these types."""
    name, *parts = expression
    if name in ("input", "number"):
        return True
    has_float = any(makes_floats(it, dtypes) for it in parts)
    is_float = has_float or all(is_condition(it) for it in parts)
    if is_condition(expression):
        is_float = is_float or all(_is_flag(it, dtypes) for it in parts)
    return is_float and all(computes_floats(it, dtypes) for it in parts)


def is_written(expression: Expression) -> bool:
    """Whether the notation has all functions of the expression."""
    return all(FUNCTIONS[name].text is not None for name in functions_of(expression))


def text_of(expression: Expression, operands: Sequence[str]) -> str | None:
    """The expression in the notation of `dlprim.define`, None where that has no such function."""
    name, *rest = expression
    if name == "input":
        return operands[rest[0]]
    if name == "number":
        value = rest[0]
        if isinstance(value, Extent):
            return f"({value.recording.number_name(value)})" if value - value == 0 else None
        return f"({float(value)!r})" if math.isfinite(value) else None
    template = FUNCTIONS[name].text
    if name in _BOUNDS and "number" in (rest[0][0], rest[1][0]):
        template = _BOUNDS[name]
        rest.sort(key=lambda it: it[0] == "number")
    parts = [text_of(it, operands) for it in rest]
    if template is None or None in parts:
        return None
    return template.format(*parts)
