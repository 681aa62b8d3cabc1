"""Mixtures of experts: each row goes through a few of several pairs of linear layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Value
from dlprim.graph.operators.experts import between
from dlprim.onnx.operators.microsoft.checks import (
    MICROSOFT,
    require_floats,
    require_rank,
    require_shape,
)
from dlprim.onnx.operators.microsoft.elements import limited_gate
from dlprim.onnx.operators.reductions import top_k
from dlprim.onnx.registry import RefusedError, operator

_X, _Y = operand(0), operand(1)
_ACTIVATIONS: dict[str, Expression] = {
    "relu": ("relu", _X),
    "gelu": ("gelu", _X),
    "silu": ("swish", _X),
    "identity": _X,
}
_Layer = tuple[Value | None, Value | None]


def _shares(build: Builder, logits: Value, count: int, is_normalized: int) -> Value:
    """How much of each expert (experts, rows) a row takes: of the likeliest ones."""
    rows, experts = logits.shape
    if not 1 <= count <= experts:
        raise RefusedError(f"k is {count}, expected 1 to {experts} experts")
    chances = build.emit("softmax", [logits], axis=1, log=False)[0]
    best, places = top_k(build, chances, build.constant(np.array(count)), axis=1)
    if is_normalized:
        total = build.reduce("sum", best, [1], keepdims=True)
        best = build.apply("divide", best, total)
    order = build.constant(np.arange(experts, dtype=np.float32).reshape(experts, 1, 1))
    shape = (1, rows, count)
    best = build.reshape(best, shape)
    places = build.reshape(build.cast(places, np.float32), shape)
    taken = ("where", ("equal", _Y, operand(2)), _X, number(0.0))
    chosen = build.map(taken, best, places, order)
    return build.reduce("sum", chosen, [2])


def _layer(build: Builder, x: Value, w: Value, bias: Value | None) -> Value:
    """x (..., rows, C) by the weights (K, C) of every expert."""
    y = build.matmul(x, build.transpose(w, (0, 2, 1)))
    if bias is None:
        return y
    return build.apply("add", y, build.reshape(bias, (bias.shape[0], 1, bias.shape[1])))


def _checked(
    build: Builder, x: Value, router: Value, layers: Sequence[_Layer], fusion: int
) -> Value:
    """The rows of x, if weights (experts, results, inputs) and biases (experts, results) fit."""
    (first, _), (second, _), (third, _) = layers
    if first is None or second is None:
        raise RefusedError("fc1_experts_weights or fc2_experts_weights are left out")
    require_rank(3, "(experts, results, inputs)", fc1_experts_weights=first, fc2_weights=second)
    require_rank(2, "(rows, experts)", router_probs=router)
    if len(x.shape) not in (2, 3):
        raise RefusedError(f"input is of {list(x.shape)}, expected (rows, C) or (N, S, C)")
    width, inner, rows = x.shape[-1], second.shape[2], math.prod(x.shape[:-1])
    require_floats(input=x, router_probs=router)
    require_shape((rows, router.shape[1]), router_probs=router)
    extents = (((2 if fusion else 1) * inner, width), (width, inner), (inner, width))
    for place, ((w, bias), shape) in enumerate(zip(layers, extents, strict=True), 1):
        given = {f"fc{place}_experts_weights": w, f"fc{place}_experts_bias": bias}
        require_floats(input=x, **given)
        for value, expected in zip(given.items(), (shape, shape[:1]), strict=True):
            require_shape((router.shape[1], *expected), **dict([value]))
    if third is None and layers[2][1] is not None:
        raise RefusedError("fc3_experts_weights are left out, expected those of the bias")
    return build.reshape(x, (rows, width))


@operator("MoE", domain=MICROSOFT)
def mixture_of_experts(
    build: Builder,
    x: Value,
    router: Value,
    first: Value,
    first_bias: Value | None = None,
    second: Value | None = None,
    second_bias: Value | None = None,
    third: Value | None = None,
    third_bias: Value | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    k: int = 1,
    normalize_routing_weights: int = 0,
    swiglu_fusion: int = 0,
    swiglu_limit: float = math.inf,
    use_sparse_mixer: int = 0,
) -> Value:
    layers = ((first, first_bias), (second, second_bias), (third, third_bias))
    limit = swiglu_limit if math.isfinite(swiglu_limit) else 0.0
    is_gated = activation_type == "swiglu"
    fusion = swiglu_fusion if is_gated and third is None else 0
    if use_sparse_mixer or swiglu_fusion not in (0, 1, 2):
        raise RefusedError("use_sparse_mixer is 1 or swiglu_fusion above 2, expected less")
    if activation_type not in (*_ACTIVATIONS, "swiglu"):
        listed = ", ".join((*_ACTIVATIONS, "swiglu"))
        raise RefusedError(f"activation_type is {activation_type!r}, expected one of {listed}")
    if is_gated and third is None and not fusion:
        raise RefusedError("swiglu_fusion is 0 without fc3, expected 1 or 2")
    flat = _checked(build, x, router, layers, fusion)
    function = limited_gate(activation_alpha, activation_beta, limit)
    if not is_gated:
        function = _ACTIVATIONS[activation_type]
        function = function if third is None else ("multiply", function, _Y)
    how = {"function": function, "fusion": fusion}
    shares = _shares(build, router, k, normalize_routing_weights)
    values = [it for layer in layers for it in layer]
    if all(it is None or build.is_constant(it) for it in values):
        mixed = build.emit("experts", [flat, shares, *values], **how)[0]
    else:
        mixed = _dense(build, flat, shares, layers, how)
    return build.reshape(mixed, x.shape)


def _dense(
    build: Builder, flat: Value, shares: Value, layers: Sequence[_Layer], how: Mapping[str, Any]
) -> Value:
    """All experts compute all rows; of each row the shares of the likeliest ones are summed."""
    (first, first_bias), (second, second_bias), (third, third_bias) = layers
    assert first is not None
    assert second is not None
    rows = build.reshape(flat, (1, *flat.shape))
    other = None if third is None else _layer(build, rows, third, third_bias)
    y = between(build.emit, _layer(build, rows, first, first_bias), other, how)
    y = _layer(build, y, second, second_bias)
    shares = build.reshape(shares, (*shares.shape, 1))
    return build.reduce("sum", build.apply("multiply", y, shares), [0])
