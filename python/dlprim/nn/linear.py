"""Fully connected layers on plain arrays, and what stands between them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import dlprim
from dlprim.nn.module import Array, Module, Ready, finished
from dlprim.nn.parameter import Parameter
from dlprim.packing import bfloat16_dtype


class Linear(Module):
    """``activation(x @ weight.T + bias)`` on plain (..., C), with a float32 result.

    Parameters
    ----------
    C, K : int
        Input and output channels.
    activation : None or "relu"
    generator : numpy.random.Generator, optional
        Draws the weights; zeros without it.
    scale : float, optional
        Standard deviation of the weights; sqrt(2 / C) by default (arXiv 1502.01852, 2.2).
    bias : bool
    """

    def __init__(
        self,
        C: int,
        K: int,
        activation: str | None = None,
        generator: np.random.Generator | None = None,
        scale: float | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.activation = activation
        values = np.zeros((K, C), np.float32)
        if generator is not None:
            values = generator.standard_normal((K, C), dtype=np.float32)
            values *= math.sqrt(2 / C) if scale is None else scale
        self.weight = Parameter(values)
        self.bias = Parameter(np.zeros(K, np.float32)) if bias else None
        self._kept: tuple[Array, Array, Any] | None = None

    def own_parameters(self) -> dict[str, Parameter]:
        found = {"weight": self.weight}
        return found if self.bias is None else found | {"bias": self.bias}

    def forward(self, x: Any, training: bool = True) -> Array:
        src = widened(x)
        flops = 2.0 * src.size * self.weight.value.shape[0]
        with self.context.timed(self.name, "forward" if training else "inference", flops):
            bias = None if self.bias is None else self.bias.value
            dst = dlprim.linear(src, self.weight.value, bias, activation=self.activation)
        if training:
            self._kept = src, dst, x.dtype
        return dst

    def backward(self, dy: Any, ready: Ready | None = None) -> Array:
        assert self._kept is not None
        (src, dst, dtype), self._kept = self._kept, None
        y = dst if self.activation else None
        flops = 4.0 * src.size * self.weight.value.shape[0]
        with self.context.timed(self.name, "backward", flops):
            diff_src, diff_weight, diff_bias = dlprim.linear_backward(
                widened(dy), src, self.weight.value, y=y, activation=self.activation
            )
            self.weight.gradient[...] = diff_weight
            if self.bias is not None:
                self.bias.gradient[...] = diff_bias
        finished(ready, *self.own_parameters().values())
        return diff_src if dtype == np.float32 else dlprim.to_bfloat16(diff_src)


class Dropout(Module):
    """Sets a fraction p of the values to zero in training and scales the others by 1 / (1 - p).

    Which ones follows from `seed` and `step` alone, so a run that resumes drops the same.

    Attributes
    ----------
    step : int
        Assign another one for each minibatch.
    """

    keeps_input = False

    def __init__(self, p: float, seed: int) -> None:
        super().__init__()
        self.p, self.seed, self.step = p, seed, 0

    def forward(self, x: Any, training: bool = True) -> Any:
        if not training or self.p == 0:
            return x
        return dlprim.dropout(x, self.p, self.seed, self.step)

    def backward(self, dy: Any, ready: Ready | None = None) -> Any:
        if self.p == 0:
            return dy
        return dlprim.dropout(dy, self.p, self.seed, self.step, out=dy)


def widened(array: Any) -> Array:
    """float32, whatever it was."""
    is_narrow = array.dtype == bfloat16_dtype()
    return np.asarray(dlprim.to_float32(array) if is_narrow else array)
