"""Weights in 8 bits whose activations are quantised as a model runs, or are floats at once."""

from __future__ import annotations

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import Expression, operand
from dlprim.graph.graph import Value
from dlprim.onnx.operators.layers.products import matmul_integer
from dlprim.onnx.operators.layers.recurrent import lstm
from dlprim.onnx.operators.quantized.conversions import MICROSOFT, dynamic_quantize
from dlprim.onnx.registry import RefusedError, operator


def _scaled(build: Builder, sums: Value, scales: tuple[Value, Value], bias: Value | None) -> Value:
    """Sums of 32 bits times a scale of all of a, and one or one for each column of b."""
    of_a, of_b = scales
    if of_a.size != 1:
        raise RefusedError(f"a_scale of {list(of_a.shape)}, expected one number")
    if of_b.size != 1 and of_b.shape[-1:] != sums.shape[-1:]:
        raise RefusedError(
            f"b_scale of {list(of_b.shape)}, expected one number or {sums.shape[-1]}"
        )
    factors = [build.reshape(it, () if it.size == 1 else it.shape) for it in scales]
    scaled: Expression = ("multiply", operand(0), ("multiply", operand(1), operand(2)))
    floats = build.cast(sums, np.float32)
    if bias is None:
        return build.map(scaled, floats, *factors)
    return build.map(("add", scaled, operand(3)), floats, *factors, bias)


@operator("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(
    build: Builder,
    a: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value | None = None,
    bias: Value | None = None,
) -> Value:
    quantised, scale, zero = dynamic_quantize(build, a)
    sums = matmul_integer(build, quantised, b, zero, b_zero)
    return _scaled(build, sums, (scale, b_scale), bias)


@operator("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    build: Builder,
    a: Value,
    b: Value,
    a_scale: Value,
    b_scale: Value,
    a_zero: Value | None = None,
    b_zero: Value | None = None,
    bias: Value | None = None,
) -> Value:
    return _scaled(build, matmul_integer(build, a, b, a_zero, b_zero), (a_scale, b_scale), bias)


# ---------------------------------------------------------------- LSTM


def _gates(build: Builder, name: str, q: Value, scale: Value, zero: Value) -> Value:
    """(directions, columns, gates) in 8 bits as floats (directions, gates, columns)."""
    if len(q.shape) != 3:
        raise RefusedError(f"{name} of {list(q.shape)}, expected three axes")
    directions, _, gates = q.shape
    listed = []
    for value in (scale, zero):
        if value.shape not in ((directions,), (directions, gates)):
            raise RefusedError(
                f"a scale or zero point of {name} of {list(value.shape)}, expected "
                f"{[directions]} or {[directions, gates]}"
            )
        listed.append(build.reshape(value, (directions, 1, value.size // directions)))
    floats = [build.cast(it, np.float32) for it in (q, *listed)]
    meant: Expression = ("multiply", ("subtract", operand(0), operand(2)), operand(1))
    return build.transpose(build.map(meant, *floats), (0, 2, 1))


@operator("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(
    build: Builder,
    x: Value,
    w: Value,
    r: Value,
    bias: Value | None,
    lengths: Value | None,
    h: Value | None,
    c: Value | None,
    peepholes: Value | None,
    w_scale: Value,
    w_zero: Value,
    r_scale: Value,
    r_zero: Value,
    *,
    activation_alpha: tuple[float, ...] | None = None,
    activation_beta: tuple[float, ...] | None = None,
    activations: tuple[str, ...] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
) -> tuple[Value, ...]:
    """An LSTM layer of the floats that the weights stand for; activations are not rounded."""
    return lstm(
        build,
        x,
        _gates(build, "W", w, w_scale, w_zero),
        _gates(build, "R", r, r_scale, r_zero),
        bias,
        lengths,
        h,
        c,
        peepholes,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        activations=activations,
        clip=clip,
        direction=direction,
        hidden_size=hidden_size,
        input_forget=input_forget,
    )
