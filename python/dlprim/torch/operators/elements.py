"""Element by element: arithmetic, comparisons, activations and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.graph.derivatives import differentiated
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Value
from dlprim.torch.operators.table import Call, require, rule

_X, _Y, _Z = operand(0), operand(1), operand(2)
_ZERO, _ONE = number(0.0), number(1.0)

_UNARY: dict[str, Expression] = {
    "abs": ("abs", _X),
    "ceil": ("ceil", _X),
    "cos": ("cos", _X),
    "erf": ("erf", _X),
    "exp": ("exp", _X),
    "floor": ("floor", _X),
    "hardsigmoid": ("hardsigmoid", _X),
    "hardswish": ("hardswish", _X),
    "log": ("log", _X),
    "mish": ("mish", _X),
    "neg": ("negate", _X),
    "reciprocal": ("divide", _ONE, _X),
    "relu": ("relu", _X),
    "rsqrt": ("divide", _ONE, ("sqrt", _X)),
    "sigmoid": ("sigmoid", _X),
    "silu": ("swish", _X),
    "sin": ("sin", _X),
    "sqrt": ("sqrt", _X),
    "tanh": ("tanh", _X),
}
_COMPARISONS = {
    "eq": "equal",
    "ge": "greater_equal",
    "gt": "greater",
    "le": "less_equal",
    "lt": "less",
    "ne": "not_equal",
}


def _unary(expression: Expression) -> Any:
    return lambda c, x: c.map(expression, x)


for _name, _expression in _UNARY.items():
    rule(f"aten.{_name}.default")(_unary(_expression))


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


@rule("aten.add.Tensor", "aten.add.Scalar")
def add(c: Call, x: Value, y: Any, alpha: float = 1) -> Value:
    if alpha == 1:
        return c.map(("add", _X, _Y), x, y)
    return c.map(("add", _X, ("multiply", number(alpha), _Y)), x, y)


@rule("aten.sub.Tensor", "aten.sub.Scalar")
def sub(c: Call, x: Value, y: Any, alpha: float = 1) -> Value:
    if alpha == 1:
        return c.map(("subtract", _X, _Y), x, y)
    return c.map(("subtract", _X, ("multiply", number(alpha), _Y)), x, y)


@rule("aten.rsub.Scalar", "aten.rsub.Tensor")
def rsub(c: Call, x: Value, y: Any, alpha: float = 1) -> Value:
    return c.map(("subtract", _Y, ("multiply", number(alpha), _X)), x, y)


@rule("aten.mul.Tensor", "aten.mul.Scalar")
def mul(c: Call, x: Value, y: Any) -> Value:
    return c.map(("multiply", _X, _Y), x, y)


@rule("aten.div.Tensor", "aten.div.Scalar")
def div(c: Call, x: Value, y: Any) -> Value:
    return c.map(("divide", _X, _Y), x, y)


@rule("aten.maximum.default")
def maximum(c: Call, x: Value, y: Value) -> Value:
    return c.map(("maximum", _X, _Y), x, y)


@rule("aten.minimum.default")
def minimum(c: Call, x: Value, y: Value) -> Value:
    return c.map(("minimum", _X, _Y), x, y)


@rule("aten.addcmul.default")
def addcmul(c: Call, x: Value, y: Value, z: Value, value: float = 1) -> Value:
    return c.map(("add", _X, ("multiply", number(value), ("multiply", _Y, _Z))), x, y, z)


@rule("aten.addcdiv.default")
def addcdiv(c: Call, x: Value, y: Value, z: Value, value: float = 1) -> Value:
    return c.map(("add", _X, ("multiply", number(value), ("divide", _Y, _Z))), x, y, z)


@rule("aten.pow.Tensor_Scalar")
def power(c: Call, x: Value, exponent: float) -> Value:
    if exponent == 1:
        return c.map(("multiply", _X, _ONE), x)
    if exponent == 2:
        return c.map(("multiply", _X, _X), x)
    if exponent == 3:
        return c.map(("multiply", ("multiply", _X, _X), _X), x)
    if exponent == 0.5:
        return c.map(("sqrt", _X), x)
    if exponent == -0.5:
        return c.map(_UNARY["rsqrt"], x)
    if exponent == -1:
        return c.map(_UNARY["reciprocal"], x)
    return c.map(("power", _X, number(float(exponent))), x)


@rule("aten.clamp.default", "aten.hardtanh.default")
def clamp(c: Call, x: Value, low: Any = None, high: Any = None) -> Value:
    expression: Expression = _X
    if low is not None:
        expression = ("maximum", expression, number(float(low)))
    if high is not None:
        expression = ("minimum", expression, number(float(high)))
    return c.map(expression, x) if expression != _X else c.cast(x)


@rule("aten.clamp_min.default")
def clamp_min(c: Call, x: Value, low: float) -> Value:
    return clamp(c, x, low)


@rule("aten.clamp_max.default")
def clamp_max(c: Call, x: Value, high: float) -> Value:
    return clamp(c, x, None, high)


@rule("aten.leaky_relu.default")
def leaky_relu(c: Call, x: Value, slope: float = 0.01) -> Value:
    expression = ("where", ("greater", _X, _ZERO), _X, ("multiply", _X, number(slope)))
    return c.map(expression, x)


@rule("aten.gelu.default")
def gelu(c: Call, x: Value, approximate: str = "none") -> Value:
    return c.map((_gelu_of(approximate), _X), x)


@rule("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(c: Call, condition: Value, x: Any, y: Any) -> Value:
    return _chosen(c, condition, x, y)


@rule("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(c: Call, x: Value, mask: Value, value: Any) -> Value:
    return _chosen(c, mask, value, x)


def _chosen(c: Call, condition: Value, x: Any, y: Any) -> Value:
    require(c.dtype.kind not in "biu", "integers are chosen")
    require(condition.dtype == np.bool_, "the condition is no bool")
    return c.map(("where", ("greater", _X, _ZERO), _Y, _Z), c.b.cast(condition, np.float32), x, y)


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


@rule("aten.clone.default", "aten.detach.default", "aten.alias.default", "aten.lift_fresh_copy.default")
def same(c: Call, x: Value, **_: Any) -> Value:
    return x


@rule("prims.convert_element_type.default")
def convert_element_type(c: Call, x: Value, dtype: Any) -> Value:
    return to_copy(c, x)


# ---------------------------------------------------------------- gradients


def _gelu_of(approximate: str) -> str:
    return "gelu" if approximate == "none" else "gelu_tanh"


def _through(expression: Expression) -> Expression:
    """The gradient of an expression of operand 1 by it, operand 0 being that of the result."""
    return differentiated(expression, _X, expression)[1]


@rule("aten.gelu_backward.default")
def gelu_backward(c: Call, diff: Value, x: Value, approximate: str = "none") -> Value:
    return c.map(_through((_gelu_of(approximate), _Y)), diff, x)


@rule("aten.silu_backward.default")
def silu_backward(c: Call, diff: Value, x: Value) -> Value:
    return c.map(_through(("swish", _Y)), diff, x)


@rule("aten.mish_backward.default")
def mish_backward(c: Call, diff: Value, x: Value) -> Value:
    return c.map(_through(("mish", _Y)), diff, x)


@rule("aten.tanh_backward.default")
def tanh_backward(c: Call, diff: Value, y: Value) -> Value:
    return c.map(("multiply", _X, ("subtract", _ONE, ("multiply", _Y, _Y))), diff, y)


@rule("aten.sigmoid_backward.default")
def sigmoid_backward(c: Call, diff: Value, y: Value) -> Value:
    return c.map(("multiply", _X, ("multiply", _Y, ("subtract", _ONE, _Y))), diff, y)


@rule("aten.threshold_backward.default")
def threshold_backward(c: Call, diff: Value, x: Value, threshold: float) -> Value:
    return c.map(("where", ("less_equal", _Y, number(float(threshold))), _ZERO, _X), diff, x)


def _inside(x: Expression, low: float, high: float) -> Expression:
    return ("and", ("greater", x, number(float(low))), ("less", x, number(float(high))))


@rule("aten.hardtanh_backward.default")
def hardtanh_backward(c: Call, diff: Value, x: Value, low: float, high: float) -> Value:
    return c.map(("where", _inside(_Y, low, high), _X, _ZERO), diff, x)


@rule("aten.hardsigmoid_backward.default")
def hardsigmoid_backward(c: Call, diff: Value, x: Value) -> Value:
    slope = ("multiply", _X, number(1 / 6))
    return c.map(("where", _inside(_Y, -3, 3), slope, _ZERO), diff, x)


@rule("aten.hardswish_backward.default")
def hardswish_backward(c: Call, diff: Value, x: Value) -> Value:
    slope = ("multiply", _X, ("add", ("divide", _Y, number(3.0)), number(0.5)))
    above = ("where", ("less", _Y, number(3.0)), slope, _X)
    return c.map(("where", ("less_equal", _Y, number(-3.0)), _ZERO, above), diff, x)


@rule("aten.leaky_relu_backward.default")
def leaky_relu_backward(c: Call, diff: Value, x: Value, slope: float, is_result: bool) -> Value:
    below = ("multiply", _X, number(slope))
    return c.map(("where", ("greater", _Y, _ZERO), _X, below), diff, x)


@rule("aten.native_dropout_backward.default", "dlprim.dropped_out")
def dropped_out(c: Call, x: Value, mask: Value, scale: float) -> Value:
    kept: Expression = ("multiply", ("multiply", _X, _Y), number(scale))
    return c.map(kept, x, c.b.cast(mask, x.dtype))


# ---------------------------------------------------------------- arrays of one number


def _full(c: Call, shape: Any, value: Any) -> Value:
    require(isinstance(value, bool | int | float), "its number follows from a tensor")
    return c.b.constant(np.broadcast_to(np.asarray(value).astype(c.dtype), tuple(shape)), "full")


@rule("aten.full.default")
def full(c: Call, shape: Any, value: Any, **_: Any) -> Value:
    return _full(c, shape, value)


@rule("aten.zeros.default")
def zeros(c: Call, shape: Any, **_: Any) -> Value:
    return _full(c, shape, 0)


@rule("aten.ones.default")
def ones(c: Call, shape: Any, **_: Any) -> Value:
    return _full(c, shape, 1)


@rule("aten.full_like.default")
def full_like(c: Call, x: Value, value: Any, **_: Any) -> Value:
    return _full(c, x.shape, value)


@rule("aten.zeros_like.default")
def zeros_like(c: Call, x: Value, **_: Any) -> Value:
    return _full(c, x.shape, 0)


@rule("aten.ones_like.default")
def ones_like(c: Call, x: Value, **_: Any) -> Value:
    return _full(c, x.shape, 1)


@rule("aten.scalar_tensor.default")
def scalar_tensor(c: Call, value: Any, **_: Any) -> Value:
    return _full(c, (), value)

