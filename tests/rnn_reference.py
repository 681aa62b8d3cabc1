"""LSTM, GRU and a plain cell from their equations in float64, forward and backward through time.

With the gates of a step as rows of w_ih (G*K, C) and w_hh (G*K, K), two biases, and sigmoid s,

    LSTM   a = w_ih x + b_ih + w_hh h + b_hh           in the order i, f, g, o
           c' = s(f) c + s(i) tanh(g),  h' = s(o) tanh(c')
    GRU    p = w_ih x + b_ih, q = w_hh h + b_hh        in the order r, z, n
           r = s(p_r + q_r), z = s(p_z + q_z), n = tanh(p_n + r q_n),  h' = (1 - z) n + z h
    plain  h' = tanh(w_ih x + b_ih + w_hh h + b_hh)

as PyTorch defines them. At a step that a sequence does not have (t >= lengths[n]) its state stays
and y is 0. What stands in the padding, of x or of the gradient of y, is not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

Doubles = NDArray[np.float64]

GATES = {"lstm": 4, "gru": 3, "rnn": 1}

# On busy cores threads that wait for each other make small products a hundred times slower.
_BLAS = ThreadpoolController().select(user_api="blas")


class Weights(NamedTuple):
    w_ih: Doubles  # (G*K, C)
    w_hh: Doubles  # (G*K, K)
    b_ih: Doubles  # (G*K,)
    b_hh: Doubles


class State(NamedTuple):
    h: Doubles  # (N, K)
    c: Doubles  # (N, K); zeros but for an LSTM, whose gradient is zero as well


class Step(NamedTuple):
    """What the backward pass needs of one step."""

    t: int
    valid: NDArray[np.bool_]  # (N, 1)
    x: Doubles  # zeros in the padding
    before: State
    gates: tuple[Doubles, ...]  # after their activations
    inner: Doubles  # tanh(c') of an LSTM, q_n of a GRU, h' of a plain cell


class Forward(NamedTuple):
    y: Doubles  # (T, N, K)
    h_n: Doubles
    c_n: Doubles
    steps: list[Step]


class Gradients(NamedTuple):
    diff_src: Doubles
    diff_h_0: Doubles
    diff_c_0: Doubles
    diff_w_ih: Doubles
    diff_w_hh: Doubles
    diff_b_ih: Doubles
    diff_b_hh: Doubles


@_BLAS.wrap(limits=1)
def forward(
    cell: str,
    x: Doubles,
    weights: Weights,
    start: State,
    lengths: NDArray | None = None,
    reverse: bool = False,
) -> Forward:
    """x (T, N, C); every layer and direction is one of these."""
    extent, batch = x.shape[:2]
    ends = np.full(batch, extent) if lengths is None else np.asarray(lengths)
    advance = {"lstm": _lstm, "gru": _gru, "rnn": _rnn}[cell]
    state, steps = start, []
    y = np.zeros((*x.shape[:2], start.h.shape[1]))
    for t in reversed(range(extent)) if reverse else range(extent):
        valid = (t < ends)[:, None]
        src = np.where(valid, x[t], 0)
        after, gates, inner = advance(src, state, weights)
        steps.append(Step(t, valid, src, state, gates, inner))
        y[t] = np.where(valid, after.h, 0)
        state = State(*(np.where(valid, *pair) for pair in zip(after, state, strict=True)))
    return Forward(y, *state, steps)


@_BLAS.wrap(limits=1)
def backward(
    cell: str, weights: Weights, result: Forward, diff_y: Doubles, diff_end: State
) -> Gradients:
    """diff_y (T, N, K), diff_end the gradient with respect to h_n and c_n."""
    channels = weights.w_ih.shape[1]
    diff_x = np.zeros((*diff_y.shape[:2], channels))
    diff_weights = Weights(*(np.zeros(each.shape) for each in weights))
    diff = diff_end
    retreat = {"lstm": _lstm_backward, "gru": _gru_backward, "rnn": _rnn_backward}[cell]
    for step in reversed(result.steps):
        arriving = np.where(step.valid, diff_y[step.t], 0) + diff.h
        diff_input, diff_hidden, carried = retreat(step, State(arriving, diff.c))
        diff_input, diff_hidden = (np.where(step.valid, d, 0) for d in (diff_input, diff_hidden))
        diff_x[step.t] = diff_input @ weights.w_ih
        before = State(carried.h + diff_hidden @ weights.w_hh, carried.c)
        sums = (
            diff_input.T @ step.x,
            diff_hidden.T @ step.before.h,
            diff_input.sum(0),
            diff_hidden.sum(0),
        )
        for total, term in zip(diff_weights, sums, strict=True):
            total += term
        diff = State(*(np.where(step.valid, *pair) for pair in zip(before, diff, strict=True)))
    return Gradients(diff_x, *diff, *diff_weights)


def _sigmoid(x: Doubles) -> Doubles:
    return 0.5 * (1 + np.tanh(0.5 * x))


def _split(gates: Doubles, count: int) -> list[Doubles]:
    return np.split(gates, count, axis=1)


def _lstm(x: Doubles, state: State, w: Weights) -> tuple[State, tuple[Doubles, ...], Doubles]:
    sums = x @ w.w_ih.T + w.b_ih + state.h @ w.w_hh.T + w.b_hh
    i, f, g, o = _split(sums, 4)
    i, f, g, o = _sigmoid(i), _sigmoid(f), np.tanh(g), _sigmoid(o)
    c = f * state.c + i * g
    return State(o * np.tanh(c), c), (i, f, g, o), np.tanh(c)


def _lstm_backward(step: Step, diff: State) -> tuple[Doubles, Doubles, State]:
    """Gradients of the two sums of the gates, and what goes past them to the step before."""
    (i, f, g, o), tanh_c = step.gates, step.inner
    diff_c = diff.c + diff.h * o * (1 - tanh_c**2)
    diff_gates = np.concatenate(
        [
            diff_c * g * i * (1 - i),
            diff_c * step.before.c * f * (1 - f),
            diff_c * i * (1 - g**2),
            diff.h * tanh_c * o * (1 - o),
        ],
        axis=1,
    )
    return diff_gates, diff_gates, State(np.zeros_like(diff.h), diff_c * f)


def _gru(x: Doubles, state: State, w: Weights) -> tuple[State, tuple[Doubles, ...], Doubles]:
    p_r, p_z, p_n = _split(x @ w.w_ih.T + w.b_ih, 3)
    q_r, q_z, q_n = _split(state.h @ w.w_hh.T + w.b_hh, 3)
    r, z = _sigmoid(p_r + q_r), _sigmoid(p_z + q_z)
    n = np.tanh(p_n + r * q_n)
    return State((1 - z) * n + z * state.h, state.c), (r, z, n), q_n


def _gru_backward(step: Step, diff: State) -> tuple[Doubles, Doubles, State]:
    (r, z, n), q_n = step.gates, step.inner
    diff_n = diff.h * (1 - z) * (1 - n**2)
    diff_r = diff_n * q_n * r * (1 - r)
    diff_z = diff.h * (step.before.h - n) * z * (1 - z)
    diff_input = np.concatenate([diff_r, diff_z, diff_n], axis=1)
    diff_hidden = np.concatenate([diff_r, diff_z, diff_n * r], axis=1)
    return diff_input, diff_hidden, State(diff.h * z, diff.c)


def _rnn(x: Doubles, state: State, w: Weights) -> tuple[State, tuple[Doubles, ...], Doubles]:
    h = np.tanh(x @ w.w_ih.T + w.b_ih + state.h @ w.w_hh.T + w.b_hh)
    return State(h, state.c), (h,), h


def _rnn_backward(step: Step, diff: State) -> tuple[Doubles, Doubles, State]:
    by_sum = diff.h * (1 - step.inner**2)
    return by_sum, by_sum, State(np.zeros_like(diff.h), diff.c)


# ---------------------------------------------------------------- layers and directions


def stack_forward(
    cell: str,
    x: Doubles,
    weights: Sequence[Weights],
    start: State,
    directions: Sequence[bool],
    lengths: NDArray | None = None,
) -> tuple[Forward, list[Forward]]:
    """weights and start (first axis) in PyTorch's order; directions says which are reversed."""
    runs: list[Forward] = []
    while len(runs) < len(weights):
        numbers = range(len(runs), len(runs) + len(directions))
        layer = [
            forward(cell, x, weights[n], State(start.h[n], start.c[n]), lengths, reverse)
            for n, reverse in zip(numbers, directions, strict=True)
        ]
        x = np.concatenate([run.y for run in layer], axis=2)
        runs += layer
    h_n, c_n = np.stack([run.h_n for run in runs]), np.stack([run.c_n for run in runs])
    return Forward(x, h_n, c_n, []), runs


def stack_backward(
    cell: str,
    weights: Sequence[Weights],
    runs: Sequence[Forward],
    diff_y: Doubles,
    diff_end: State,
    directions: int,
) -> tuple[Doubles, list[Gradients]]:
    """The gradient of x, and the gradients of every layer and direction in PyTorch's order."""
    gradients: list[Gradients] = []
    for first in reversed(range(0, len(runs), directions)):
        parts = np.split(diff_y, directions, axis=2)
        layer = [
            backward(
                cell, weights[n], runs[n], parts[n - first], State(diff_end.h[n], diff_end.c[n])
            )
            for n in range(first, first + directions)
        ]
        diff_y = np.sum([each.diff_src for each in layer], axis=0)
        gradients = layer + gradients
    return diff_y, gradients
