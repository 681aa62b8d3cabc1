"""`rnn`, and `gru` that resets before the product: layers, directions, lengths, both dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlprim
from drawing import RNG
from rnn_cases import doubles

GATES = {"gru": 3, "rnn": 1}
both_dtypes = pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
# T, N, C, K: a speech network's layer, two panels of the state, one step, one sequence.
SHAPES = [(12, 4, 138, 25), (5, 6, 7, 70), (1, 3, 4, 5), (9, 1, 16, 64)]


def drawn(dtype: str, *shape: int) -> Any:
    values = (0.3 * RNG.standard_normal(shape)).astype(np.float32)
    return values if dtype == "float32" else dlprim.to_bfloat16(values)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def step(cell: str, x: Any, w: Any, r: Any, biases: Any, h: Any, relu: bool) -> Any:
    p, q = (np.split(it, GATES[cell]) for it in (w @ x + biases[0], r @ h + biases[1]))
    if cell == "rnn":
        return np.maximum(p[0] + q[0], 0) if relu else np.tanh(p[0] + q[0])
    reset, z = sigmoid(p[0] + q[0]), sigmoid(p[1] + q[1])
    n = np.tanh(p[2] + np.split(r, 3)[2] @ (reset * h) + np.split(biases[1], 3)[2])
    return (1 - z) * n + z * h


def right(cell: str, x: Any, weights: Any, h_0: Any, lengths: Any, relu: bool = False) -> Any:
    """Two directions of two layers, as PyTorch lists them, in float64."""
    y, ends = doubles(x), np.zeros(h_0.shape)
    for layer in range(2):
        parts = []
        for way in range(2):
            run = 2 * layer + way
            w, r, *biases = (doubles(weights[name][run]) for name in weights)
            states = doubles(h_0)[run].copy()
            part = np.zeros((*y.shape[:2], r.shape[1]))
            for n, count in enumerate(lengths):
                for t in range(count)[:: -1 if way else 1]:
                    states[n] = step(cell, y[t, n], w, r, biases, states[n], relu)
                    part[t, n] = states[n]
            parts.append(part)
            ends[run] = states
        y = np.concatenate(parts, axis=2)
    return y, ends


@both_dtypes
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("cell", ["gru", "rnn", "relu"])
def test_values(cell: str, shape: Any, dtype: str) -> None:
    relu, cell = cell == "relu", "rnn" if cell == "relu" else cell
    steps, samples, channels, hidden = shape
    rows = GATES[cell] * hidden
    widths = (channels, channels, 2 * hidden, 2 * hidden)
    weights = {
        "w_ih": [drawn(dtype, rows, width) for width in widths],
        "w_hh": [drawn(dtype, rows, hidden) * np.float32(0.5) for _ in range(4)],
        "b_ih": [drawn("float32", rows) for _ in range(4)],
        "b_hh": [drawn("float32", rows) for _ in range(4)],
    }
    weights["w_hh"] = [np.asarray(it, weights["w_ih"][0].dtype) for it in weights["w_hh"]]
    x, h_0 = drawn(dtype, steps, samples, channels), drawn(dtype, 4, samples, hidden)
    lengths = RNG.integers(0, steps + 1, samples)
    how: dict[str, Any] = {"num_layers": 2, "bidirectional": True, "lengths": lengths, "h_0": h_0}
    how |= {"reset_after": False} if cell == "gru" else {}
    how |= {"activation": "relu"} if relu else {}
    found = getattr(dlprim, cell)(x, **weights, **how)
    tolerance = 2e-5 if dtype == "float32" else 0.05
    for one, other in zip(found, right(cell, x, weights, h_0, lengths, relu), strict=True):
        np.testing.assert_allclose(doubles(one), other, rtol=tolerance, atol=tolerance)


def test_primitives_and_functions_write_the_same_bits() -> None:
    x, w, r = drawn("float32", 6, 3, 5), drawn("float32", 20, 5), drawn("float32", 20, 20)
    layer = dlprim.RNN((6, 3, 5), 20, activation="relu", bias=False)
    y, h_n = layer.forward(x, layer.pack_weights(w, r))
    found = dlprim.rnn(x, w, r, activation="relu")
    assert y.tobytes() == found.y.tobytes()
    assert h_n.tobytes() == found.h_n[0].tobytes()
    assert set(layer.schedules) == {"projection", "recurrence"}
    assert layer.scratch_bytes["backward"] == 0
    with pytest.raises(
        ValueError, match="schedule has diff_src, expected projection or recurrence"
    ):
        dlprim.RNN((6, 3, 5), 20, activation="relu", schedule={"diff_src": "N C s"})


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("cell", ["gru", "rnn"])
def test_threads_write_the_same_bits(cell: str, threads: int) -> None:
    rows = GATES[cell] * 130
    x, w, r = drawn("float32", 5, 70, 9), drawn("float32", rows, 9), drawn("float32", rows, 130)
    how = {"reset_after": False} if cell == "gru" else {}
    with dlprim.threads(1):
        one = getattr(dlprim, cell)(x, w, r, **how)
    with dlprim.threads(threads):
        other = getattr(dlprim, cell)(x, w, r, **how)
    assert one.y.tobytes() == other.y.tobytes()


def test_what_cannot_be_is_refused() -> None:
    x, w, r = drawn("float32", 6, 3, 5), drawn("float32", 12, 5), drawn("float32", 12, 4)
    with pytest.raises(ValueError, match="training is True, expected False: a GRU with reset_"):
        dlprim.gru(x, w, r, reset_after=False, training=True)
    with pytest.raises(ValueError, match="activation is 'sine', expected one of 'tanh', 'relu'"):
        dlprim.rnn(x, w[:4], r[:4], activation="sine")
    with pytest.raises(ValueError, match=r"expected \(1\*K, K\): a plain cell has 1 gates"):
        dlprim.rnn(x, w, r)
    layers = [dlprim.GRU((6, 3, 5), 4, reset_after=it) for it in (True, False)]
    weights = layers[0].pack_weights(w, r)
    with pytest.raises(ValueError, match=r"is packed for gru with .*of gru_reset_before with"):
        layers[1].forward(x, weights)
