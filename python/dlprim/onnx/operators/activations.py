"""Activations: functions of one element that networks have names for."""

from __future__ import annotations

import math

from dlprim.graph import Builder, Value
from dlprim.graph.expressions import Expression, number, operand
from dlprim.onnx.operators.elements import require_alike
from dlprim.onnx.registry import RefusedError, operator

X, Y = operand(0), operand(1)
ZERO, ONE = number(0.0), number(1.0)


def clipped(x: Expression) -> Expression:
    """x, between zero and one."""
    return ("maximum", ZERO, ("minimum", ONE, x))


@operator("LeakyRelu")
def leaky_relu(builder: Builder, x: Value, *, alpha: float = 0.01) -> Value:
    return builder.map(("where", ("less", X, ZERO), ("multiply", X, number(alpha)), X), x)


@operator("PRelu")
def prelu(builder: Builder, x: Value, slope: Value) -> Value:
    require_alike(x, slope)
    return builder.map(("where", ("less", X, ZERO), ("multiply", X, Y), X), x, slope)


@operator("Elu")
def elu(builder: Builder, x: Value, *, alpha: float = 1.0) -> Value:
    below = ("multiply", number(alpha), ("subtract", ("exp", X), ONE))
    return builder.map(("where", ("less", X, ZERO), below, X), x)


@operator("Celu")
def celu(builder: Builder, x: Value, *, alpha: float = 1.0) -> Value:
    if alpha == 0:
        raise RefusedError("alpha is 0, expected another number")
    power = ("exp", ("divide", X, number(alpha)))
    below = ("minimum", ZERO, ("multiply", number(alpha), ("subtract", power, ONE)))
    return builder.map(("add", ("maximum", ZERO, X), below), x)


@operator("Selu")
def selu(
    builder: Builder,
    x: Value,
    *,
    alpha: float = 1.67326319217681884765625,
    gamma: float = 1.05070102214813232421875,
) -> Value:
    below = ("multiply", number(alpha), ("subtract", ("exp", X), ONE))
    return builder.map(("multiply", number(gamma), ("where", ("greater", X, ZERO), X, below)), x)


@operator("HardSigmoid")
def hard_sigmoid(builder: Builder, x: Value, *, alpha: float = 0.2, beta: float = 0.5) -> Value:
    return builder.map(clipped(("add", ("multiply", X, number(alpha)), number(beta))), x)


@operator("HardSwish", since=14)
def hard_swish(builder: Builder, x: Value) -> Value:
    inner = clipped(("add", ("divide", X, number(6.0)), number(0.5)))
    return builder.map(("multiply", X, inner), x)


@operator("Mish", since=18)
def mish(builder: Builder, x: Value) -> Value:
    return builder.map(("multiply", X, ("tanh", ("softplus", X))), x)


@operator("Softsign")
def softsign(builder: Builder, x: Value) -> Value:
    return builder.map(("divide", X, ("add", ("abs", X), ONE)), x)


@operator("ThresholdedRelu")
def thresholded_relu(builder: Builder, x: Value, *, alpha: float = 1.0) -> Value:
    return builder.map(("where", ("greater", X, number(alpha)), X, ZERO), x)


@operator("Shrink", since=9)
def shrink(builder: Builder, x: Value, *, bias: float = 0.0, lambd: float = 0.5) -> Value:
    above = ("where", ("greater", X, number(lambd)), ("subtract", X, number(bias)), ZERO)
    below = ("less", X, number(-lambd))
    return builder.map(("where", below, ("add", X, number(bias)), above), x)


@operator("Swish", since=24)
def swish(builder: Builder, x: Value, *, alpha: float = 1.0) -> Value:
    return builder.map(("multiply", X, ("sigmoid", ("multiply", X, number(alpha)))), x)


@operator("SwiGLU", since=28)
def swiglu(builder: Builder, a: Value, b: Value, *, alpha: float = 1.0) -> Value:
    require_alike(a, b)
    gate = ("multiply", X, ("sigmoid", ("multiply", X, number(alpha))))
    return builder.map(("multiply", gate, Y), a, b)


@operator("Gelu", since=20)
def gelu(builder: Builder, x: Value, *, approximate: str = "none") -> Value:
    if approximate == "none":
        return builder.apply("gelu", x)
    if approximate != "tanh":
        raise RefusedError(f"approximate is '{approximate}', expected 'none' or 'tanh'")
    cube = ("multiply", X, ("multiply", X, X))
    inner = ("add", X, ("multiply", number(0.044715), cube))
    tanh = ("tanh", ("multiply", number(math.sqrt(2 / math.pi)), inner))
    return builder.map(("multiply", ("multiply", number(0.5), X), ("add", ONE, tanh)), x)


@operator("Dropout", since=12)
def dropout(
    builder: Builder,
    x: Value,
    ratio: Value | None = None,
    training_mode: Value | None = None,
    *,
    seed: int = 0,
) -> tuple[Value, ...]:
    """Nothing is dropped, as in inference."""
    trains = training_mode is not None and bool(builder.array(training_mode).any())
    if trains and (ratio is None or bool(builder.array(ratio).any())):
        raise RefusedError("training_mode is true, expected a model for inference")
    return _dropped_nothing(builder, x)


@operator("Dropout", since=7)
def dropout_7(builder: Builder, x: Value, *, ratio: float = 0.5) -> tuple[Value, ...]:
    return _dropped_nothing(builder, x)


def _dropped_nothing(builder: Builder, x: Value) -> tuple[Value, ...]:
    kept = builder.constant(True)
    return x, builder.expand(kept, x.shape)
