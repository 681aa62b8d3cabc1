"""Recurrent results in float64, by the equations of PyTorch's cells, for a few sequences.

Sequences do not know of each other, so that those few are exact. Gradients are verified along
random directions: with an imaginary part of 1e-100 in the operands, that of the loss is the
derivative, exact to float64 (complex-step differentiation), so the forward pass is all there is.
Products take real and imaginary parts apart: weights that have none are not copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dlprim.bench.measuring.verification import WrongResultError, doubles

# Roundings of every step, as if random: of float32 sums, of bfloat16 states and gradients.
_ROUNDOFF = {True: 2.0**-18, False: 2.0**-7}
_DIRECTIONS = 2
_STEP = 1e-100


class Parameters(NamedTuple):
    """In PyTorch's shapes."""

    w_ih: np.ndarray
    w_hh: np.ndarray
    b_ih: np.ndarray
    b_hh: np.ndarray


def states(cell: str, x: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> np.ndarray:
    """y (T, n, K) of x (T, n, C), from states of zero."""
    h = np.zeros((x.shape[1], w_hh.shape[1]), np.result_type(x, w_ih, w_hh, b_ih, b_hh))
    c, found = np.zeros_like(h), []
    for inputs in x:
        p, q = _product(inputs, w_ih) + b_ih, _product(h, w_hh) + b_hh
        if cell == "lstm":
            i, f, g, o = np.split(p + q, 4, axis=1)
            c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
            h = _sigmoid(o) * np.tanh(c)
        else:
            (p_r, p_z, p_n), (q_r, q_z, q_n) = np.split(p, 3, axis=1), np.split(q, 3, axis=1)
            z = _sigmoid(p_z + q_z)
            h = (1 - z) * np.tanh(p_n + _sigmoid(p_r + q_r) * q_n) + z * h
        found.append(h)
    return np.stack(found)


def verify_states(
    name: str, cell: str, y: np.ndarray, x: np.ndarray, parameters: Parameters
) -> None:
    """Refuse y unless errors are small against its largest element.

    Raises
    ------
    WrongResultError
    """
    exact = states(cell, doubles(x), *map(doubles, parameters))
    limit = _roundoff(y) * len(exact) ** 0.5 * max(1.0, float(np.abs(exact).max()))
    error = float(np.abs(doubles(y) - exact).max())
    if not error <= limit:
        raise WrongResultError(f"{name}: wrong result, {error / limit:.1f} times the error bound")


def verify_gradients(
    name: str,
    cell: str,
    gradients: Sequence[np.ndarray],
    operands: Sequence[np.ndarray],
    diff_y: np.ndarray,
) -> None:
    """Refuse gradients of x and the parameters, in the order of `states`, if one is wrong.

    Raises
    ------
    WrongResultError
    """
    exact, slope = [doubles(it) for it in operands], doubles(diff_y)
    random = np.random.default_rng(0)
    labels = ("x", *Parameters._fields)
    for place, (label, gradient) in enumerate(zip(labels, gradients, strict=True)):
        for _ in range(_DIRECTIONS):
            direction = random.standard_normal(gradient.shape)
            moved: list[Any] = list(exact)
            moved[place] = exact[place] + 1j * _STEP * direction
            expected = float((slope * states(cell, *moved).imag).sum() / _STEP)
            found = float((doubles(gradient) * direction).sum())
            # Errors of random signs add to one as large as their norm.
            norm = float(np.linalg.norm(doubles(gradient)))
            limit = _roundoff(operands[0]) * len(slope) ** 0.5 * norm
            if not abs(found - expected) <= limit:
                times = abs(found - expected) / limit
                raise WrongResultError(
                    f"{name} diff_{label}: wrong result, {times:.1f} times the error bound"
                )


def _product(x: Any, w: Any) -> Any:
    """``x @ w.T``."""
    if not np.iscomplexobj(x) and not np.iscomplexobj(w):
        return x @ w.T
    real, imaginary = np.split(np.concatenate([x.real, x.imag]) @ w.real.T, 2)
    if np.iscomplexobj(w):
        imaginary = imaginary + x.real @ w.imag.T
    return real + 1j * imaginary


def _roundoff(array: np.ndarray) -> float:
    return _ROUNDOFF[array.dtype == np.float32]


def _sigmoid(x: Any) -> Any:
    return 0.5 * (1 + np.tanh(0.5 * x))
