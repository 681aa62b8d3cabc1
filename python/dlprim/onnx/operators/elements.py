"""Arithmetic, comparisons and types: what every element becomes by itself."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from dlprim.graph import Builder, Value
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.operators.elements import broadcast_shape
from dlprim.onnx.proto import dtype_of
from dlprim.onnx.registry import RefusedError, operator

X, Y = operand(0), operand(1)
_SHARING = {"int2", "int4", "uint2", "uint4", "float4_e2m1fn"}

_UNARY = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "BitwiseNot": "bitwise_not",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Exp": "exp",
    "Floor": "floor",
    "Log": "log",
    "Neg": "negate",
    "Not": "not",
    "Reciprocal": "reciprocal",
    "Round": "round",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Sqrt": "sqrt",
    "Tan": "tan",
}
_BINARY = {
    "Add": "add",
    "And": "and",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Div": "divide",
    "Mul": "multiply",
    "Or": "or",
    "Sub": "subtract",
    "Xor": "xor",
}
_COMPARISONS = {
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
}
# Those that opsets below 7 broadcast in a way of their own, and the types of their results.
BROADCAST: dict[str, tuple[str, str | None]] = {
    **{name: (_BINARY[name], None) for name in ("Add", "And", "Div", "Mul", "Or", "Sub", "Xor")},
    **{name: (_COMPARISONS[name], "bool") for name in ("Equal", "Greater", "Less")},
}
_MANY = {"Max": "maximum", "Min": "minimum", "Sum": "add"}


def require_alike(*values: Value) -> None:
    """Refuses operands of several dtypes, which ONNX never converts by itself."""
    dtypes = {value.dtype.name: None for value in values}
    if len(dtypes) > 1:
        raise RefusedError(f"operands are of {' and '.join(dtypes)}, expected one type")


def _register_unary(name: str, function: str) -> None:
    @operator(name)
    def unary(builder: Builder, x: Value) -> Value:
        return builder.apply(function, x)


def _register_binary(name: str, function: str, dtype: str | None) -> None:
    @operator(name, since=7 if name in BROADCAST else 1)
    def binary(builder: Builder, a: Value, b: Value) -> Value:
        require_alike(a, b)
        return builder.apply(function, a, b, dtype=dtype)


def _register_many(name: str, function: str) -> None:
    @operator(name)
    def many(builder: Builder, *inputs: Value) -> Value:
        require_alike(*inputs)
        return reduce(lambda a, b: builder.apply(function, a, b), inputs)


for _name, _function in _UNARY.items():
    _register_unary(_name, _function)
for _name, _function in _BINARY.items():
    _register_binary(_name, _function, None)
for _name, _function in _COMPARISONS.items():
    _register_binary(_name, _function, "bool")
for _name, _function in _MANY.items():
    _register_many(_name, _function)


@operator("Mean")
def mean(builder: Builder, *inputs: Value) -> Value:
    """The sum is of the inputs as they are; halves are added in float32."""
    require_alike(*inputs)
    dtype = inputs[0].dtype
    if dtype.name in ("float16", "bfloat16"):
        inputs = tuple(builder.cast(it, "float32") for it in inputs)
    total = reduce(lambda a, b: builder.apply("add", a, b), inputs)
    return builder.map(("divide", X, number(float(len(inputs)))), total, dtype=dtype)


@operator("Pow", since=7)
def power(builder: Builder, x: Value, exponent: Value) -> Value:
    """The result is of the type of x."""
    return builder.apply("power", x, exponent, dtype=x.dtype)


@operator("Mod")
def mod(builder: Builder, a: Value, b: Value, *, fmod: int = 0) -> Value:
    """The sign is that of the divisor, or with ``fmod`` that of the dividend."""
    require_alike(a, b)
    if fmod not in (0, 1):
        raise RefusedError(f"fmod is {fmod}, expected 0 or 1")
    if builder.is_constant(b) and b.dtype.kind in "iu" and not np.all(builder.array(b)):
        raise RefusedError("integers are divided by zero")
    return builder.apply("fmod" if fmod else "remainder", a, b)


@operator("BitShift")
def bit_shift(builder: Builder, x: Value, places: Value, *, direction: str) -> Value:
    require_alike(x, places)
    if direction not in ("LEFT", "RIGHT"):
        raise RefusedError(f"direction is '{direction}', expected 'LEFT' or 'RIGHT'")
    return builder.apply(f"shift_{direction.lower()}", x, places)


@operator("IsNaN")
def is_nan(builder: Builder, x: Value) -> Value:
    return builder.apply("is_nan", x, dtype=bool)


@operator("IsInf")
def is_inf(
    builder: Builder, x: Value, *, detect_negative: int = 1, detect_positive: int = 1
) -> Value:
    expression: Expression = ("is_inf", X)
    if not detect_negative:
        expression = ("and", expression, ("greater", X, number(0.0)))
    if not detect_positive:
        expression = ("and", expression, ("less", X, number(0.0)))
    return builder.map(expression, x, dtype=bool)


@operator("Where")
def where(builder: Builder, condition: Value, x: Value, y: Value) -> Value:
    """What a condition that is known, and the same everywhere, chooses is there already."""
    require_alike(x, y)
    if builder.is_constant(condition) and condition.size:
        known = builder.array(condition)
        if known.all() or not known.any():
            shape = broadcast_shape(condition.shape, x.shape, y.shape)
            return builder.expand(x if known.all() else y, shape)
    return builder.apply("where", condition, x, y, dtype=x.dtype)


# ---------------------------------------------------------------- types


def in_type(builder: Builder, x: Value, dtype: np.dtype[Any], rounding: tuple[int, str]) -> Value:
    """x in another type; saturate and round_mode matter for floats of 8 bits and fewer."""
    is_narrow = dtype.itemsize == 1 and "float" in dtype.name
    if not is_narrow or x.dtype == dtype:
        return builder.cast(x, dtype)
    saturate, mode = rounding
    if mode not in ("up", "down", "nearest"):
        raise RefusedError(f"round_mode is '{mode}', expected 'up', 'down' or 'nearest'")
    result = (x.shape, dtype)
    return builder.call("narrow", [x], [result], dtype=dtype.name, saturate=saturate, mode=mode)[0]


@operator("Cast", since=24)
def cast(
    builder: Builder, x: Value, *, to: int, saturate: int = 1, round_mode: str = "up"
) -> Value:
    return in_type(builder, x, dtype_of(to), (saturate, round_mode))


@operator("Cast", since=19)
def cast_19(builder: Builder, x: Value, *, to: int, saturate: int = 1) -> Value:
    return in_type(builder, x, dtype_of(to), (saturate, "up"))


@operator("Cast", since=6)
def cast_6(builder: Builder, x: Value, *, to: int) -> Value:
    return in_type(builder, x, dtype_of(to), (1, "up"))


@operator("BitCast", since=26)
def bit_cast(builder: Builder, x: Value, *, to: int) -> Value:
    """Elements of fewer than 8 bits share bytes in files only, so that these are refused."""
    dtype = dtype_of(to)
    has_bytes = not {dtype.name, x.dtype.name} & _SHARING and dtype.name != "bool"
    if dtype.itemsize != x.dtype.itemsize or not has_bytes:
        raise RefusedError(f"elements of {x.dtype} cannot be seen as {dtype}, expected one size")
    return builder.call("bit_cast", [x], [(x.shape, dtype)], dtype=dtype.name)[0]


@operator("CastLike", since=24)
def cast_like(
    builder: Builder, x: Value, like: Value, *, saturate: int = 1, round_mode: str = "up"
) -> Value:
    return in_type(builder, x, like.dtype, (saturate, round_mode))


@operator("CastLike", since=19)
def cast_like_19(builder: Builder, x: Value, like: Value, *, saturate: int = 1) -> Value:
    return in_type(builder, x, like.dtype, (saturate, "up"))


@operator("CastLike", since=15)
def cast_like_15(builder: Builder, x: Value, like: Value) -> Value:
    return in_type(builder, x, like.dtype, (1, "up"))
