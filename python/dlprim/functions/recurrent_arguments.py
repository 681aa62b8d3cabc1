"""The arguments of `lstm` and `gru`, checked before anything is computed.

What they say of layers and directions becomes a `Stack`; parameters and states become a list each
with an entry per layer and direction, in PyTorch's order: layer 0 forward, layer 0 reverse, ...
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dlprim.arguments.arrays import Array, require_shape
from dlprim.arguments.floats import float_operand, like, require_type, type_of, widened
from dlprim.arguments.scalars import flag, typed_integer

GATES = {"lstm": ("i", "f", "g", "o"), "gru": ("r", "z", "n"), "rnn": ("h",)}
_OWNERS = {"lstm": "an LSTM", "gru": "a GRU", "rnn": "a plain cell"}
_FORWARD, _REVERSE = False, True

Parameters: TypeAlias = dict[str, list[Array]]  # by name, per layer and direction


class Stack(NamedTuple):
    """Layers and directions of one cell, and the shapes they are for."""

    cell: str
    T: int
    N: int
    C: int
    K: int
    dtype: str
    layers: int
    directions: tuple[bool, ...]  # of every layer; True from the end to the beginning
    bias: bool
    batch_first: bool
    bits: bool  # x was uint16, and so are results
    listed: bool  # parameters came as sequences, and so do their gradients
    options: tuple[tuple[str, Any], ...]  # of the primitive

    @property
    def runs(self) -> int:
        return self.layers * len(self.directions)

    @property
    def state_shape(self) -> tuple[int, int, int]:
        return self.runs, self.N, self.K

    @property
    def y_shape(self) -> tuple[int, int, int]:
        """As the caller sees it."""
        outer = (self.N, self.T) if self.batch_first else (self.T, self.N)
        return (*outer, len(self.directions) * self.K)

    def channels(self, run: int) -> int:
        """Of the input of the layer that ``run`` is in."""
        width = len(self.directions)
        return self.C if run < width else width * self.K


class Settings(NamedTuple):
    """Arguments of `lstm` and `gru` that are no arrays."""

    reverse: bool
    bidirectional: bool
    num_layers: int
    batch_first: bool
    options: tuple[tuple[str, Any], ...] = ()  # arguments of the primitive, by name

    def directions(self) -> tuple[bool, ...]:
        reverse = flag("reverse", self.reverse)
        bidirectional = flag("bidirectional", self.bidirectional)
        if reverse and bidirectional:
            raise ValueError(
                "reverse and bidirectional are both True, expected one of them: "
                "bidirectional=True runs in both directions already"
            )
        return (_FORWARD, _REVERSE) if bidirectional else (reverse,)


def stack_of(
    cell: str, x: Any, parameters: Mapping[str, Any], settings: Settings, bits: bool
) -> tuple[Stack, Array, Parameters]:
    """The stack, x as (T, N, C), and those of w_ih, w_hh, b_ih and b_hh that are given.

    Errors: as `lstm` and `gru` say.
    """
    batch_first = flag("batch_first", settings.batch_first)
    src = float_operand("x", x, bits)
    if src.ndim != 3:
        axes = "(N, T, C)" if batch_first else "(T, N, C)"
        raise ValueError(f"x has shape {src.shape}, expected three dimensions {axes}")
    if batch_first:
        src = np.ascontiguousarray(src.swapaxes(0, 1))
    directions = settings.directions()
    layers = typed_integer("num_layers", settings.num_layers)
    if layers < 1:
        raise ValueError(f"num_layers is {layers}, expected at least 1")
    given = {
        name: _entries(name, value, layers, len(directions))
        for name, value in parameters.items()
        if value is not None or name in ("w_ih", "w_hh")
    }
    weights = {
        name: {label: like(label, value, src) for label, value in entries.items()}
        for name, entries in given.items()
    }
    hidden = _hidden_channels(cell, *next(iter(weights["w_hh"].items())))
    steps, batch, channels = src.shape
    stack = Stack(
        cell, steps, batch, channels, hidden, type_of(src), layers, directions, len(weights) > 2,
        batch_first, src.dtype == np.uint16, isinstance(parameters["w_ih"], (list, tuple)),
        settings.options,
    )  # fmt: skip
    checked = {name: _checked(stack, name, src, entries) for name, entries in weights.items()}
    return stack, src, checked


def states_of(stack: Stack, name: str, value: Any, src: Array) -> Array | None:
    """A state, or the gradient of one, (layers * directions, N, K); None if there is none.

    Those of c are float32 whatever the dtype of the stack is.
    """
    if value is None:
        return None
    array = like(name, value, src)
    require_shape(name, array, stack.state_shape, "num_layers * directions, N, K")
    if name.endswith(("c_0", "c_n")):
        if type_of(array) != "float32":
            require_type(name, array, src)
        return widened(array)
    require_type(name, array, src)
    return array


def _entries(name: str, value: Any, layers: int, directions: int) -> dict[str, Any]:
    """An array per layer and direction, by the names that error messages give them."""
    runs = layers * directions
    expected = f"one per layer and direction (num_layers is {layers}, directions {directions})"
    if not isinstance(value, (list, tuple)):
        if runs > 1:
            raise ValueError(f"{name} is no list or tuple, expected {runs} arrays, {expected}")
        return {name: value}
    if len(value) != runs:
        raise ValueError(f"{name} holds {len(value)} arrays, expected {runs}, {expected}")
    return {f"{name}[{run}]": each for run, each in enumerate(value)}


def _hidden_channels(cell: str, name: str, w_hh: Array) -> int:
    gates, owner = GATES[cell], _OWNERS[cell]
    if w_hh.ndim != 2 or w_hh.shape[0] != len(gates) * w_hh.shape[1]:
        raise ValueError(
            f"{name} has shape {w_hh.shape}, expected ({len(gates)}*K, K): {owner} has "
            f"{len(gates)} gates, {', '.join(gates)}, of K rows each"
        )
    return len(w_hh) // len(gates)


def _checked(stack: Stack, name: str, src: Array, entries: Mapping[str, Array]) -> list[Array]:
    """The entries of a parameter, biases float32, if their shapes and types are right."""
    gates = GATES[stack.cell]
    why = f"{len(gates)} gates, {', '.join(gates)}, of K = {stack.K} rows, as w_hh has"
    for run, (label, array) in enumerate(entries.items()):
        columns = {"w_ih": (stack.channels(run),), "w_hh": (stack.K,)}.get(name, ())
        require_shape(label, array, (len(gates) * stack.K, *columns), why)
        if columns:
            require_type(label, array, src)
    return [array if name in ("w_ih", "w_hh") else widened(array) for array in entries.values()]
