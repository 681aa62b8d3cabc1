"""Recurrent layers in one direction, with PyTorch's order of gates and (T, N, C) sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlprim.graph.graph import Array
from dlprim.graph.operators.elements import converted
from dlprim.graph.operators.operator import (
    Arrays,
    Attributes,
    Operator,
    Result,
    Values,
    there,
    widened,
)

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
# The functions of gates, of what is new and of the LSTM's state on its way out.
USUAL = {"lstm": ("Sigmoid", "Tanh", "Tanh"), "gru": ("Sigmoid", "Tanh"), "rnn": ("Tanh",)}
# What a layer does unless attributes say otherwise. `functions` has rows of a name, alpha and beta,
# none for the usual ones; `clip` bounds what goes into gates, 0 does not.
FORM: dict[str, Any] = {
    "functions": (),
    "clip": 0.0,
    "input_forget": False,
    "reset_after": True,
}


def _infer(values: Values, attributes: Attributes) -> list[Result]:
    """x (T, N, C), w (G*K, C), r (G*K, K), two biases (G*K,), states h and c (N, K), lengths (N,).

    Behind them may be peepholes (3, K) of i, f and o.
    The LSTM has four gates i, f, g, o and states h and c, the GRU three gates r, z, n and the state
    h, "rnn" one gate. Results are y (T, N, K) and the states behind the last step, c of float32
    where x is bfloat16. ``reverse`` goes from the end. A sequence has as many steps as lengths
    says, in reverse from its own end, and zeros behind them. `FORM` has what else may be said.
    """
    x, r = there(values[0]), there(values[2])
    steps, samples, hidden = x.shape[0], x.shape[1], r.shape[1]
    dtypes = _dtypes(attributes["cell"], x.dtype)
    state = (samples, hidden)
    return list(zip(((steps, *state), state, state), dtypes, strict=False))


def _dtypes(cell: str, dtype: np.dtype[Any]) -> list[np.dtype[Any]]:
    """Of y, h and an LSTM's c."""
    c = np.dtype(np.float32) if dtype.name == "bfloat16" else dtype
    return [dtype, dtype, c][: 2 + (cell == "lstm")]


def _functions(form: Attributes) -> list[Function]:
    """Those of the form; what is clipped is what goes into gates, which the LSTM's c does not."""
    rows = form["functions"] or [(name, 0, 0) for name in USUAL[form["cell"]]]
    bounds = [form["clip"], form["clip"], 0]

    def function(row: tuple[str, float, float], clip: float) -> Function:
        name, alpha, beta = row
        of = ACTIVATIONS[name][0]
        return lambda x: of(np.clip(x, -clip, clip) if clip else x, alpha, beta)

    return [function(row, clip) for row, clip in zip(rows, bounds, strict=False)]


def _lstm_step(
    gates: Array, states: Sequence[Array], peepholes: Array | None, form: Attributes
) -> list[Array]:
    f, g, h = _functions(form)
    _, cell = states
    i, forget, new, o = np.split(gates, 4, axis=1)
    looks = np.zeros(3) if peepholes is None else peepholes
    i = f(i + looks[0] * cell)
    forget = 1 - i if form["input_forget"] else f(forget + looks[1] * cell)
    cell = forget * cell + i * g(new)
    return [f(o + looks[2] * cell) * h(cell), cell]


def _gru_step(x_part: Array, state: Array, r: Array, bias: Array, form: Attributes) -> list[Array]:
    f, g = _functions(form)
    x_reset, x_update, x_new = np.split(x_part, 3, axis=1)
    h_reset, h_update, h_new = np.split(state @ r.T + bias, 3, axis=1)
    update, reset = f(x_update + h_update), f(x_reset + h_reset)
    if form["reset_after"]:
        new = g(x_new + reset * h_new)
    else:
        new = g(x_new + (reset * state) @ np.split(r, 3)[2].T + np.split(bias, 3)[2])
    return [(1 - update) * new + update * state]


def _compute(arrays: Arrays, attributes: Attributes) -> list[Any]:
    form = FORM | dict(attributes)
    inputs = [None if it is None else widened(it) for it in arrays]
    x, w, r, bias_x, bias_h, h, c, lengths, peepholes = (*inputs, *[None] * 4)[:9]
    assert x is not None
    assert w is not None
    assert r is not None
    (steps, samples), hidden = x.shape[:2], r.shape[1]
    lengths = np.full(samples, steps) if lengths is None else lengths
    if np.any((lengths < 0) | (lengths > steps)):
        raise ValueError(f"lengths is {lengths.tolist()}, expected 0 to {steps}")
    zero = np.zeros(len(r))
    bias_x, bias_h = (zero if it is None else it for it in (bias_x, bias_h))
    given = [h, c][: 1 + (form["cell"] == "lstm")]
    states = [np.zeros((samples, hidden)) if it is None else it for it in given]
    y = np.zeros((steps, samples, hidden))
    rows = np.arange(samples)
    for step in range(steps):
        is_going = step < lengths
        places = np.where(is_going, lengths - 1 - step, step) if form["reverse"] else step
        places = np.broadcast_to(places, samples)
        with np.errstate(over="ignore"):
            x_part = x[places, rows] @ w.T + bias_x
            if form["cell"] == "gru":
                new = _gru_step(x_part, states[0], r, bias_h, form)
            elif form["cell"] == "lstm":
                gates = x_part + states[0] @ r.T + bias_h
                new = _lstm_step(gates, states, peepholes, form)
            else:
                new = [_functions(form)[0](x_part + states[0] @ r.T + bias_h)]
        states = [np.where(is_going[:, None], a, b) for a, b in zip(new, states, strict=True)]
        y[places[is_going], rows[is_going]] = new[0][is_going]
    dtypes = _dtypes(form["cell"], arrays[0].dtype)
    return [converted(it, dtype) for it, dtype in zip((y, *states), dtypes, strict=True)]


RECURRENT = {"recurrent": Operator("recur", _infer, _compute, "later")}
