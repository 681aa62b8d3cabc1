"""Activations, as expressions of elements."""

from __future__ import annotations

import math

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Value
from dlprim.onnx.registry import RefusedError, operator

_X = operand(0)
_ZERO = number(0)
_ONE = number(1)


def _scaled(factor: float, expression: Expression) -> Expression:
    return expression if factor == 1 else ("multiply", number(factor), expression)


def _between(least: float, most: float, expression: Expression) -> Expression:
    return ("minimum", ("maximum", expression, number(least)), number(most))


def _exponential_minus_one(expression: Expression) -> Expression:
    return ("subtract", ("exp", expression), _ONE)


@operator("Relu")
def relu(build: Builder, x: Value) -> Value:
    return build.apply("relu", x)


@operator("LeakyRelu")
def leaky_relu(build: Builder, x: Value, *, alpha: float = 0.01) -> Value:
    return build.map(("where", ("less", _X, _ZERO), _scaled(alpha, _X), _X), x)


@operator("PRelu", since=7)
def prelu(build: Builder, x: Value, slope: Value) -> Value:
    rank, extents = len(x.shape), slope.shape
    behind = x.shape[max(0, rank - len(extents)) :]
    if len(extents) > rank or any(a not in (1, b) for a, b in zip(extents, behind, strict=True)):
        raise RefusedError(
            f"slope of {list(extents)}, expected one that can be broadcast to {list(x.shape)}"
        )
    scaled = ("multiply", _X, operand(1))
    return build.map(("where", ("less", _X, _ZERO), scaled, _X), x, slope)


@operator("Elu")
def elu(build: Builder, x: Value, *, alpha: float = 1.0) -> Value:
    below = _scaled(alpha, _exponential_minus_one(_X))
    return build.map(("where", ("greater", _X, _ZERO), _X, below), x)


@operator("Selu", since=6)
def selu(
    build: Builder,
    x: Value,
    *,
    alpha: float = 1.6732631921768188,
    gamma: float = 1.0507010221481323,
) -> Value:
    below = _scaled(gamma * alpha, _exponential_minus_one(_X))
    return build.map(("where", ("greater", _X, _ZERO), _scaled(gamma, _X), below), x)


@operator("Celu")
def celu(build: Builder, x: Value, *, alpha: float = 1.0) -> Value:
    if not (math.isfinite(alpha) and alpha):
        raise RefusedError(f"alpha is {alpha}, expected a finite number other than 0")
    below = _scaled(alpha, _exponential_minus_one(("divide", _X, number(alpha))))
    return build.map(("add", ("maximum", _X, _ZERO), ("minimum", below, _ZERO)), x)


@operator("ThresholdedRelu")
def thresholded_relu(build: Builder, x: Value, *, alpha: float = 1.0) -> Value:
    return build.map(("where", ("greater", _X, number(alpha)), _X, _ZERO), x)


@operator("HardSigmoid")
def hard_sigmoid(build: Builder, x: Value, *, alpha: float = 0.2, beta: float = 0.5) -> Value:
    return build.map(_between(0, 1, ("add", _scaled(alpha, _X), number(beta))), x)


@operator("HardSwish")
def hard_swish(build: Builder, x: Value) -> Value:
    return build.apply("hardswish", x)


@operator("Sigmoid")
def sigmoid(build: Builder, x: Value) -> Value:
    return build.apply("sigmoid", x)


@operator("Tanh")
def tanh(build: Builder, x: Value) -> Value:
    return build.apply("tanh", x)


@operator("Erf", since=9)
def erf(build: Builder, x: Value) -> Value:
    return build.apply("erf", x)


@operator("Softplus")
def softplus(build: Builder, x: Value) -> Value:
    return build.apply("softplus", x)


@operator("Softsign")
def softsign(build: Builder, x: Value) -> Value:
    return build.map(("divide", _X, ("add", ("abs", _X), _ONE)), x)


@operator("Mish", since=18)
def mish(build: Builder, x: Value) -> Value:
    return build.apply("mish", x)


def swish_of(alpha: float) -> Expression:
    if alpha == 1:
        return ("swish", _X)
    return ("multiply", _X, ("sigmoid", _scaled(alpha, _X)))


@operator("Swish", since=24)
def swish(build: Builder, x: Value, *, alpha: float = 1.0) -> Value:
    return build.map(swish_of(alpha), x)


@operator("SwiGLU", since=28)
def swiglu(build: Builder, a: Value, b: Value, *, alpha: float = 1.0) -> Value:
    if a.shape != b.shape:
        raise RefusedError(f"A of {list(a.shape)} and B of {list(b.shape)}, expected one shape")
    return build.map(("multiply", swish_of(alpha), operand(1)), a, b)


@operator("Gelu", since=20)
def gelu(build: Builder, x: Value, *, approximate: str = "none") -> Value:
    if approximate not in ("none", "tanh"):
        raise RefusedError(f"approximate is {approximate!r}, expected 'none' or 'tanh'")
    return build.apply("gelu" if approximate == "none" else "gelu_tanh", x)


@operator("Shrink", since=9)
def shrink(build: Builder, x: Value, *, bias: float = 0.0, lambd: float = 0.5) -> Value:
    above = ("where", ("greater", _X, number(lambd)), ("subtract", _X, number(bias)), _ZERO)
    below = ("add", _X, number(bias))
    return build.map(("where", ("less", _X, number(-lambd)), below, above), x)


# ---------------------------------------------------------------- Clip


@operator("Clip")
def clip_to_attributes(
    build: Builder,
    x: Value,
    *,
    min: float = -3.4028234663852886e38,
    max: float = 3.4028234663852886e38,
) -> Value:
    return build.map(_between(min, max, _X), x)


@operator("Clip", since=11)
def clip(build: Builder, x: Value, low: Value | None = None, high: Value | None = None) -> Value:
    """Limits that are constants stand in the expression as numbers."""
    operands, expression = [x], _X
    for name, function, limit in (("min", "maximum", low), ("max", "minimum", high)):
        if limit is None:
            continue
        if limit.size != 1 or limit.dtype != x.dtype:
            raise RefusedError(f"{name} is {limit!r}, expected one number of {x.dtype}")
        if build.is_constant(limit):
            expression = (function, expression, number(build.array(limit).item()))
        else:
            operands.append(build.reshape(limit, ()))
            expression = (function, expression, operand(len(operands) - 1))
    return build.map(expression, *operands)
