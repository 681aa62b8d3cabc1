"""Recurrent layers in one direction, with PyTorch's order of gates and (T, N, C) sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dlprim.graph.extents import plain
from dlprim.graph.graph import Array, Node, Value
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

if TYPE_CHECKING:
    from dlprim.graph.builder import Builder

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
# What a layer in training makes beside y and the states, by the core's names.
KEPT = {"lstm": ("gates", "cells"), "gru": ("gates", "hidden_n"), "rnn": ("gates",)}


def _infer(values: Values, attributes: Attributes) -> list[Result]:
    """x (T, N, C), w (G*K, C), r (G*K, K), two biases (G*K,), states h and c (N, K), lengths (N,).

    Behind them may be peepholes (3, K) of i, f and o.
    The LSTM has four gates i, f, g, o and states h and c, the GRU three gates r, z, n and the state
    h, "rnn" one gate. Results are y (T, N, K) and the states behind the last step, c of float32
    where x is bfloat16. ``reverse`` goes from the end. A sequence has as many steps as lengths
    says, in reverse from its own end, and zeros behind them. `FORM` has what else may be said.

    ``training`` keeps what the gradient reads: the gates (T, N, G*K) behind their functions, and of
    an LSTM c (T, N, K) behind each step, of a GRU what r multiplies in n; float32 of halves. Behind
    the end of a sequence gates are zeros, and c is c_0, which ``reverse`` begins with there.
    """
    x, r = there(values[0]), there(values[2])
    steps, samples, hidden = x.shape[0], x.shape[1], r.shape[1]
    cell, state = attributes["cell"], (samples, hidden)
    due = [(r.shape[0], x.shape[2]), r.shape, *[r.shape[:1]] * 2, *[state] * 2]
    for value, shape in zip(values[1:], due, strict=False):
        if value is not None and value.shape != shape:
            raise ValueError(f"{value!r} is expected to have the shape {list(map(plain, shape))}")
    made = list(zip(((steps, *state), state, state), _dtypes(cell, x.dtype), strict=False))
    if attributes.get("training"):
        shapes = ((steps, samples, r.shape[0]), (steps, *state))
        made += [(shape, _wide(x.dtype)) for shape in shapes[: len(KEPT[cell])]]
    return made


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of sums, and of what is kept."""
    return np.dtype(np.float32) if dtype.itemsize == 2 else dtype


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
) -> tuple[list[Array], list[Array]]:
    f, g, h = _functions(form)
    _, cell = states
    i, forget, new, o = np.split(gates, 4, axis=1)
    looks = np.zeros(3) if peepholes is None else peepholes
    i = f(i + looks[0] * cell)
    forget = 1 - i if form["input_forget"] else f(forget + looks[1] * cell)
    new = g(new)
    cell = forget * cell + i * new
    o = f(o + looks[2] * cell)
    return [o * h(cell), cell], [np.concatenate([i, forget, new, o], axis=1), cell]


def _gru_step(
    x_part: Array, state: Array, r: Array, bias: Array, form: Attributes
) -> tuple[list[Array], list[Array]]:
    f, g = _functions(form)
    x_reset, x_update, x_new = np.split(x_part, 3, axis=1)
    h_reset, h_update, h_new = np.split(state @ r.T + bias, 3, axis=1)
    update, reset = f(x_update + h_update), f(x_reset + h_reset)
    if form["reset_after"]:
        new = g(x_new + reset * h_new)
    else:
        new = g(x_new + (reset * state) @ np.split(r, 3)[2].T + np.split(bias, 3)[2])
    kept = [np.concatenate([reset, update, new], axis=1), h_new]
    return [(1 - update) * new + update * state], kept


def _one_step(
    x_part: Array, states: Sequence[Array], weights: Sequence[Array | None], form: Attributes
) -> tuple[list[Array], list[Array]]:
    """The states behind a step, and what is kept of it.

    Weights are r, the bias of the state and peepholes.
    """
    r, bias, peepholes = weights
    assert r is not None
    assert bias is not None
    if form["cell"] == "gru":
        return _gru_step(x_part, states[0], r, bias, form)
    gates = x_part + states[0] @ r.T + bias
    if form["cell"] == "lstm":
        return _lstm_step(gates, states, peepholes, form)
    new = _functions(form)[0](gates)
    return [new], [new]


def _given(arrays: Arrays, form: Attributes) -> tuple[list[Any], list[Array], Array]:
    """x, w, r and the biases; the states in front; lengths. What is absent is zeros."""
    x, w, r, bias_x, bias_h, h, c, lengths = (
        None if it is None else widened(it) for it in (*arrays, *[None] * 3)[:8]
    )
    assert x is not None
    assert r is not None
    steps, samples = x.shape[:2]
    lengths = np.full(samples, steps) if lengths is None else lengths
    if np.any((lengths < 0) | (lengths > steps)):
        raise ValueError(f"lengths is {lengths.tolist()}, expected 0 to {steps}")
    biases = [np.zeros(len(r)) if it is None else it for it in (bias_x, bias_h)]
    return [x, w, r, *biases], _first(h, c, (samples, r.shape[1]), form["cell"]), lengths


def _first(h: Array | None, c: Array | None, shape: tuple[int, int], cell: str) -> list[Array]:
    """The states in front of the first step."""
    given = [h, c][: 1 + (cell == "lstm")]
    return [np.zeros(shape) if it is None else it for it in given]


def _places(step: int, lengths: Array, is_reverse: bool) -> tuple[Array, Array]:
    """Which sequences go on, and where each one is."""
    is_going = step < lengths
    places = np.where(is_going, lengths - 1 - step, step) if is_reverse else step
    return is_going, np.broadcast_to(places, lengths.shape)


def _compute(arrays: Arrays, attributes: Attributes) -> list[Any]:
    form = FORM | {"training": False} | dict(attributes)
    (x, w, r, bias_x, bias_h), states, lengths = _given(arrays, form)
    peepholes = widened(arrays[8]) if len(arrays) > 8 and arrays[8] is not None else None
    y = np.zeros((*x.shape[:2], r.shape[1]))
    kept = [np.zeros((*x.shape[:2], len(r))), np.zeros_like(y)][: len(KEPT[form["cell"]])]
    if form["cell"] == "lstm":
        kept[1][...] = states[1]
    rows = np.arange(x.shape[1])
    for step in range(x.shape[0]):
        is_going, places = _places(step, lengths, form["reverse"])
        with np.errstate(over="ignore"):
            x_part = x[places, rows] @ w.T + bias_x
            new, more = _one_step(x_part, states, (r, bias_h, peepholes), form)
        states = [np.where(is_going[:, None], a, b) for a, b in zip(new, states, strict=True)]
        for whole, part in zip((y, *kept), (new[0], *more), strict=True):
            whole[places[is_going], rows[is_going]] = part[is_going]
    made = (y, *states, *kept) if form["training"] else (y, *states)
    results = _infer(arrays, form)
    return [converted(it, dtype) for it, (_, dtype) in zip(made, results, strict=True)]


# ---------------------------------------------------------------- backward in time


def _gradient(b: Builder, node: Node, diffs: Values) -> list[Value | None]:
    """Of layers with the usual functions, or relu in a plain one, as the core has them."""
    inputs = (*node.inputs, *[None] * 4)[:9]
    form = FORM | dict(node.attributes)
    for name, usual in FORM.items():
        if form[name] != usual and not (name == "functions" and _is_relu(form)):
            raise ValueError(f"recurrent has no gradient where {name} is {form[name]!r}")
    if inputs[8] is not None:
        raise ValueError("recurrent has no gradient where peepholes are given")
    x, w, r, _, _, h, c, lengths, _ = inputs
    # The node itself stays without gates where nobody asks for its gradient in the end.
    name, b.name = b.name, node.name
    trained = b.emit("recurrent", node.inputs, **{**node.attributes, "training": True})
    b.name = name
    y, kept = trained[0], (*trained[len(trained) - len(KEPT[form["cell"]]) :], None)[:2]
    how = {name: form[name] for name in ("cell", "reverse", "functions")}
    given = [x, w, r, h, c, lengths, y, *kept, *(*diffs, None)[:3]]
    found = b.emit("recurrent_gradient", given, **how)
    by_states = [*found[5:], None][:2]
    by = [*found[:5], *by_states, None, None]
    return [
        it if it is None or value is None else b.cast(it, value.dtype)
        for it, value in zip(by, node.inputs, strict=False)
    ]


def _is_relu(form: Attributes) -> bool:
    """Whether a plain cell has relu in place of tanh."""
    return form["cell"] == "rnn" and tuple(row[0] for row in form["functions"]) == ("Relu",)


def _infer_gradient(values: Values, attributes: Attributes) -> list[Result]:
    """Of x, w, r, h, c, lengths, y, what training keeps and the gradients by y, h and c.

    Those by x, w, r, both biases and the states, whether these are given or not. Sums are float32
    of halves.
    """
    x, w, r = (there(value) for value in values[:3])
    state, wide = (x.shape[1], r.shape[1]), _wide(x.dtype)
    sums = [(it, wide) for it in (w.shape, r.shape, r.shape[:1], r.shape[:1])]
    dtypes = _dtypes(attributes["cell"], x.dtype)
    return [(x.shape, x.dtype), *sums, *((state, it) for it in dtypes[1:])]


# Of what is kept of a step, the states in front of it and the gradients by those behind it: by what
# comes of x and of h, and by the states in front but for what goes through h.
Back = tuple[Array, Array, list[Array]]


def _lstm_back(kept: Sequence[Array], states: Sequence[Array], diffs: Sequence[Array]) -> Back:
    (gates, cells), (h, c), (diff_h, diff_c) = kept, states, diffs
    i, f, new, o = np.split(gates, 4, axis=1)
    bent = np.tanh(cells)
    diff_c = diff_c + diff_h * o * (1 - bent * bent)
    by_gates = (
        diff_c * new * i * (1 - i),
        diff_c * c * f * (1 - f),
        diff_c * i * (1 - new * new),
        diff_h * bent * o * (1 - o),
    )
    parts = np.concatenate(by_gates, axis=1)
    return parts, parts, [np.zeros_like(h), diff_c * f]


def _gru_back(kept: Sequence[Array], states: Sequence[Array], diffs: Sequence[Array]) -> Back:
    (gates, hidden_n), (h,), (diff,) = kept, states, diffs
    reset, update, new = np.split(gates, 3, axis=1)
    by_new = diff * (1 - update) * (1 - new * new)
    by_update = diff * (h - new) * update * (1 - update)
    by_reset = by_new * hidden_n * reset * (1 - reset)
    by_x = np.concatenate([by_reset, by_update, by_new], axis=1)
    by_h = np.concatenate([by_reset, by_update, by_new * reset], axis=1)
    return by_x, by_h, [diff * update]


def _rnn_back(kept: Sequence[Array], states: Sequence[Array], diffs: Sequence[Array]) -> Back:
    (new,), (h,), (diff,) = kept, states, diffs
    part = diff * (1 - new * new)
    return part, part, [np.zeros_like(h)]


def _relu_back(kept: Sequence[Array], states: Sequence[Array], diffs: Sequence[Array]) -> Back:
    (new,), (h,), (diff,) = kept, states, diffs
    part = np.where(new > 0, diff, 0)
    return part, part, [np.zeros_like(h)]


_BACK = {"lstm": _lstm_back, "gru": _gru_back, "rnn": _rnn_back}


def _compute_gradient(arrays: Arrays, attributes: Attributes) -> list[Any]:
    cell, reverse = attributes["cell"], attributes["reverse"]
    wide: list[Any] = [None if it is None else widened(it) for it in arrays]
    x, w, r, h, c, lengths, y, *kept = wide[: 7 + len(KEPT[cell])]
    diff_y, *lasts = wide[9:]
    back = _relu_back if _is_relu(attributes) else _BACK[cell]
    steps, samples = x.shape[:2]
    lengths = np.full(samples, steps) if lengths is None else lengths
    first, rows = _first(h, c, (samples, r.shape[1]), cell), np.arange(samples)
    diffs = [np.zeros_like(a) if it is None else it for it, a in zip(lasts, first, strict=False)]
    by_x, by_w, by_r = np.zeros_like(x), np.zeros_like(w), np.zeros_like(r)
    by_bias_x, by_bias_h = np.zeros((2, len(r)))
    for step in reversed(range(steps)):
        is_going, places = _places(step, lengths, reverse)
        _, before = _places(step - 1, lengths, reverse)
        # c is behind the gates of an LSTM.
        states = [it[before, rows] for it in (y, *kept[1:])][: len(first)] if step else first
        own = [diffs[0] + (0 if diff_y is None else diff_y[places, rows]), *diffs[1:]]
        found = back([it[places, rows] for it in kept], states, own)
        x_diff, h_diff = (np.where(is_going[:, None], it, 0) for it in found[:2])
        by_x[places, rows] += x_diff @ w
        by_w += x_diff.T @ x[places, rows]
        by_r += h_diff.T @ states[0]
        by_bias_x += x_diff.sum(axis=0)
        by_bias_h += h_diff.sum(axis=0)
        rest = [found[2][0] + h_diff @ r, *found[2][1:]]
        diffs = [np.where(is_going[:, None], a, b) for a, b in zip(rest, diffs, strict=True)]
    made = (by_x, by_w, by_r, by_bias_x, by_bias_h, *diffs)
    results = _infer_gradient(arrays, attributes)
    return [converted(it, dtype) for it, (_, dtype) in zip(made, results, strict=True)]


RECURRENT = {
    "recurrent": Operator("recur", _infer, _compute, _gradient),
    "recurrent_gradient": Operator(
        "recur", _infer_gradient, _compute_gradient, "nothing goes back through it a second time"
    ),
}
