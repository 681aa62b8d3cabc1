"""Element by element: arithmetic, comparisons, activations and their gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dlprim.graph.derivatives import times
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Value
from dlprim.torch.operators.table import Call, backward, require, rule

_X, _Y, _Z = map(operand, range(3))
_ZERO, _ONE = number(0.0), number(1.0)


def _rounded_once_more(is_near: Expression, quotient: Expression, far: Expression) -> Expression:
    """As W. Kahan has them: near 0 the quotients undo what 1 takes from x."""
    within = ("where", ("less", ("abs", _X), number(1.0)), quotient, far)
    return ("where", is_near, _X, within)


_POWER, _SUM = ("exp", _X), ("add", _ONE, _X)
_ABOVE_ONE = ("subtract", _POWER, _ONE)
_RECIPROCAL: Expression = ("divide", _ONE, _X)
_ROOT: Expression = ("divide", _ONE, ("sqrt", _X))
_SAME = (
    *("abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "exp", "floor", "hardsigmoid"),
    *("hardswish", "log", "mish", "relu", "round", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan"),
    "tanh",
)
# Of the operands of aten, of which some are numbers.
_EXPRESSIONS: dict[str, Expression] = {
    **{f"{name}.default": (name, _X) for name in _SAME},
    "clamp_max.default": ("minimum", _X, _Y),
    "clamp_min.default": ("maximum", _X, _Y),
    "erfc.default": ("subtract", _ONE, ("erf", _X)),
    "expm1.default": _rounded_once_more(
        ("equal", _ABOVE_ONE, _ZERO),
        ("divide", ("multiply", _ABOVE_ONE, _X), ("log", _POWER)),
        _ABOVE_ONE,
    ),
    "isinf.default": ("is_inf", _X),
    "isnan.default": ("is_nan", _X),
    "log1p.default": _rounded_once_more(
        ("equal", _SUM, _ONE),
        ("divide", ("multiply", ("log", _SUM), _X), ("subtract", _SUM, _ONE)),
        ("log", _SUM),
    ),
    "log2.default": ("multiply", ("log", _X), number(1 / math.log(2))),
    "log10.default": ("multiply", ("log", _X), number(1 / math.log(10))),
    "maximum.default": ("maximum", _X, _Y),
    "minimum.default": ("minimum", _X, _Y),
    "neg.default": ("negate", _X),
    "reciprocal.default": _RECIPROCAL,
    "rsqrt.default": _ROOT,
    "sgn.default": ("sign", _X),
    "sigmoid_backward.default": ("multiply", _X, ("multiply", _Y, ("subtract", _ONE, _Y))),
    "silu.default": ("swish", _X),
    "tanh_backward.default": ("multiply", _X, ("subtract", _ONE, ("multiply", _Y, _Y))),
    "threshold_backward.default": ("where", ("less_equal", _Y, _Z), _ZERO, _X),
}
_ARITHMETIC = {"div": "divide", "fmod": "fmod", "mul": "multiply", "remainder": "remainder"}
_COMPARISONS = {
    **{"eq": "equal", "ge": "greater_equal", "gt": "greater"},
    **{"le": "less_equal", "lt": "less", "ne": "not_equal"},
}
_POWERS: dict[float, Expression] = {
    -1: _RECIPROCAL,
    -0.5: _ROOT,
    0.5: ("sqrt", _X),
    1: ("multiply", _X, _ONE),
    2: ("multiply", _X, _X),
    3: ("multiply", ("multiply", _X, _X), _X),
}


def _mapped(expression: Expression) -> Any:
    return lambda c, *operands: c.map(expression, *operands)


def _compared(function: str) -> Any:
    def wide(c: Call, x: Any) -> Value:
        if isinstance(x, Value):
            return c.b.cast(x, np.float32) if x.dtype.kind in "biu" else x
        return c.b.constant(np.full((), x, np.float32), "number")

    return lambda c, *operands: c.b.map(
        (function, _X, _Y), *(wide(c, it) for it in operands), dtype=np.bool_
    )


def _added(function: str) -> Any:
    def added(c: Call, x: Value, y: Any, alpha: float = 1) -> Value:
        return c.map((function, _X, times(number(alpha), _Y)), x, y)

    return added


def _logical(function: str, *places: Expression) -> Any:
    def logical(c: Call, *operands: Value) -> Value:
        require(all(it.dtype == np.bool_ for it in operands), "it is computed of integers")
        return c.map((function, *places), *operands)

    return logical


for _name, _expression in _EXPRESSIONS.items():
    rule(f"aten.{_name}")(_mapped(_expression))
for _kind in ("Tensor", "Scalar"):
    for _name, _function in _ARITHMETIC.items():
        rule(f"aten.{_name}.{_kind}")(_mapped((_function, _X, _Y)))
    for _name, _function in _COMPARISONS.items():
        rule(f"aten.{_name}.{_kind}")(_compared(_function))
    for _name, _function in (("add", "add"), ("sub", "subtract")):
        rule(f"aten.{_name}.{_kind}")(_added(_function))
rule("aten.logical_not.default", "aten.bitwise_not.default")(_logical("not", _X))
for _name in ("and", "or"):
    rule(f"aten.logical_{_name}.default", f"aten.bitwise_{_name}.Tensor")(_logical(_name, _X, _Y))


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


@rule("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(c: Call, condition: Value, x: Any, y: Any) -> Value:
    require(c.dtype.kind not in "biu", "integers are chosen")
    require(condition.dtype == np.bool_, "the condition is no bool")
    return c.map(("where", ("greater", _X, _ZERO), _Y, _Z), c.b.cast(condition, np.float32), x, y)


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


# ---------------------------------------------------------------- more than an expression


@rule("aten.gelu.default")
def gelu(c: Call, x: Value, approximate: str = "none") -> Value:
    return c.map(("gelu" if approximate == "none" else "gelu_tanh", _X), x)


backward({f"aten.{it}_backward.default": f"aten.{it}.default" for it in ("gelu", "mish", "silu")})


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
