"""LSTM and GRU as layers: several of them, with PyTorch's parameters and their names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

import dlprim
from dlprim.arguments.arrays import FloatArray, values_for
from dlprim.arguments.instead import LAYER, instead
from dlprim.arguments.names import one_of_names
from dlprim.arguments.scalars import flag, integer
from dlprim.arguments.traced import RUNNING, HeldArray
from dlprim.nn.calls import label
from dlprim.nn.initial import generator_or_own, uniform
from dlprim.nn.layer import Layer, fixed
from dlprim.nn.parameter import Parameter

_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class Recurrent(Layer):
    """Layers of LSTM or GRU on plain (T, N, C); the result is (T, N, K), with both directions 2 K.

    Parameters and their first values are those of `torch.nn.LSTM` and `torch.nn.GRU`, which return
    the states beside the result, and have bias and dropout besides.

    Parameters
    ----------
    cell : "lstm" or "gru"
    C, K : int
        Input channels, and channels of every state.
    layers : int
    bidirectional : bool
        Each layer has a second direction, from the last step to the first, whose result is the
        second half of the channels.
    batch_first : bool
        x and the result are (N, T, ...).
    generator : numpy.random.Generator, optional
        Draws the parameters uniformly from +-1 / sqrt(K), as PyTorch does; `dlprim.nn.seed`'s
        without it.

    Attributes
    ----------
    carry : bool
        Whether the next `forward` begins with the states that this one ends with; no gradient
        flows between the two. False at first: every forward begins with zeros. Not of two
        directions.
    states : list of tuple of ndarray
        Where `carry` is set, (h,) or (h, c) of each layer after the latest `forward`, each (N, K)
        of float32, copied. What is assigned is copied, too; an empty list begins with zeros.

    Raises
    ------
    TypeError, ValueError
        A number is no integer or below 1, cell is unknown, bidirectional is no bool, or generator
        is none.
    """

    cell, C, K = fixed(), fixed(), fixed()
    layers, bidirectional, batch_first = fixed(), fixed(), fixed()
    listed = ("lengths",)

    def __init__(
        self,
        cell: str,
        C: int,
        K: int,
        layers: int = 1,
        *,
        bidirectional: bool = False,
        batch_first: bool = False,
        generator: np.random.Generator | None = None,
    ) -> None:
        super().__init__()
        one_of_names("cell", cell, ("lstm", "gru"))
        for name, value in {"C": C, "K": K, "layers": layers}.items():
            integer(name, value, 1)
        flags = {"bidirectional": bidirectional, "batch_first": batch_first}
        self._keep(cell=cell, C=C, K=K, layers=layers, **{it: flag(it, flags[it]) for it in flags})
        self.carry, self._directions = False, ("", "_reverse") if bidirectional else ("",)
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
        self._carried = _Carried(K, layers, 2 if cell == "lstm" else 1)

    def own_parameters(self) -> dict[str, Parameter]:
        own = super().own_parameters()
        return self._parameters | {
            name: it for name, it in own.items() if not name.startswith("_parameters.")
        }

    @property
    def states(self) -> list[tuple[FloatArray, ...]]:
        return self._carried.now()

    @states.setter
    def states(self, states: Sequence[Sequence[Any]]) -> None:
        self._carried.put(states, label(self))

    def forward(self, x: Any, lengths: Any = None) -> Any:
        """The result; zero behind the end of each sequence.

        Parameters
        ----------
        x : array of float32 or bfloat16, (T, N, C) or, with batch_first, (N, T, C)
        lengths : integers, (N,), optional
            Of the sequences, from 0 to T. The second direction begins at the end of each. A list is
            data, as an array is: one network serves all.
        """
        shape = x.shape
        if len(shape) != 3 or shape[2] != self.C:
            order = "(N, T" if self.batch_first else "(T, N"
            raise ValueError(
                f"x of {label(self)} has shape {shape}, expected {order}, {self.C}): "
                f"{'sequences, steps' if self.batch_first else 'steps, sequences'}, channels"
            )
        runs = [(it, way) for it in range(self.layers) for way in self._directions]
        of = [[self._parameters[f"{name}_l{it}{way}"] for it, way in runs] for name in _NAMES]
        how: dict[str, Any] = {"num_layers": self.layers, "bidirectional": self.bidirectional}
        how["batch_first"] = self.batch_first
        function = dlprim.lstm if self.cell == "lstm" else dlprim.gru
        if not self.carry:
            return function(x, *of, lengths=lengths, **how)[0]
        if self.bidirectional:
            raise ValueError(
                "carry is True and bidirectional too, expected one of them: the second direction "
                "begins at the end of what is not there yet"
            )
        N = int(shape[0 if self.batch_first else 1])  # a network of its own for each
        held = self._carried.held(N, label(self))
        tracer = RUNNING.tracer
        how |= dict(zip(("h_0", "c_0"), map(tracer.of_held, held), strict=False))
        y, *ends = function(x, *of, lengths=lengths, **how)
        for it, end in zip(held, ends, strict=True):
            tracer.write(it, end)
        return y


class _Carried:
    """States that the next call begins with: of each kind, h and c, an array of all layers.

    A network reads them as arrays that outlive calls; those of another number of sequences are
    other arrays, in a network of its own.

    Attributes
    ----------
    N : int or None
        Sequences of the call before; None where the next begins with zeros.
    """

    def __init__(self, K: int, layers: int, kinds: int) -> None:
        self.N: int | None = None
        self._K, self._layers, self._kinds = K, layers, kinds
        self._of: dict[int, list[_State]] = {}

    def held(self, N: int, whose: str) -> list[_State]:
        """What the calls of so many sequences read and write."""
        if N not in self._of:
            shape = self._layers, N, self._K
            self._of[N] = [_State(self, shape, whose) for _ in range(self._kinds)]
        return self._of[N]

    def now(self) -> list[tuple[FloatArray, ...]]:
        """Of each layer, copied."""
        if self.N is None:
            return []
        kinds = [it.held.copy() for it in self._of[self.N]]
        return list(zip(*kinds, strict=True))

    def __getstate__(self) -> dict[str, Any]:
        of = {} if self.N is None else {self.N: self._of[self.N]}
        return {**vars(self), "_of": of}

    def put(self, states: Sequence[Sequence[Any]], whose: str) -> None:
        """The next call begins with these; with zeros where there are none."""
        due = f"[], or {'(h, c)' if self._kinds == 2 else '(h,)'} of {self._layers} layers"
        try:
            given = [list(each) for each in states]
        except TypeError:
            raise TypeError(f"states of {whose} is no list of tuples, expected {due}") from None
        counts = [len(each) for each in given]
        if given and counts != [self._kinds] * self._layers:
            raise ValueError(f"states of {whose} has {counts} arrays by layer, expected {due}")
        N = len(given[0][0]) if given and np.ndim(given[0][0]) else 0
        like = np.empty((N, self._K), np.float32)
        arrays = [
            [
                values_for(f"states[{at}][{kind}] of {whose}", it, like)
                for kind, it in enumerate(each)
            ]
            for at, each in enumerate(given)
        ]
        self.N = None
        for state, array in zip(self.held(N, whose), zip(*arrays, strict=True), strict=False):
            state.held[...] = array
        self.N = N if given else None


class _State(HeldArray):
    """The array (layers, N, K) of one kind, zeros where the call before was none."""

    def __init__(self, of: _Carried, shape: tuple[int, int, int], whose: str) -> None:
        super().__init__(np.zeros(shape, np.float32), "state")
        self._of, self._N, self._whose = of, shape[1], whose

    @property
    def form(self) -> tuple[tuple[int, ...], Any]:
        return self._array.shape, self._array.dtype

    def key(self) -> int:
        return id(self._array)

    @property
    def held(self) -> Any:
        before = self._of.N
        if before is None:
            self._array[...] = 0
        elif before != self._N:
            raise ValueError(
                f"x of {self._whose} has {self._N} sequences and carry is True, expected {before} "
                "as in the forward before, whose states go on; states = [] begins anew"
            )
        return self._array

    def written(self) -> None:
        self._of.N = self._N


class _OfOneCell(Recurrent):
    """What a recurrent layer is where its class says the cell."""

    _only: ClassVar[str]

    @instead(
        input_size="C",
        hidden_size="K",
        num_layers="layers",
        bias="none: both biases are always there, and may be set to 0",
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
        batch_first: bool = False,
        generator: np.random.Generator | None = None,
    ) -> None:
        ways = {"bidirectional": bidirectional, "batch_first": batch_first}
        super().__init__(self._only, C, K, layers, **ways, generator=generator)


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
    batch_first : bool
        x and the result are (N, T, ...).
    generator : numpy.random.Generator, optional
        Draws the parameters; `dlprim.nn.seed`'s without it.

    Attributes
    ----------
    carry : bool
        Whether the next `forward` begins with the states that this one ends with; False at first.
    states : list of tuple of ndarray
        Where `carry` is set, (h, c) of each layer after the latest `forward`, each (N, K).
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
    batch_first : bool
        x and the result are (N, T, ...).
    generator : numpy.random.Generator, optional
        Draws the parameters; `dlprim.nn.seed`'s without it.

    Attributes
    ----------
    carry : bool
        Whether the next `forward` begins with the states that this one ends with; False at first.
    states : list of tuple of ndarray
        Where `carry` is set, (h,) of each layer after the latest `forward`, each (N, K).
    """

    _only = "gru"
