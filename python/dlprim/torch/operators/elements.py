"""Element by element: arithmetic, comparisons, activations and their gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dlprim.graph.derivatives import differentiated, times
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Value
from dlprim.torch.operators.table import Call, require, rule

_X, _Y, _Z = map(operand, range(3))
_ZERO, _ONE = number(0.0), number(1.0)


def _through(expression: Expression) -> Expression:
    """The gradient of an expression of operand 1 by it, operand 0 being that of the result."""
    return differentiated(expression, _X, expression)[1]


# Rounded once more, as W. Kahan has them: near 0 the quotients undo what 1 takes from x.
_POWER, _SUM = ("exp", _X), ("add", _ONE, _X)
_ABOVE_ONE = ("subtract", _POWER, _ONE)
_EXPM1: Expression = (
    *("where", ("equal", _ABOVE_ONE, _ZERO), _X),
    (
        *("where", ("less", ("abs", _X), number(1.0))),
        ("divide", ("multiply", _ABOVE_ONE, _X), ("log", _POWER)),
        _ABOVE_ONE,
    ),
)
_LOG1P: Expression = (
    *("where", ("equal", _SUM, _ONE), _X),
    (
        *("where", ("less", ("abs", _X), number(1.0))),
        ("divide", ("multiply", ("log", _SUM), _X), ("subtract", _SUM, _ONE)),
        ("log", _SUM),
    ),
)
# Of the operands of aten, of which some are numbers.
_EXPRESSIONS: dict[str, Expression] = {
    "abs": ("abs", _X),
    "acos": ("acos", _X),
    "asin": ("asin", _X),
    "atan": ("atan", _X),
    "ceil": ("ceil", _X),
    "clamp_max": ("minimum", _X, _Y),
    "clamp_min": ("maximum", _X, _Y),
    "cos": ("cos", _X),
    "cosh": ("cosh", _X),
    "erf": ("erf", _X),
    "erfc": ("subtract", _ONE, ("erf", _X)),
    "exp": ("exp", _X),
    "expm1": _EXPM1,
    "floor": ("floor", _X),
    "hardsigmoid": ("hardsigmoid", _X),
    "hardswish": ("hardswish", _X),
    "isinf": ("is_inf", _X),
    "isnan": ("is_nan", _X),
    "log": ("log", _X),
    "log1p": _LOG1P,
    "log2": ("multiply", ("log", _X), number(1 / math.log(2))),
    "log10": ("multiply", ("log", _X), number(1 / math.log(10))),
    "maximum": ("maximum", _X, _Y),
    "minimum": ("minimum", _X, _Y),
    "mish": ("mish", _X),
    "mish_backward": _through(("mish", _Y)),
    "neg": ("negate", _X),
    "reciprocal": ("divide", _ONE, _X),
    "relu": ("relu", _X),
    "round": ("round", _X),
    "rsqrt": ("divide", _ONE, ("sqrt", _X)),
    "sigmoid": ("sigmoid", _X),
    "sigmoid_backward": ("multiply", _X, ("multiply", _Y, ("subtract", _ONE, _Y))),
    "silu": ("swish", _X),
    "silu_backward": _through(("swish", _Y)),
    "sgn": ("sign", _X),
    "sign": ("sign", _X),
    "sin": ("sin", _X),
    "sinh": ("sinh", _X),
    "sqrt": ("sqrt", _X),
    "tan": ("tan", _X),
    "tanh": ("tanh", _X),
    "tanh_backward": ("multiply", _X, ("subtract", _ONE, ("multiply", _Y, _Y))),
    "threshold_backward": ("where", ("less_equal", _Y, _Z), _ZERO, _X),
}
_ARITHMETIC = {
    "div": ("divide", _X, _Y),
    "fmod": ("fmod", _X, _Y),
    "mul": ("multiply", _X, _Y),
    "remainder": ("remainder", _X, _Y),
}
_POWERS: dict[float, Expression] = {
    -1: _EXPRESSIONS["reciprocal"],
    -0.5: _EXPRESSIONS["rsqrt"],
    0.5: _EXPRESSIONS["sqrt"],
    1: ("multiply", _X, _ONE),
    2: ("multiply", _X, _X),
    3: ("multiply", ("multiply", _X, _X), _X),
}
_COMPARISONS = {
    "eq": "equal",
    "ge": "greater_equal",
    "gt": "greater",
    "le": "less_equal",
    "lt": "less",
    "ne": "not_equal",
}


def _mapped(expression: Expression) -> Any:
    return lambda c, *operands: c.map(expression, *operands)


for _name, _expression in _EXPRESSIONS.items():
    rule(f"aten.{_name}.default")(_mapped(_expression))
for _name, _expression in _ARITHMETIC.items():
    rule(f"aten.{_name}.Tensor", f"aten.{_name}.Scalar")(_mapped(_expression))


def _compared(function: str) -> Any:
    def compared(c: Call, x: Value, y: Any) -> Value:
        inputs = [_compared_operand(c, it) for it in (x, y)]
        return c.b.map((function, _X, _Y), *inputs, dtype=np.bool_)

    return compared


def _compared_operand(c: Call, x: Any) -> Value:
    if isinstance(x, Value):
        return c.b.cast(x, np.float32) if x.dtype.kind in "biu" else x
    return c.b.constant(np.full((), x, np.float32), "number")


for _name, _function in _COMPARISONS.items():
    rule(f"aten.{_name}.Tensor", f"aten.{_name}.Scalar")(_compared(_function))


def _added(function: str) -> Any:
    def added(c: Call, x: Value, y: Any, alpha: float = 1) -> Value:
        return c.map((function, _X, times(number(alpha), _Y)), x, y)

    return added


rule("aten.add.Tensor", "aten.add.Scalar")(_added("add"))
rule("aten.sub.Tensor", "aten.sub.Scalar")(_added("subtract"))


@rule("aten.pow.Tensor_Scalar")
def power(c: Call, x: Value, exponent: float) -> Value:
    return c.map(_POWERS.get(exponent) or ("power", _X, number(float(exponent))), x)


@rule("aten.clamp.default", "aten.hardtanh.default")
def clamp(c: Call, x: Value, low: Any = None, high: Any = None) -> Value:
    expression: Expression = _X
    if low is not None:
        expression = ("maximum", expression, number(float(low)))
    if high is not None:
        expression = ("minimum", expression, number(float(high)))
    return c.map(expression, x) if expression != _X else c.cast(x)


@rule("aten.gelu.default")
def gelu(c: Call, x: Value, approximate: str = "none") -> Value:
    return c.map((_gelu_of(approximate), _X), x)


@rule("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(c: Call, condition: Value, x: Any, y: Any) -> Value:
    require(c.dtype.kind not in "biu", "integers are chosen")
    require(condition.dtype == np.bool_, "the condition is no bool")
    return c.map(("where", ("greater", _X, _ZERO), _Y, _Z), c.b.cast(condition, np.float32), x, y)


@rule("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(c: Call, x: Value, mask: Value, value: Any) -> Any:
    return where(c, mask, value, x)


@rule("aten.logical_not.default", "aten.bitwise_not.default")
def logical_not(c: Call, x: Value) -> Value:
    require(x.dtype == np.bool_, "it is computed of integers")
    return c.map(("not", _X), x)


def _logical(function: str) -> Any:
    def both(c: Call, x: Value, y: Value) -> Value:
        require(x.dtype == y.dtype == np.bool_, "it is computed of integers")
        return c.map((function, _X, _Y), x, y)

    return both


for _name in ("and", "or"):
    rule(f"aten.logical_{_name}.default", f"aten.bitwise_{_name}.Tensor")(_logical(_name))


@rule("aten._to_copy.default")
def to_copy(c: Call, x: Value, **_: Any) -> Value:
    require(c.dtype.kind not in "biu" or x.dtype == c.dtype, "floats become integers")
    return c.cast(x)


@rule(
    "aten.clone.default",
    "aten.detach.default",
    "aten.alias.default",
    "aten.lift_fresh_copy.default",
)
def same(c: Call, x: Value, **_: Any) -> Value:
    return x


# ---------------------------------------------------------------- gradients


def _gelu_of(approximate: str) -> str:
    return "gelu" if approximate == "none" else "gelu_tanh"


@rule("aten.gelu_backward.default")
def gelu_backward(c: Call, diff: Value, x: Value, approximate: str = "none") -> Value:
    return c.map(_through((_gelu_of(approximate), _Y)), diff, x)


@rule("dlprim.dropped_out")
def dropped_out(c: Call, x: Value, mask: Value, scale: float) -> Value:
    kept: Expression = ("multiply", ("multiply", _X, _Y), number(scale))
    return c.map(kept, x, c.b.cast(mask, x.dtype))


# ---------------------------------------------------------------- arrays of one number


@rule("aten.full.default", "aten.full_like.default")
def full(c: Call, like: Any, value: Any, **_: Any) -> Value:
    """Of the shape, or of that of an array."""
    require(isinstance(value, bool | int | float), "its number follows from a tensor")
    shape = like.shape if isinstance(like, Value) else tuple(like)
    return c.b.constant(np.broadcast_to(np.asarray(value).astype(c.dtype), shape), "full")


@rule("aten.scalar_tensor.default")
def scalar_tensor(c: Call, value: Any, **_: Any) -> Any:
    return full(c, (), value)
