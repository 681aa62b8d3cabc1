"""LSTM and GRU layers in one direction, with PyTorch's order of gates and (T, N, C) sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlprim.graph.expressions import sigmoid
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


def _infer(values: Values, attributes: Attributes) -> list[Result]:
    """x (T, N, C), w (G*K, C), r (G*K, K), two biases (G*K,), then states (N, K).

    The LSTM has four gates i, f, g, o and states h and c, the GRU three gates r, z, n and the state
    h. Results are y (T, N, K) and the states behind the last step. ``reverse`` goes from the end.
    """
    x, r = there(values[0]), there(values[2])
    steps, samples, hidden = x.shape[0], x.shape[1], r.shape[1]
    states = 2 if attributes["cell"] == "lstm" else 1
    results: list[Result] = [((steps, samples, hidden), x.dtype)]
    return results + [((samples, hidden), x.dtype)] * states


def _lstm_step(gates: Array, states: list[Array]) -> list[Array]:
    i, f, g, o = np.split(gates, 4, axis=1)
    c = sigmoid(f) * states[1] + sigmoid(i) * np.tanh(g)
    return [sigmoid(o) * np.tanh(c), c]


def _gru_step(x_part: Array, h_part: Array, state: Array) -> list[Array]:
    x_reset, x_update, x_new = np.split(x_part, 3, axis=1)
    h_reset, h_update, h_new = np.split(h_part, 3, axis=1)
    update = sigmoid(x_update + h_update)
    new = np.tanh(x_new + sigmoid(x_reset + h_reset) * h_new)
    return [(1 - update) * new + update * state]


def _compute(arrays: Arrays, attributes: Attributes) -> list[Any]:
    x, w, r, bias_x, bias_h, *given = (None if it is None else widened(it) for it in arrays)
    assert x is not None
    assert w is not None
    assert r is not None
    is_lstm = attributes["cell"] == "lstm"
    zeros = np.zeros((x.shape[1], r.shape[1]))
    states = [zeros if it is None else it for it in (*given, None, None)[: 1 + is_lstm]]
    y = np.zeros((x.shape[0], x.shape[1], r.shape[1]))
    order = range(x.shape[0])
    for step in reversed(order) if attributes["reverse"] else order:
        x_part = x[step] @ w.T + (0 if bias_x is None else bias_x)
        h_part = states[0] @ r.T + (0 if bias_h is None else bias_h)
        if is_lstm:
            states = _lstm_step(x_part + h_part, states)
        else:
            states = _gru_step(x_part, h_part, states[0])
        y[step] = states[0]
    return [converted(it, arrays[0].dtype) for it in (y, *states)]


RECURRENT = {"recurrent": Operator("recur", _infer, _compute)}
