"""Mixtures of experts: each row goes through a few of several pairs of linear layers."""

from __future__ import annotations

import math

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import Expression, operand
from dlprim.graph.graph import Value
from dlprim.onnx.operators.microsoft.attention import parts_of
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
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "swish"}


def _shares(build: Builder, logits: Value, count: int, is_normalized: int) -> Value:
    """How much of each expert (experts, rows, 1) a row takes: of the likeliest ones."""
    rows, experts = logits.shape
    if not 1 <= count <= experts:
        raise RefusedError(f"k is {count}, expected 1 to {experts} experts")
    chances = build.emit("softmax", [logits], axis=1, log=False)[0]
    best, places = top_k(build, chances, build.constant(np.array(count)), axis=1)
    if is_normalized:
        total = build.reduce("sum", best, [1], keepdims=True)
        best = build.apply("divide", best, total)
    order = build.constant(np.arange(experts).reshape(experts, 1, 1))
    taken = ("where", ("equal", _X, operand(2)), _Y, ("subtract", _Y, _Y))
    shape = (1, rows, count)
    chosen = build.map(
        taken, build.reshape(places, shape), build.reshape(best, shape), order, dtype=best.dtype
    )
    return build.reduce("sum", chosen, [2], keepdims=True)


def _layer(build: Builder, x: Value, w: Value, bias: Value | None) -> Value:
    """x (..., rows, C) by the weights (K, C) of every expert."""
    y = build.matmul(x, build.transpose(w, (0, 2, 1)))
    if bias is None:
        return y
    return build.apply("add", y, build.reshape(bias, (bias.shape[0], 1, bias.shape[1])))


def _gate(build: Builder, y: Value, other: Value | None, fusion: int, gate: Expression) -> Value:
    """A product of two halves: of one layer, alternating or one after the other, or of two."""
    if other is None:
        half = y.shape[2] // 2
        if fusion == 1:
            pairs = build.reshape(y, (*y.shape[:2], half, 2))
            y, other = (
                build.reshape(it, (*y.shape[:2], half)) for it in parts_of(build, pairs, 3, (1, 1))
            )
        else:
            y, other = parts_of(build, y, 2, (half, half))
    return build.map(gate, y, other)


def _check(
    layers: tuple[tuple[Value | None, Value | None], ...], experts: int, widths: tuple[int, ...]
) -> None:
    """Weights (experts, results, inputs) and biases (experts, results) of every layer."""
    width, inner, fused = widths
    extents = ((fused, width), (width, inner), (inner, width))
    for place, ((w, bias), shape) in enumerate(zip(layers, extents, strict=True), 1):
        require_shape((experts, *shape), **{f"fc{place}_experts_weights": w})
        require_shape((experts, shape[0]), **{f"fc{place}_experts_bias": bias})


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
    """All experts compute all rows; of each row the shares of the likeliest ones are summed."""
    if second is None:
        raise RefusedError("fc2_experts_weights are left out, expected weights")
    if use_sparse_mixer or activation_type not in (*_ACTIVATIONS, "swiglu", "identity"):
        raise RefusedError(
            f"use_sparse_mixer is {use_sparse_mixer} and activation_type {activation_type!r}, "
            "expected 0, and relu, gelu, silu, swiglu or identity"
        )
    layers = ((first, first_bias), (second, second_bias), (third, third_bias))
    require_floats(input=x, router_probs=router, fc1=first, fc2=second, fc3=third)
    require_floats(input=x, fc1_bias=first_bias, fc2_bias=second_bias, fc3_bias=third_bias)
    require_rank(3, "(experts, K, C)", fc1_experts_weights=first, fc2_experts_weights=second)
    require_rank(2, "(rows, experts)", router_probs=router)
    if len(x.shape) not in (2, 3):
        raise RefusedError(f"input is of {list(x.shape)}, expected (rows, C) or (N, S, C)")
    width, inner = x.shape[-1], second.shape[2]
    is_gated = activation_type == "swiglu"
    is_fused = is_gated and third is None
    if swiglu_fusion not in (0, 1, 2) or (is_fused and not swiglu_fusion):
        raise RefusedError(f"swiglu_fusion is {swiglu_fusion}, expected 1 or 2 without fc3")
    rows = math.prod(x.shape[:-1])
    require_shape((rows, router.shape[1]), router_probs=router)
    _check(layers, router.shape[1], (width, inner, 2 * inner if is_fused else inner))
    flat = build.reshape(x, (1, rows, width))
    y = _layer(build, flat, first, first_bias)
    other = None if third is None else _layer(build, flat, third, third_bias)
    if is_gated:
        limit = swiglu_limit if math.isfinite(swiglu_limit) else 0.0
        gate = limited_gate(activation_alpha, activation_beta, limit)
        y = _gate(build, y, other, swiglu_fusion, gate)
    else:
        y = y if activation_type == "identity" else build.apply(_ACTIVATIONS[activation_type], y)
        y = y if other is None else build.apply("multiply", y, other)
    y = _layer(build, y, second, second_bias)
    shares = _shares(build, router, k, normalize_routing_weights)
    mixed = build.reduce("sum", build.apply("multiply", y, shares), [0])
    return build.reshape(mixed, x.shape)
