"""dlprim's functions of elements and rows in a trace: activations, norms, softmax, losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dlprim.arguments.names import activation_name, relu_or_none
from dlprim.arguments.scalars import flag, integer, real
from dlprim.functions.rows.axes import axes_of, kept_shape, require_elements
from dlprim.functions.rows.residual_norm import AddNormResult
from dlprim.graph.expressions import Expression, number
from dlprim.tracing.layers.operands import alike, checked_layer, floats, shaped, values
from dlprim.tracing.refusals import refuse
from dlprim.tracing.tracer import made, mapped

_SCALE, _ALPHA = 1.0507009873554805, 1.6732632423543772  # of selu


def _named(name: str) -> Callable[..., Expression]:
    return lambda x: (name, x)


def _elu(x: Expression, alpha: float = 1.0) -> Expression:
    below = ("minimum", x, number(0.0))
    half = ("tanh", ("multiply", below, number(0.5)))
    less_one = ("multiply", half, ("add", ("exp", below), number(1.0)))
    return ("where", ("greater", x, number(0.0)), x, ("multiply", number(alpha), less_one))


def _selu(x: Expression) -> Expression:
    return ("multiply", number(_SCALE), _elu(x, _ALPHA))


def _leaky(x: Expression, slope: float) -> Expression:
    return ("where", ("less", x, number(0.0)), ("multiply", number(slope), x), x)


def _softplus(x: Expression, beta: float, threshold: float) -> Expression:
    scaled = x if beta == 1.0 else ("multiply", number(beta), x)
    value: Expression = ("softplus", scaled)
    value = value if beta == 1.0 else ("multiply", number(1 / beta), value)
    return ("where", ("greater", scaled, number(threshold)), x, value)


# By the names of `value_of`; numbers follow the array.
PROGRAMS: dict[str, Callable[..., Expression]] = {
    **{
        name: _named(name)
        for name in (
            "sigmoid", "tanh", "gelu", "gelu_tanh", "swish", "hardsigmoid", "hardswish", "mish",
            "relu", "relu6",
        )
    },
    "elu": _elu,
    "leaky_relu": _leaky,
    "selu": _selu,
    "softplus": _softplus,
}  # fmt: skip


def activated(x: Any, name: str, *numbers: float) -> Any:
    """An activation by the name of its program."""
    return mapped(lambda it: PROGRAMS[name](it, *numbers), (x,))


def ended(y: Any, activation: str | None) -> Any:
    """What follows a sum in one of the functions that have an activation."""
    name = activation_name(activation)
    return y if name == "none" else activated(y, name)


@checked_layer
def value_of(name: str, x: Any, numbers: tuple[float, ...]) -> Any:
    """What activations come to, whose own arguments are checked by then."""
    if name not in PROGRAMS:
        refuse(f"dlprim.{name} cannot be traced", "functions that docs/gradients.md lists")
    (x,) = floats(x=x)
    return activated(x, name, *numbers)


@checked_layer
def relu(x: Any) -> Any:
    (x,) = floats(x=x)
    return activated(x, "relu")


@checked_layer
def add(x: Any, other: Any, *, activation: str | None = None) -> Any:
    x, other = floats(x=x, other=other)
    alike("other", other, "x", x)
    shaped("other", other, x.shape, "the shape of x")
    total: Any = x + other
    return total if relu_or_none(activation) is None else activated(total, "relu")


@checked_layer
def prelu(x: Any, weight: Any) -> Any:
    x, weight = floats(x=x, weight=weight)
    shapes = [(), (1,), *([x.shape[1:2]] if x.ndim >= 2 else [])]
    if weight.shape not in shapes:
        raise ValueError(
            f"weight has shape {weight.shape}, expected one slope or one for each channel of x, "
            f"whose shape is {x.shape}"
        )
    slopes = weight.reshape(-1, *[1] * (x.ndim - 2)) if x.ndim >= 2 else weight.reshape(())
    return np.where(x < 0, x * slopes.astype(x.dtype), x)


# ---------------------------------------------------------------- softmax and norms


def softmax_along(x: Any, axis: Any, log: bool) -> Any:
    (x,) = floats(x=x)
    rows = x if x.ndim else x.reshape(1)
    place = integer("axis", axis, -rows.ndim, rows.ndim)
    build = x.tracer.build
    y = made(
        x.tracer, lambda: build.emit("softmax", [rows.value], axis=place % rows.ndim, log=log)[0]
    )
    return y if x.ndim else y.reshape(())


@checked_layer
def softmax(x: Any, axis: int = -1) -> Any:
    return softmax_along(x, axis, log=False)


@checked_layer
def log_softmax(x: Any, axis: int = -1) -> Any:
    return softmax_along(x, axis, log=True)


def _normalized(x: Any, weight: Any, bias: Any, eps: Any, rms: bool) -> Any:
    x, weight, bias = floats(x=x, weight=weight, bias=bias)
    if x.ndim == 0:
        raise ValueError("x has shape (), expected (..., C)")
    for name, it in (("weight", weight), ("bias", bias)):
        if it is not None and (it.ndim == 0 or it.shape != x.shape[-it.ndim :]):
            raise ValueError(
                f"{name} has shape {it.shape}, expected {x.shape[-1:]}, or more of the last axes "
                f"of x, whose shape is {x.shape}"
            )
    if weight is not None and bias is not None:
        shaped("bias", bias, weight.shape, "the shape of weight")
    form = bias if weight is None else weight
    axes = 1 if form is None else form.ndim
    how = {"axes": axes, "epsilon": real("eps", eps, 0), "rms": rms}
    wide = [None if it is None else it.astype(np.float32) for it in (weight, bias)]
    build, inputs = x.tracer.build, values(x, *wide)
    return made(x.tracer, lambda: build.emit("normalize", inputs, **how)[0])


@checked_layer
def layer_norm(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    return _normalized(x, weight, bias, eps, rms=False)


@checked_layer
def rms_norm(x: Any, weight: Any = None, eps: float = 1e-5) -> Any:
    return _normalized(x, weight, None, eps, rms=True)


def _summed(x: Any, residual: Any) -> Any:
    x, residual = floats(x=x, residual=residual)
    alike("residual", residual, "x", x)
    shaped("residual", residual, x.shape, "the shape of x")
    return x + residual


@checked_layer
def add_layer_norm(
    x: Any, residual: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> AddNormResult:
    total = _summed(x, residual)
    return AddNormResult(_normalized(total, weight, bias, eps, rms=False), total)


@checked_layer
def add_rms_norm(x: Any, residual: Any, weight: Any = None, eps: float = 1e-5) -> AddNormResult:
    total = _summed(x, residual)
    return AddNormResult(_normalized(total, weight, None, eps, rms=True), total)


def _grouped(x: Any, groups: int, weight: Any, bias: Any, eps: Any) -> Any:
    x, weight, bias = floats(x=x, weight=weight, bias=bias)
    if x.ndim < 2:
        raise ValueError(f"x has shape {x.shape}, expected (N, C, ...)")
    channels = x.shape[1]
    groups = groups or max(channels, 1)
    if channels % groups:
        raise ValueError(f"num_groups is {groups}, expected a divisor of C = {channels}")
    for name, it in (("weight", weight), ("bias", bias)):
        shaped(name, it, (channels,), "C from x")
    how = {"groups": groups, "epsilon": real("eps", eps, 0)}
    build, inputs = x.tracer.build, values(x, weight, bias)
    return made(x.tracer, lambda: build.emit("group_norm", inputs, **how)[0])


@checked_layer
def group_norm(
    x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    return _grouped(x, integer("num_groups", num_groups, 1), weight, bias, eps)


@checked_layer
def instance_norm(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    return _grouped(x, 0, weight, bias, eps)


# ---------------------------------------------------------------- reductions


def _reduction(name: str, function: Any, needs_some: bool) -> None:
    def apply(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        (x,) = floats(x=x)
        axes = axes_of(axis, x.ndim)
        kept_shape(x.shape, axes, keepdims)
        if needs_some:
            require_elements(x, axes)
        return function(x, axis=axes, keepdims=keepdims)

    apply.__name__ = name
    checked_layer(apply)


_reduction("reduce_sum", np.sum, needs_some=False)
_reduction("reduce_mean", np.mean, needs_some=False)
_reduction("reduce_max", np.max, needs_some=True)
_reduction("reduce_min", np.min, needs_some=True)


def _place(name: str, function: Any) -> None:
    def apply(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
        (x,) = floats(x=x)
        if isinstance(axis, tuple | list):
            raise TypeError(f"axis is {axis!r}, expected an integer or None")
        require_elements(x, axes_of(axis, x.ndim))
        return function(x, axis=axis, keepdims=flag("keepdims", keepdims))

    apply.__name__ = name
    checked_layer(apply)


_place("argmax", np.argmax)
_place("argmin", np.argmin)
