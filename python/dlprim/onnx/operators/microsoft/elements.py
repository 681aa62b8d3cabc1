"""Activations, with the sum in front or the product behind, and other maps of elements."""

from __future__ import annotations

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.graph import Value
from dlprim.onnx.operators.activations import swish_of
from dlprim.onnx.operators.layers.axis_norms import flat_softmax
from dlprim.onnx.operators.microsoft.attention import part_of, parts_of
from dlprim.onnx.operators.microsoft.checks import (
    MICROSOFT,
    require_floats,
    require_rank,
    require_shape,
)
from dlprim.onnx.registry import RefusedError, operator

_X, _Y = operand(0), operand(1)


# ---------------------------------------------------------------- activations


@operator("Gelu", domain=MICROSOFT)
def gelu(build: Builder, x: Value) -> Value:
    return build.apply("gelu", x)


@operator("BiasGelu", domain=MICROSOFT)
def bias_gelu(build: Builder, x: Value, bias: Value) -> Value:
    return build.map(("gelu", ("add", _X, _Y)), x, bias)


@operator("FastGelu", domain=MICROSOFT)
def fast_gelu(build: Builder, x: Value, bias: Value | None = None) -> Value:
    if bias is None:
        return build.apply("gelu_tanh", x)
    return build.map(("gelu_tanh", ("add", _X, _Y)), x, bias)


@operator("QuickGelu", domain=MICROSOFT)
def quick_gelu(build: Builder, x: Value, *, alpha: float = 1.702) -> Value:
    return build.map(swish_of(alpha), x)


@operator("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(build: Builder, x: Value, bias: Value) -> Value:
    """The first half of the sum times Gelu of the second."""
    require_floats(X=x, bias=bias)
    if not x.shape or x.shape[-1] % 2:
        raise RefusedError(f"X is of {list(x.shape)}, expected an even extent behind")
    require_shape(x.shape[-1:], bias=bias)
    half, last = x.shape[-1] // 2, len(x.shape) - 1
    left, right = parts_of(build, x, last, (half, half))
    first, second = parts_of(build, bias, 0, (half, half))
    gated = ("gelu", ("add", operand(1), operand(3)))
    expression = ("multiply", ("add", _X, operand(2)), gated)
    return build.map(expression, left, right, first, second)


def limited_gate(alpha: float, beta: float, limit: float) -> Expression:
    """``g * sigmoid(alpha * g) * (u + beta)`` of two operands that are cut at a limit above 0."""
    gate, up = _X, _Y
    if limit > 0:
        gate = ("minimum", gate, number(limit))
        up = ("minimum", ("maximum", up, number(-limit)), number(limit))
    up = up if beta == 0 else ("add", up, number(beta))
    scaled = gate if alpha == 1 else ("multiply", number(alpha), gate)
    return ("multiply", ("multiply", gate, ("sigmoid", scaled)), up)


@operator("SwiGLU", domain=MICROSOFT)
def clamped_swiglu(
    build: Builder,
    gate: Value,
    up: Value | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    limit: float = 0.0,
    round_activation: int = 0,
) -> Value:
    """Both halves lie one after the other where there is one input."""
    require_floats(gate=gate, up=up)
    if up is None:
        if not gate.shape or gate.shape[-1] % 2:
            raise RefusedError(f"gate is of {list(gate.shape)}, expected an even extent behind")
        half = gate.shape[-1] // 2
        gate, up = parts_of(build, gate, len(gate.shape) - 1, (half, half))
    require_shape(gate.shape, up=up)
    return build.map(limited_gate(activation_alpha, activation_beta, limit), gate, up)


# ---------------------------------------------------------------- sums


@operator("BiasAdd", domain=MICROSOFT)
def bias_add(build: Builder, x: Value, bias: Value, skip: Value) -> Value:
    require_floats(X=x, bias=bias, skip=skip)
    require_shape(x.shape[-1:], bias=bias)
    require_shape(x.shape, skip=skip)
    return build.map(("add", ("add", _X, _Y), operand(2)), x, bias, skip)


@operator("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(
    build: Builder, x: Value, bias: Value, *, is_inner_broadcast: int, axis: int = 1
) -> Value:
    """Softmax of all elements from an axis on, of a sum; the bias is broadcast as NumPy does."""
    require_floats(data=x, bias=bias)
    total = build.apply("add", x, bias)
    require_shape(x.shape, bias=total)
    return flat_softmax(build, total, axis=axis)


@operator("IsAllFinite", domain=MICROSOFT)
def is_all_finite(
    build: Builder, *inputs: Value, isinf_only: int = 0, isnan_only: int = 0
) -> Value:
    """Whether no element of any input is infinite or no number."""
    if isinf_only and isnan_only:
        raise RefusedError("isinf_only and isnan_only are 1, expected one of them at most")
    require_floats(**{f"input {place}": it for place, it in enumerate(inputs)})
    size = ("abs", _X)
    is_bad: Expression = ("not", ("less", size, number(np.inf)))
    if isnan_only:
        is_bad = ("is_nan", _X)
    if isinf_only:
        is_bad = ("equal", size, number(np.inf))
    counted = ("where", is_bad, number(1.0), number(0.0))
    found = [
        build.reduce("max", build.map(counted, it, dtype=np.float32), range(len(it.shape)))
        for it in inputs
    ]
    most = found[0]
    for it in found[1:]:
        most = build.apply("maximum", most, it)
    return build.map(("not", ("greater", _X, number(0.0))), most, dtype=bool)


# ---------------------------------------------------------------- complex numbers, turned heads


def _complex_product(build: Builder, a: Value, b: Value, sign: str) -> Value:
    """Of pairs of real and imaginary parts, the second one's of this sign."""
    require_floats(A=a, B=b)
    for name, x in (("A", a), ("B", b)):
        if x.shape[-1:] != (2,):
            raise RefusedError(f"{name} is of {list(x.shape)}, expected pairs in the last axis")
    parts = [part_of(build, x, len(x.shape) - 1, place, 1) for x in (a, b) for place in (0, 1)]
    one = ("multiply", operand(0), operand(2)), ("multiply", operand(1), operand(3))
    two = ("multiply", operand(1), operand(2)), ("multiply", operand(0), operand(3))
    other = "subtract" if sign == "add" else "add"
    real, imaginary = build.map((other, *one), *parts), build.map((sign, *two), *parts)
    return build.concat([real, imaginary], len(real.shape) - 1)


@operator("ComplexMul", domain=MICROSOFT)
def complex_mul(build: Builder, a: Value, b: Value) -> Value:
    return _complex_product(build, a, b, "add")


@operator("ComplexMulConj", domain=MICROSOFT)
def complex_mul_conj(build: Builder, a: Value, b: Value) -> Value:
    return _complex_product(build, a, b, "subtract")


@operator("GemmaRotaryEmbedding", domain=MICROSOFT)
def gemma_rotary_embedding(
    build: Builder, angles: Value, q: Value, q_turned: Value, k: Value, k_turned: Value
) -> tuple[Value, Value]:
    """Heads and the same with their halves exchanged, by the cosines and sines of angles."""
    require_floats(q=q, q_rot=q_turned, k=k, k_rot=k_turned)
    require_floats(emb=angles)
    require_rank(3, "(N, S, D)", emb=angles)
    require_rank(4, "(N, H, S, D)", q=q, k=k)
    require_shape(q.shape, q_rot=q_turned)
    require_shape(k.shape, k_rot=k_turned)
    samples, rows, size = angles.shape
    spread = build.reshape(angles, (samples, 1, rows, size))
    cosines, sines = (build.apply(it, spread, dtype=q.dtype) for it in ("cos", "sin"))
    products = ("multiply", operand(0), operand(2)), ("multiply", operand(1), operand(3))
    y_q, y_k = (
        build.map(("add", *products), x, turned, cosines, sines)
        for x, turned in ((q, q_turned), (k, k_turned))
    )
    return y_q, y_k
