"""Weights in 8 bits whose activations are quantised as a model runs, or are floats at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dlprim.graph.builder import Builder
from dlprim.graph.expressions import Expression, operand
from dlprim.graph.graph import Value
from dlprim.onnx.operators.layers.products import less_zero_point, matmul_integer
from dlprim.onnx.operators.layers.recurrent import lstm
from dlprim.onnx.operators.quantized.conversions import MICROSOFT, dynamic_quantize
from dlprim.onnx.registry import RefusedError, operator

_BACKWARDS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
# Elements of recurrent weights from which on a step in 8 bits is faster than one in floats.
_LEAST_IN_8_BITS = 4 * 192 * 192


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


@operator("MatMulInteger16", domain=MICROSOFT)
def matmul_integer_16(build: Builder, a: Value, b: Value) -> Value:
    return build.emit("matmul", [a, b], dtype="int32")[0]


# ---------------------------------------------------------------- LSTM


class _Layer(NamedTuple):
    """What there is for all directions of a layer; the first axis of most is the direction."""

    bias: Value | None
    h: Value | None
    c: Value | None
    weights: tuple[Value, Value, Value]  # of the input, their scales and zero points
    recurrent: tuple[Value, Value, Value]


def _check(x: Value, layer: _Layer) -> None:
    """Refuses what does not fit weights (directions, columns, gates)."""
    rows = (("W", layer.weights), ("R", layer.recurrent))
    for name, (q, *numbers) in rows:
        if len(q.shape) != 3 or q.dtype.name not in ("int8", "uint8"):
            raise RefusedError(f"{name} is {q.dtype}{list(q.shape)}, expected 8 bits, three axes")
        directions, _, gates = q.shape
        for value in numbers:
            if value.shape not in ((directions,), (directions, gates)):
                raise RefusedError(
                    f"a scale or zero point of {name} of {list(value.shape)}, expected "
                    f"{[directions]} or {[directions, gates]}"
                )
    if len(x.shape) != 3:
        raise RefusedError(f"X of {list(x.shape)}, expected three axes")
    directions, hidden, _ = layer.recurrent[0].shape
    state = (directions, x.shape[1], hidden)
    for name, given, shape in (
        ("W", layer.weights[0], (directions, x.shape[2], 4 * hidden)),
        ("R", layer.recurrent[0], (directions, hidden, 4 * hidden)),
        ("B", layer.bias, (directions, 8 * hidden)),
        ("initial_h", layer.h, state),
        ("initial_c", layer.c, state),
    ):
        if given is not None and given.shape != shape:
            raise RefusedError(f"{name} of {list(given.shape)}, expected {list(shape)}")


def _takes_all_steps(build: Builder, x: Value, lengths: Value | None) -> bool:
    if lengths is None:
        return True
    return build.is_constant(lengths) and bool(np.all(build.array(lengths) == x.shape[0]))


def _floats(build: Builder, weights: tuple[Value, Value, Value]) -> Value:
    """(directions, columns, gates) in 8 bits as floats (directions, gates, columns)."""
    q, *others = weights
    spread = [build.reshape(it, (q.shape[0], 1, it.size // q.shape[0])) for it in others]
    floats = [build.cast(it, np.float32) for it in (q, *spread)]
    meant: Expression = ("multiply", ("subtract", operand(0), operand(2)), operand(1))
    return build.transpose(build.map(meant, *floats), (0, 2, 1))


def _part(build: Builder, value: Value, place: int) -> Value:
    """What is listed for one direction."""
    rest = value.shape[1:]
    starts, steps = (place, *[0] * len(rest)), [1] * len(value.shape)
    return build.reshape(build.slice(value, starts, (1, *rest), steps), rest)


def _known_sums(build: Builder, layer: _Layer) -> bool:
    """Whether there are products of integers for both kinds of weights, without zero points."""
    for q, scale, zero in (layer.weights, layer.recurrent):
        if not all(build.is_constant(it) for it in (q, scale, zero)):
            return False
    q, _, zero = layer.recurrent
    spread = build.array(zero).reshape(q.shape[0], 1, -1).astype(np.int32)
    centred = build.array(q).astype(np.int32) - spread
    return bool(-128 <= centred.min() <= centred.max() <= 127)


def _one_direction(
    build: Builder, x: Value, layer: _Layer, place: int, reverse: bool
) -> tuple[Value, ...]:
    """One direction: the products with x for all steps at once, those with states step by step."""
    w, w_scale, w_zero = (_part(build, it, place) for it in layer.weights)
    r, r_scale, r_zero = (_part(build, it, place) for it in layer.recurrent)
    bias, h, c = (
        None if it is None else _part(build, it, place) for it in (layer.bias, layer.h, layer.c)
    )
    if bias is not None:
        half = bias.shape[0] // 2
        both = [build.slice(bias, (at,), (half,), (1,)) for at in (0, half)]
        bias = build.apply("add", *both)
    gates = dynamic_quantize_matmul(build, x, w, w_scale, w_zero, bias)
    weights, _ = less_zero_point(build, r, r_zero, 1)
    scale = build.expand(build.reshape(r_scale, (r_scale.size,)), r.shape[1:])
    return build.emit("quantized_lstm", [gates, weights, scale, h, c], reverse=reverse)


def _in_8_bits(
    build: Builder, x: Value, layer: _Layer, backwards: tuple[bool, ...]
) -> tuple[Value, ...]:
    """Y (T, directions, N, K) and the last states (directions, N, K)."""
    columns = [_one_direction(build, x, layer, *it) for it in enumerate(backwards)]
    return tuple(
        build.concat(
            [build.reshape(it, (*it.shape[:-2], 1, *it.shape[-2:])) for it in parts],
            len(parts[0].shape) - 2,
        )
        for parts in zip(*columns, strict=True)
    )


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
    """In 8 bits where weights are large; else an LSTM layer of the floats that they stand for."""
    layer = _Layer(bias, h, c, (w, w_scale, w_zero), (r, r_scale, r_zero))
    _check(x, layer)
    backwards = _BACKWARDS.get(direction, ())
    usual = activations is None or list(activations) == ["Sigmoid", "Tanh", "Tanh"] * len(backwards)
    is_plain = usual and not (clip or input_forget or peepholes or 0 in x.shape)
    fits = len(backwards) == r.shape[0] and hidden_size in (None, r.shape[1])
    is_large = r.size >= _LEAST_IN_8_BITS and _takes_all_steps(build, x, lengths)
    if is_plain and fits and is_large and _known_sums(build, layer):
        return _in_8_bits(build, x, layer, backwards)
    w, r = (_floats(build, it) for it in (layer.weights, layer.recurrent))
    named: dict[str, Any] = {
        "activation_alpha": activation_alpha,
        "activation_beta": activation_beta,
        "activations": activations,
        "clip": clip,
        "direction": direction,
        "hidden_size": hidden_size,
        "input_forget": input_forget,
    }
    return lstm(build, x, w, r, bias, lengths, h, c, peepholes, **named)
