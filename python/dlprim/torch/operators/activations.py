"""Activations that have parameters, and their gradients."""

from __future__ import annotations

from typing import Any

from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Value
from dlprim.torch.operators.table import Call, rule

_X, _Y, _Z = operand(0), operand(1), operand(2)
_ZERO, _ONE = number(0.0), number(1.0)


def _scaled(x: Expression, factor: float) -> Expression:
    return x if factor == 1 else ("multiply", x, number(factor))


# ---------------------------------------------------------------- exponential below zero


@rule("aten.elu.default")
def elu(c: Call, x: Value, alpha: float = 1, scale: float = 1, inner: float = 1) -> Value:
    """Also `selu`, which differs in the three numbers."""
    below = ("subtract", ("exp", _scaled(_X, float(inner))), _ONE)
    chosen = ("where", ("greater", _X, _ZERO), _X, _scaled(below, float(alpha)))
    # What is no number is not greater: the exponential keeps it.
    return c.map(_scaled(chosen, float(scale)), x)


@rule("aten.celu.default")
def celu(c: Call, x: Value, alpha: float = 1) -> Value:
    return elu(c, x, alpha, 1, 1 / alpha)


@rule("aten.elu_backward.default")
def elu_backward(c: Call, diff: Value, *how: Any) -> Value:
    """By what was activated, or by the result."""
    alpha, scale, inner, is_result, of = how
    factor = float(alpha) * float(scale)
    if is_result:
        bent: Expression = ("add", _Y, number(factor))
    else:
        bent = _scaled(("exp", _scaled(_Y, float(inner))), factor)
    above, below = _scaled(_X, float(scale)), _scaled(bent, float(inner))
    chosen = ("where", ("greater", _Y, _ZERO), above, ("multiply", _X, below))
    return c.map(chosen, diff, of)


# ---------------------------------------------------------------- soft steps


@rule("aten.softplus.default")
def softplus(c: Call, x: Value, beta: float = 1, threshold: float = 20) -> Value:
    inner = _scaled(_X, float(beta))
    soft = _scaled(("softplus", inner), 1 / float(beta))
    return c.map(("where", ("greater", inner, number(float(threshold))), _X, soft), x)


@rule("aten.softplus_backward.default")
def softplus_backward(c: Call, diff: Value, x: Value, beta: float, threshold: float) -> Value:
    inner = _scaled(_Y, float(beta))
    slope = ("multiply", _X, ("sigmoid", inner))
    return c.map(("where", ("greater", inner, number(float(threshold))), _X, slope), diff, x)


@rule("aten.log_sigmoid_forward.default")
def log_sigmoid(c: Call, x: Value) -> tuple[Value, None]:
    return c.map(("negate", ("softplus", ("negate", _X))), x), None


@rule("aten._prelu_kernel.default")
def prelu(c: Call, x: Value, slope: Value) -> Value:
    return c.map(("where", ("greater", _X, _ZERO), _X, ("multiply", _X, _Y)), x, slope)


@rule("aten._prelu_kernel_backward.default")
def prelu_backward(c: Call, diff: Value, x: Value, slope: Value) -> tuple[Value, Value]:
    is_above = ("greater", _Y, _ZERO)
    by_x = c.map(("where", is_above, _X, ("multiply", _X, _Z)), diff, x, slope)
    by_slope = c.map(("where", is_above, _ZERO, ("multiply", _X, _Y)), diff, x)
    return by_x, by_slope
