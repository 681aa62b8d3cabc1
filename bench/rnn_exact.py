"""Recurrent results in float64 for a few sequences of a large minibatch.

Sequences do not know of each other, so that those few are exact; gradients of weights sum over
all, and are verified in a backward pass whose gradient of y is zero for the others.
"""

from typing import NamedTuple

import numpy as np

import dlprim

# Roundings of every step, as if random: of float32 sums, of bfloat16 states and gradients.
_ROUNDOFF = {"float32": 2.0**-18, "bfloat16": 2.0**-7}


class Parameters(NamedTuple):
    """In PyTorch's shapes."""

    w_ih: np.ndarray
    w_hh: np.ndarray
    b_ih: np.ndarray
    b_hh: np.ndarray


def doubles(array: np.ndarray) -> np.ndarray:
    widened = array if array.dtype == np.float32 else dlprim.to_float32(array, dtype="bfloat16")
    return widened.astype(np.float64)


def verify(name: str, result: np.ndarray, exact: np.ndarray, dtype: str) -> None:
    """Stop unless errors are small against the largest element."""
    limit = _ROUNDOFF[dtype] * len(exact) ** 0.5 * max(1.0, float(np.abs(exact).max()))
    error = float(np.abs(doubles(result) - exact).max())
    if not error <= limit:
        raise SystemExit(f"{name}: wrong result, {error / limit:.1f} times the error bound")


class Exact:
    """Both passes over x (T, n, C), from states of zero, by the equations of PyTorch's cells."""

    def __init__(self, cell: str, x: np.ndarray, parameters: Parameters) -> None:
        self.cell, self.x = cell, doubles(x)
        self.w = w = Parameters(*(doubles(each) for each in parameters))
        self.h = np.zeros((len(x) + 1, x.shape[1], w.w_hh.shape[1]))  # before every step
        self.c = np.zeros_like(self.h)
        self.gates: list[tuple[np.ndarray, ...]] = []
        projected = self.x @ w.w_ih.T + w.b_ih
        for t, p in enumerate(projected):
            q = self.h[t] @ w.w_hh.T + w.b_hh
            if cell == "lstm":
                i, f, g, o = np.split(p + q, 4, axis=1)
                i, f, g, o = _sigmoid(i), _sigmoid(f), np.tanh(g), _sigmoid(o)
                self.c[t + 1] = f * self.c[t] + i * g
                self.h[t + 1] = o * np.tanh(self.c[t + 1])
                self.gates.append((i, f, g, o))
            else:
                (p_r, p_z, p_n), (q_r, q_z, q_n) = np.split(p, 3, axis=1), np.split(q, 3, axis=1)
                r, z = _sigmoid(p_r + q_r), _sigmoid(p_z + q_z)
                n = np.tanh(p_n + r * q_n)
                self.h[t + 1] = (1 - z) * n + z * self.h[t]
                self.gates.append((r, z, n, q_n))

    @property
    def y(self) -> np.ndarray:
        return self.h[1:]

    def gradients(self, diff_y: np.ndarray) -> dict[str, np.ndarray]:
        """With respect to x, w_ih, w_hh, b_ih and b_hh."""
        step = self._lstm_step if self.cell == "lstm" else self._gru_step
        diff_h, diff_c = np.zeros_like(self.h[0]), np.zeros_like(self.c[0])
        inputs, hiddens = [], []
        for t in reversed(range(len(self.gates))):
            deltas, past = step(t, diff_h + doubles(diff_y[t]), diff_c)
            diff_h, diff_c = deltas[1] @ self.w.w_hh + past[0], past[1]
            inputs.insert(0, deltas[0])
            hiddens.insert(0, deltas[1])
        diff_p, diff_q = np.stack(inputs), np.stack(hiddens)
        return {
            "diff_src": diff_p @ self.w.w_ih,
            "diff_w_ih": np.tensordot(diff_p, self.x, ((0, 1), (0, 1))),
            "diff_w_hh": np.tensordot(diff_q, self.h[:-1], ((0, 1), (0, 1))),
            "diff_b_ih": diff_p.sum((0, 1)),
            "diff_b_hh": diff_q.sum((0, 1)),
        }

    def _lstm_step(
        self, t: int, diff_h: np.ndarray, diff_c: np.ndarray
    ) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """Gradients of the two sums of the gates, and of h and c past the gates."""
        i, f, g, o = self.gates[t]
        tanh_c = np.tanh(self.c[t + 1])
        diff_c = diff_c + diff_h * o * (1 - tanh_c**2)
        deltas = np.concatenate(
            [
                diff_c * g * i * (1 - i),
                diff_c * self.c[t] * f * (1 - f),
                diff_c * i * (1 - g**2),
                diff_h * tanh_c * o * (1 - o),
            ],
            axis=1,
        )
        return (deltas, deltas), (np.zeros_like(diff_h), diff_c * f)

    def _gru_step(
        self, t: int, diff_h: np.ndarray, diff_c: np.ndarray
    ) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        r, z, n, q_n = self.gates[t]
        diff_n = diff_h * (1 - z) * (1 - n**2)
        diff_r = diff_n * q_n * r * (1 - r)
        diff_z = diff_h * (self.h[t] - n) * z * (1 - z)
        deltas = (
            np.concatenate([diff_r, diff_z, diff_n], axis=1),
            np.concatenate([diff_r, diff_z, diff_n * r], axis=1),
        )
        return deltas, (diff_h * z, diff_c)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x))
