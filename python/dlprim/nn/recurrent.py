"""LSTM and GRU as layers: several of them, with PyTorch's parameters and their names."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

import dlprim
from dlprim.arguments.arrays import contiguous
from dlprim.arguments.instead import LAYER, instead
from dlprim.arguments.names import one_of_names
from dlprim.arguments.scalars import flag, integer
from dlprim.nn.arguments import fixed
from dlprim.nn.initial import generator_or_own, uniform
from dlprim.nn.module import Array, Module, Ready, finished
from dlprim.nn.parameter import Parameter
from dlprim.nn.passes import backward_pass, forward_pass, label
from dlprim.nn.recent import Recent

_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class Recurrent(Module):
    """Layers of LSTM or GRU on plain (T, N, C); the result is (T, N, K), with both directions 2 K.

    Parameters and their first values are those of `torch.nn.LSTM` and `torch.nn.GRU`, which return
    the states beside the result, and have bias, dropout and batch_first
    besides.

    Parameters
    ----------
    cell : "lstm" or "gru"
    C, K : int
        Input channels, and channels of every state.
    layers : int
    bidirectional : bool
        Each layer has a second direction, from the last step to the first, whose result is the
        second half of the channels.
    generator : numpy.random.Generator, optional
        Draws the parameters uniformly from +-1 / sqrt(K), as PyTorch does; `dlprim.nn.seed`'s
        without it.

    Attributes
    ----------
    states : list of tuple of ndarray
        Of each layer and direction after the latest `forward`: (h,) or (h, c), each (N, K). Where
        `carry` is set, the next `forward` begins with them, and no gradient flows between the two;
        without it every forward begins with zeros, whatever is assigned here.
    carry : bool
        Not of two directions.

    Raises
    ------
    TypeError, ValueError
        A number is no integer or below 1, cell is unknown, bidirectional is no bool, or generator
        is none.
    """

    takes_images = False
    reads_result = True
    of_passes = ("_primitives", "_weights", "_stamp", "_saved")
    cell, C, K = fixed("cell"), fixed("C"), fixed("K")
    layers, bidirectional = fixed("layers"), fixed("bidirectional")

    def __init__(
        self,
        cell: str,
        C: int,
        K: int,
        layers: int = 1,
        *,
        bidirectional: bool = False,
        generator: np.random.Generator | None = None,
    ) -> None:
        super().__init__()
        one_of_names("cell", cell, ("lstm", "gru"))
        for name, value in {"C": C, "K": K, "layers": layers}.items():
            integer(name, value, 1)
        self._make = dlprim.LSTM if cell == "lstm" else dlprim.GRU
        self._cell, self._C, self._K, self._layers, self.carry = cell, C, K, layers, False
        self._bidirectional = flag("bidirectional", bidirectional)
        self._directions = ("", "_reverse") if self.bidirectional else ("",)
        gates = 4 if cell == "lstm" else 3
        drawer = generator_or_own(generator)
        self._parameters: dict[str, Parameter] = {}
        for layer in range(layers):
            width = C if layer == 0 else K * len(self._directions)
            shapes = ((gates * K, width), (gates * K, K), (gates * K,), (gates * K,))
            for direction in self._directions:
                for name, shape in zip(_NAMES, shapes, strict=True):
                    values = uniform(shape, drawer, 1 / math.sqrt(K))
                    self._parameters[f"{name}_l{layer}{direction}"] = Parameter(values)
        self.states: list[tuple[Array, ...]] = []
        self._primitives: Recent[tuple[Any, str], Any] = Recent()
        self._weights: dict[str, Any] = {}  # packed, by layer and direction
        self._stamp: list[int] | None = None  # of what is packed, for inference
        self._saved: list[Any] = []

    def arguments(self) -> dict[str, Any]:
        return {
            "cell": self.cell,
            "C": self.C,
            "K": self.K,
            "layers": self.layers,
            "bidirectional": self.bidirectional,
        }

    def own_parameters(self) -> dict[str, Parameter]:
        own = super().own_parameters()
        return self._parameters | {
            name: it for name, it in own.items() if not name.startswith("_parameters.")
        }

    def changed(self) -> None:
        super().changed()
        self._stamp = None

    def traced(self, x: Any, lengths: Any = None) -> Any:
        if self.carry:
            raise ValueError(f"carry of {label(self)} is True, expected False in a traced model")
        runs = [(it, way) for it in range(self.layers) for way in self._directions]
        of = [[self._parameters[f"{name}_l{it}{way}"] for it, way in runs] for name in _NAMES]
        how = {"num_layers": self.layers, "bidirectional": self.bidirectional}
        function = dlprim.lstm if self.cell == "lstm" else dlprim.gru
        return function(x, *of, lengths=lengths, **how)[0]

    @forward_pass
    def forward(self, x: Any, training: bool | None = None, lengths: Any = None) -> Array:
        """The result; zero behind the end of each sequence.

        Parameters
        ----------
        x : array of float32 or bfloat16, (T, N, C)
        lengths : integers, (N,), optional
            Of the sequences, from 0 to T. The second direction begins at the end of each.
        """
        saved: list[Any] = []
        states: list[tuple[Array, ...]] = []
        shape = x.shape
        if len(shape) != 3 or shape[2] != self._C:
            raise ValueError(
                f"x of {label(self)} has shape {shape}, expected (T, N, {self._C}): steps, "
                "sequences, channels"
            )
        if not x.flags.carray:
            x = contiguous(x)
        begin = self._begin(shape)
        self._pack_where_due(shape, training)
        for layer in range(self.layers):
            results = []
            for direction in self._directions:
                rnn = self._primitive(layer, shape, direction)
                name = f"{self.name}.{layer}{direction}"
                weights = self._weights[f"{layer}{direction}"]
                with self.context.timed(name, "forward" if training else "inference", rnn.flops):
                    found = rnn.forward(
                        x, weights, *begin[len(states)], lengths=lengths, training=bool(training)
                    )
                results.append(found[0])
                states.append(found[1:-1] if training else found[1:])
                if training:
                    saved.append((rnn, found[-1]))
            x = results[0] if len(results) == 1 else np.concatenate(results, axis=2)
            self.context.observe(f"{self.name}.{layer}", x)
        self.states = states
        if training:
            self._saved = saved
        return x  # type: ignore[no-any-return]

    @backward_pass
    def backward(self, dy: Any, ready: Ready | None = None) -> Array:
        dy = contiguous(dy)
        for layer in reversed(range(self.layers)):
            sources = []
            for place, direction in reversed(list(enumerate(self._directions))):
                part = dy
                if self.bidirectional:
                    part = np.ascontiguousarray(dy[..., place * self.K : (place + 1) * self.K])
                sources.append(self._backward_of(layer, direction, part, ready))
            dy = sources[0] if len(sources) == 1 else dlprim.add(*sources, out=sources[0])
        return dy  # type: ignore[no-any-return]

    def _backward_of(self, layer: int, direction: str, dy: Array, ready: Ready | None) -> Array:
        rnn, saved = self._saved.pop()
        name = f"{self.name}.{layer}{direction}"
        with self.context.timed(name, "backward", 2 * rnn.flops):
            found = rnn.backward(dy, saved, self._weights[f"{layer}{direction}"])
        gradients = (found.diff_w_ih, found.diff_w_hh, found.diff_b_ih, found.diff_b_hh)
        own = self._of(layer, direction)
        for parameter, gradient in zip(own, gradients, strict=True):
            parameter.gradient[...] = gradient
        finished(ready, *own)
        src: Array = found.diff_src
        return src

    def _begin(self, shape: tuple[int, ...]) -> list[tuple[Array, ...]]:
        """States in front of the first step, by layer and direction."""
        if not self.carry or not self.states:
            return [()] * (self.layers * len(self._directions))
        if self.bidirectional:
            raise ValueError(
                "carry is True and bidirectional too, expected one of them: the second direction "
                "begins at the end of what is not there yet"
            )
        N = self.states[0][0].shape[0]
        if shape[1:2] != (N,):
            raise ValueError(
                f"x has shape {shape} and carry is True, expected {N} sequences as in the forward "
                "before, whose states go on; states = [] begins anew"
            )
        return self.states

    def _pack_where_due(self, shape: tuple[int, ...], training: bool | None) -> None:
        """In every training pass, for inference where weights are others than those packed."""
        stamp = None
        if not training:
            if [it.current for it in self._parameters.values()] == self._stamp:
                return
            stamp = [it.version for it in self._parameters.values()]
            if stamp == self._stamp:
                return
        with self.context.timed(self.name, "pack"):
            for layer in range(self.layers):
                for direction in self._directions:
                    w_ih, w_hh, b_ih, b_hh = (it.held for it in self._of(layer, direction))
                    if self.context.dtype != np.float32:
                        w_ih, w_hh = dlprim.to_bfloat16(w_ih), dlprim.to_bfloat16(w_hh)
                    key = f"{layer}{direction}"
                    self._weights[key] = self._primitive(layer, shape, direction).pack_weights(
                        w_ih, w_hh, b_ih, b_hh, out=self._weights.get(key)
                    )
        self._stamp = stamp

    def _of(self, layer: int, direction: str) -> list[Parameter]:
        return [self._parameters[f"{name}_l{layer}{direction}"] for name in _NAMES]

    def _primitive(self, layer: int, shape: tuple[int, ...], direction: str) -> Any:
        width = self._parameters[f"weight_ih_l{layer}"].shape[1]
        key = (*shape[:2], width)
        if (key, direction) not in self._primitives:
            self._primitives[key, direction] = self._make(
                key, self.K, dtype=self.context.dtype_name, reverse=bool(direction)
            )
        return self._primitives[key, direction]


class _OfOneCell(Recurrent):
    """What a recurrent layer is where its class says the cell."""

    _only: ClassVar[str]

    @instead(
        input_size="C",
        hidden_size="K",
        num_layers="layers",
        bias="none: both biases are always there, and may be set to 0",
        batch_first="x of shape (T, N, C), np.ascontiguousarray(x.transpose(1, 0, 2))",
        dropout="none between the layers: nn.Dropout between two of one layer each",
        proj_size="none",
        **LAYER,
    )
    def __init__(
        self,
        C: int,
        K: int,
        layers: int = 1,
        *,
        bidirectional: bool = False,
        generator: np.random.Generator | None = None,
    ) -> None:
        super().__init__(self._only, C, K, layers, bidirectional=bidirectional, generator=generator)

    def arguments(self) -> dict[str, Any]:
        return {name: it for name, it in super().arguments().items() if name != "cell"}


class LSTM(_OfOneCell):
    """An LSTM of several layers with the parameters of `torch.nn.LSTM`: `Recurrent` of that cell.

    Takes plain (T, N, C): steps, sequences, channels. The result is (T, N, K), with both directions
    (T, N, 2 K).

    Parameters
    ----------
    C, K : int
        Input channels, and channels of every state.
    layers : int
        PyTorch's num_layers.
    bidirectional : bool
        Each layer has a second direction.
    generator : numpy.random.Generator, optional
        Draws the parameters; `dlprim.nn.seed`'s without it.

    Attributes
    ----------
    states : list of tuple of ndarray
        (h, c) of each layer and direction after the latest `forward`, each (N, K).
    carry : bool
        Whether the next `forward` begins with `states`; False at first, when it begins with zeros
        whatever is assigned to `states`.
    """

    _only = "lstm"


class GRU(_OfOneCell):
    """A GRU of several layers with the parameters of `torch.nn.GRU`: `Recurrent` of that cell.

    Takes plain (T, N, C): steps, sequences, channels. The result is (T, N, K), with both directions
    (T, N, 2 K).

    Parameters
    ----------
    C, K : int
        Input channels, and channels of every state.
    layers : int
        PyTorch's num_layers.
    bidirectional : bool
        Each layer has a second direction.
    generator : numpy.random.Generator, optional
        Draws the parameters; `dlprim.nn.seed`'s without it.

    Attributes
    ----------
    states : list of tuple of ndarray
        (h,) of each layer and direction after the latest `forward`, each (N, K).
    carry : bool
        Whether the next `forward` begins with `states`; False at first, when it begins with zeros
        whatever is assigned to `states`.
    """

    _only = "gru"
