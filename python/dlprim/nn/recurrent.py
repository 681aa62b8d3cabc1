"""LSTM and GRU as layers: several of them, with PyTorch's parameters and their names."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import dlprim
from dlprim.arguments.scalars import integer
from dlprim.nn.initial import generator_or_own, uniform
from dlprim.nn.module import Array, Module, Ready, finished
from dlprim.nn.parameter import Parameter
from dlprim.nn.passes import backward_pass, forward_pass

_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class Recurrent(Module):
    """Layers of LSTM or GRU in one direction, on plain (T, N, C); the result is (T, N, K).

    Parameters and their first values are those of `torch.nn.LSTM` and `torch.nn.GRU`, which return
    the states beside the result, and have bias, dropout, batch_first and
    bidirectional besides.

    Parameters
    ----------
    cell : "lstm" or "gru"
    C, K : int
        Input channels, and channels of every state.
    layers : int
    generator : numpy.random.Generator, optional
        Draws the parameters uniformly from +-1 / sqrt(K), as PyTorch does; `dlprim.nn.seed`'s
        without it.

    Attributes
    ----------
    states : list of tuple of ndarray
        Of each layer after the latest `forward`: (h,) or (h, c). Where `carry` is set, the next
        `forward` begins with them, and no gradient flows between the two.
    carry : bool
    """

    takes_images = False
    of_passes = ("_primitives", "_weights", "_stamp", "_saved")

    def __init__(
        self,
        cell: str,
        C: int,
        K: int,
        layers: int = 1,
        *,
        generator: np.random.Generator | None = None,
    ) -> None:
        super().__init__()
        if cell not in ("lstm", "gru"):
            raise ValueError(f"cell is {cell!r}, expected 'lstm' or 'gru'")
        for name, value in {"C": C, "K": K, "layers": layers}.items():
            integer(name, value, 1)
        self._make = dlprim.LSTM if cell == "lstm" else dlprim.GRU
        self.cell, self.C, self.K, self.layers, self.carry = cell, C, K, layers, False
        gates = 4 if cell == "lstm" else 3
        drawer = generator_or_own(generator)
        self._parameters: dict[str, Parameter] = {}
        for layer in range(layers):
            width = C if layer == 0 else K
            shapes = ((gates * K, width), (gates * K, K), (gates * K,), (gates * K,))
            for name, shape in zip(_NAMES, shapes, strict=True):
                values = uniform(shape, drawer, 1 / math.sqrt(K))
                self._parameters[f"{name}_l{layer}"] = Parameter(values)
        self.states: list[tuple[Array, ...]] = []
        self._primitives: dict[tuple[Any, ...], Any] = {}
        self._weights: dict[int, Any] = {}  # packed, by layer
        self._stamp: list[int] | None = None  # of what is packed, for inference
        self._saved: list[Any] = []

    def arguments(self) -> dict[str, Any]:
        return {"cell": self.cell, "C": self.C, "K": self.K, "layers": self.layers}

    def own_parameters(self) -> dict[str, Parameter]:
        return self._parameters

    def changed(self) -> None:
        self._stamp = None

    @forward_pass
    def forward(self, x: Any, training: bool | None = None) -> Array:
        saved, states = [], []
        begin = self.states if self.carry and self.states else [()] * self.layers
        if training:
            self._pack(x.shape)
            self._stamp = None
        elif [it.current for it in self._parameters.values()] != self._stamp:
            stamp = [it.version for it in self._parameters.values()]
            if stamp != self._stamp:
                self._pack(x.shape)
                self._stamp = stamp
        for layer in range(self.layers):
            rnn = self._primitive(layer, x.shape)
            name = f"{self.name}.{layer}"
            with self.context.timed(name, "forward" if training else "inference", rnn.flops):
                found = rnn.forward(x, self._weights[layer], *begin[layer], training=training)
            x = found[0]
            self.context.observe(name, x)
            states.append(found[1:-1] if training else found[1:])
            if training:
                saved.append((rnn, found[-1]))
        self.states = states
        if training:
            self._saved = saved
        return x  # type: ignore[no-any-return]

    @backward_pass
    def backward(self, dy: Any, ready: Ready | None = None) -> Array:
        for layer in reversed(range(self.layers)):
            rnn, saved = self._saved.pop()
            with self.context.timed(f"{self.name}.{layer}", "backward", 2 * rnn.flops):
                found = rnn.backward(dy, saved, self._weights[layer])
            gradients = (found.diff_w_ih, found.diff_w_hh, found.diff_b_ih, found.diff_b_hh)
            own = [self._parameters[f"{name}_l{layer}"] for name in _NAMES]
            for parameter, gradient in zip(own, gradients, strict=True):
                parameter.gradient[...] = gradient
            finished(ready, *own)
            dy = found.diff_src
        return dy  # type: ignore[no-any-return]

    def _pack(self, shape: tuple[int, ...]) -> None:
        with self.context.timed(self.name, "pack"):
            for layer in range(self.layers):
                w_ih, w_hh, b_ih, b_hh = (
                    self._parameters[f"{name}_l{layer}"].held for name in _NAMES
                )
                if self.context.dtype != np.float32:
                    w_ih, w_hh = dlprim.to_bfloat16(w_ih), dlprim.to_bfloat16(w_hh)
                self._weights[layer] = self._primitive(layer, shape).pack_weights(
                    w_ih, w_hh, b_ih, b_hh, out=self._weights.get(layer)
                )

    def _primitive(self, layer: int, shape: tuple[int, ...]) -> Any:
        width = self._parameters[f"weight_ih_l{layer}"].shape[1]
        key = (*shape[:2], width)
        if key not in self._primitives:
            self._primitives[key] = self._make(key, self.K, dtype=self.context.dtype_name)
        return self._primitives[key]
