"""Recurrent layers step by step, in every form that ONNX has: one direction at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlprim.graph.graph import Array
from dlprim.graph.operators.elements import converted
from dlprim.graph.operators.operator import Arrays, Attributes, callee, widened

Function = Callable[[Array], Array]
# Of x, alpha and beta; then the numbers where none are given, None for those that are not taken.
ACTIVATIONS: dict[str, tuple[Callable[..., Array], float | None, float | None]] = {
    "Affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "Elu": (lambda x, a, b: np.where(x > 0, x, a * np.expm1(x)), 1.0, None),
    "HardSigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), 0.2, 0.5),
    "LeakyRelu": (lambda x, a, b: np.where(x < 0, a * x, x), 0.01, None),
    "Relu": (lambda x, a, b: np.maximum(x, 0), None, None),
    "ScaledTanh": (lambda x, a, b: a * np.tanh(b * x), 1.0, 1.0),
    "Sigmoid": (lambda x, a, b: 1 / (1 + np.exp(-x)), None, None),
    "Softplus": (lambda x, a, b: np.logaddexp(x, 0), None, None),
    "Softsign": (lambda x, a, b: x / (1 + np.abs(x)), None, None),
    "Tanh": (lambda x, a, b: np.tanh(x), None, None),
    "ThresholdedRelu": (lambda x, a, b: np.where(x > a, x, 0), 1.0, None),
}


def _function(row: tuple[str, float, float], clip: float) -> Function:
    name, alpha, beta = row
    function = ACTIVATIONS[name][0]
    if not clip:
        return lambda x: function(x, alpha, beta)
    return lambda x: function(np.clip(x, -clip, clip), alpha, beta)


def _lstm_step(
    gates: Array, states: Sequence[Array], peepholes: Array | None, attributes: Attributes
) -> list[Array]:
    """Gates i, o, f, c; the output gate looks at the new cell."""
    *inner, outer = attributes["activations"]
    f, g = (_function(row, attributes["clip"]) for row in inner)
    # What is clipped is what goes into gates, which the cell does not.
    h = _function(outer, 0)
    _, cell = states
    i, o, forget, c = np.split(gates, 4, axis=1)
    looks = (0, 0, 0) if peepholes is None else np.split(peepholes, 3)
    i = f(i + looks[0] * cell)
    forget = 1 - i if attributes["input_forget"] else f(forget + looks[2] * cell)
    cell = forget * cell + i * g(c)
    return [f(o + looks[1] * cell) * h(cell), cell]


def _gru_step(
    x_part: Array, state: Array, r: Array, bias: Array, attributes: Attributes
) -> list[Array]:
    """Gates z, r, h."""
    f, g = (_function(row, attributes["clip"]) for row in attributes["activations"])
    x_z, x_r, x_h = np.split(x_part, 3, axis=1)
    r_z, r_r, r_h = np.split(r, 3)
    b_z, b_r, b_h = np.split(bias, 3)
    update = f(x_z + state @ r_z.T + b_z)
    reset = f(x_r + state @ r_r.T + b_r)
    if attributes["linear_before_reset"]:
        new = g(x_h + reset * (state @ r_h.T + b_h))
    else:
        new = g(x_h + (reset * state) @ r_h.T + b_h)
    return [(1 - update) * new + update * state]


def _step(
    x_part: Array,
    states: Sequence[Array],
    weights: tuple[Array, Array, Array | None],
    attributes: Attributes,
) -> list[Array]:
    r, bias, peepholes = weights
    if attributes["cell"] == "gru":
        return _gru_step(x_part, states[0], r, bias, attributes)
    gates = x_part + states[0] @ r.T + bias
    if attributes["cell"] == "lstm":
        return _lstm_step(gates, states, peepholes, attributes)
    return [_function(attributes["activations"][0], attributes["clip"])(gates)]


@callee("recurrent_steps")
def recurrent_steps(arrays: Arrays, attributes: Attributes) -> list[Any]:
    """x (T, N, C), w (G*K, C), r (G*K, K), bias (2*G*K,), lengths (N,), states (N, K), P (3*K,).

    A sample goes over as many steps as its length says, from its own end in reverse; results
    behind that are zeros.
    """
    x, w, r, bias, _, h, c, peepholes = (None if it is None else widened(it) for it in arrays)
    assert x is not None
    assert w is not None
    assert r is not None
    (steps, samples), hidden = x.shape[:2], r.shape[1]
    lengths = np.full(samples, steps) if arrays[4] is None else np.asarray(arrays[4])
    if np.any((lengths < 0) | (lengths > steps)):
        raise ValueError(f"sequence_lens is {lengths.tolist()}, expected 0 to {steps}")
    bias_x, bias_h = np.zeros((2, w.shape[0])) if bias is None else np.split(bias, 2)
    given = [h, c][: 1 + (attributes["cell"] == "lstm")]
    states = [np.zeros((samples, hidden)) if it is None else it for it in given]
    y = np.zeros((steps, samples, hidden))
    rows = np.arange(samples)
    for step in range(steps):
        is_going = step < lengths
        places = np.where(is_going, lengths - 1 - step, step) if attributes["reverse"] else step
        places = np.broadcast_to(places, samples)
        with np.errstate(over="ignore"):
            x_part = x[places, rows] @ w.T + bias_x
            new = _step(x_part, states, (r, bias_h, peepholes), attributes)
        states = [np.where(is_going[:, None], a, b) for a, b in zip(new, states, strict=True)]
        y[places[is_going], rows[is_going]] = new[0][is_going]
    return [converted(it, arrays[0].dtype) for it in (y, *states)]
