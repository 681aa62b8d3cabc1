"""LAMB: Adam's direction, with steps as long as each parameter is large."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlprim import _core
from dlprim.arguments.arrays import aligned
from dlprim.arguments.floats import to_bfloat16
from dlprim.functions.rows.row_programs import run_parts
from dlprim.optim.adam import Adam, corrections
from dlprim.optim.groups import Group
from dlprim.optim.optimizer import Copies, Parameters


class LAMB(Adam):
    """LAMB (arXiv 1904.00962, algorithm 2), for large batches.

    With Adam's corrected means m and v of a parameter w, one step is::

        r = m / (sqrt(v) + eps) + weight_decay * w
        w = w - lr * (norm(w) / norm(r)) * r

    where the quotient of norms, of each parameter by itself, is 1 if either is 0. The norm of all
    gradients together is limited by `clip_grad_norm`, where that is wanted.

    Parameters
    ----------
    parameters, lr, copies
        As for `SGD`.
    betas, eps
        As for `Adam`.
    weight_decay : float
        As written above, at least 0.

    Raises
    ------
    TypeError, ValueError, AttributeError
        As `SGD` does.
    """

    _kind = "LAMB"

    def __init__(
        self,
        parameters: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        *,
        copies: Copies | None = None,
    ) -> None:
        super().__init__(parameters, lr, betas, eps, weight_decay, copies=copies)
        self._directions: dict[int, NDArray[np.float32]] = {}  # by place, made once

    def _step_of(self, group: Group, rows: list[tuple[Any, ...]], steps: list[int]) -> None:
        directions = [self._direction(row) for row in rows]
        # Adam's step of length 1 from zero, without a decay, is the direction down the slope.
        zeros = [(it, *row[1:5], None, row[-1]) for it, row in zip(directions, rows, strict=True)]
        scales = [(1 / (1 - group["betas"][0] ** it), corrections(group, it)[1]) for it in steps]
        _core.adam_step(zeros, (1, 0), group["betas"], group["eps"], scales)
        decay = np.float32(group["weight_decay"])
        for it, row in zip(directions, rows, strict=True):
            value, copy = row[0], row[5]
            if decay:
                it -= decay * value
            own, length = _norm(value), _norm(it)
            it *= np.float32(group["lr"] * (own / length if own > 0 and length > 0 else 1))
            value += it
            if copy is not None:
                copy[...] = to_bfloat16(value).view(copy.dtype)

    def _direction(self, row: tuple[Any, ...]) -> NDArray[np.float32]:
        found = self._directions.get(row[-1])
        if found is None:
            found = self._directions[row[-1]] = aligned(row[0].shape, np.float32)
        found.fill(0)
        return found


def _norm(array: NDArray[np.float32]) -> float:
    return math.sqrt(run_parts("square_sum", (array,)))
