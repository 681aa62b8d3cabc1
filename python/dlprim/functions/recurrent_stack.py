"""Layers and directions of recurrent cells over the primitives, one layer after the other."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dlprim.arguments.arrays import Array, require_shape
from dlprim.arguments.calls import KNOWN
from dlprim.arguments.floats import float_operand, to_bfloat16, type_of, widened
from dlprim.arguments.scalars import flag
from dlprim.arguments.traced import traced_among
from dlprim.functions.recurrent_arguments import (
    Parameters,
    Settings,
    Stack,
    stack_of,
    states_of,
)
from dlprim.primitives.rnn import GRU, LSTM, RNN
from dlprim.primitives.rnn_operands import RESULTS, GRUSaved, LSTMSaved, PackedWeights

_CELLS: dict[str, Any] = {"lstm": LSTM, "gru": GRU, "rnn": RNN}
_PREPARED = 128  # shapes that are kept; a network has fewer


class SavedRecurrence(NamedTuple):
    """What `lstm` and `gru` with training=True keep for their backward passes.

    The tuples have an entry per layer and direction, in PyTorch's order.
    """

    stack: Stack
    weights: tuple[PackedWeights, ...]
    states: tuple[LSTMSaved | GRUSaved, ...]


def forward(
    cell: str,
    x: Any,
    named: dict[str, Any],
    settings: Settings,
    first: dict[str, Any],
    others: tuple[Any, bool, bool],
) -> Any:
    """What `lstm`, `gru` and `rnn` return, from parameters and first states by name.

    ``others`` are lengths, training and whether uint16 arrays hold the bits of bfloat16 values.
    """
    lengths, training = others[0], flag("training", others[1])
    try:
        stack, src, parameters, states = _operands(cell, x, named, settings, (first, others[2]))
    except TypeError:
        traced = traced_among((x, *named.values(), *first.values()))
        if traced is None:
            raise
        return traced.called("recurrent", (cell, x, named, settings, first, others), {})
    dtype = src.dtype  # uint16 for bits of bfloat16, which primitives take, but do not return
    last: list[list[Array]] = []
    packed, saved = [], []
    while len(last) < stack.runs:
        layer = []
        for reverse in stack.directions:
            run = len(last)
            primitive = _prepared(stack, stack.channels(run), reverse)
            given = {name: each[run] for name, each in parameters.items()}
            weights = primitive.pack_weights(**given)
            how: dict[str, Any] = {"lengths": lengths} | ({"training": True} if training else {})
            results = primitive.forward(src, weights, **_of_run(states, run), **how)
            if training:
                *results, kept = results
                packed.append(weights)
                saved.append(kept)
            y, *ends = results
            layer.append(y)
            last.append(ends)
        src = layer[0] if len(layer) == 1 else np.concatenate(layer, axis=2)
    h_n, *c_n = (np.stack(ends) for ends in zip(*last, strict=True))
    found = _outer(stack, src, dtype), h_n.view(dtype), *c_n
    result, trained = RESULTS[cell]
    if not training:
        return result(*found)
    return trained(*found, SavedRecurrence(stack, tuple(packed), tuple(saved)))


def _operands(
    cell: str, x: Any, named: dict[str, Any], settings: Settings, more: tuple[dict[str, Any], bool]
) -> tuple[Stack, Array, Parameters, dict[str, Array | None]]:
    """As `stack_of`, and first states by name; ``more`` are these, as given, and bits."""
    first, bits = more
    arrays = (x, *named.values(), *first.values())
    how = (cell, bits, *settings[:4], *(part for option in settings.options for part in option))
    known: Stack | None = KNOWN.find(arrays, how)
    if known is not None:
        return known, x, {name: [it] for name, it in named.items() if it is not None}, first
    stack, src, parameters = stack_of(cell, x, named, settings, bits=bits)
    states = {name: states_of(stack, name, each, src) for name, each in first.items()}
    if not stack.listed and not stack.batch_first:
        used = (parameters.get(name, [None])[0] for name in named)
        KNOWN.keep(arrays, how, stack, (src, *used, *states.values()))
    return stack, src, parameters, states


def backward(cell: str, dy: Any, saved: Any, last: dict[str, Any]) -> Any:
    """`LSTMGradients` or `GRUGradients`, from the gradients of the last states by name."""
    stack, diff_dst = _required(cell, dy, saved)
    states = {name: states_of(stack, name, each, diff_dst) for name, each in last.items()}
    width = len(stack.directions)
    diff = np.ascontiguousarray(diff_dst.swapaxes(0, 1)) if stack.batch_first else diff_dst
    gradients: list[Any] = []
    for first in reversed(range(0, stack.runs, width)):
        parts = [diff] if width == 1 else np.split(diff, width, axis=2)
        layer = []
        for run, reverse in enumerate(stack.directions, first):
            primitive = _prepared(stack, stack.channels(run), reverse)
            kept = np.ascontiguousarray(parts[run - first]), saved.states[run], saved.weights[run]
            layer.append(primitive.backward(*kept, **_of_run(states, run)))
        gradients = layer + gradients
        diff = layer[0].diff_src
        for other in layer[1:]:
            diff = _sum(diff, other.diff_src)
    found: dict[str, Any] = {}
    for name in gradients[0]._fields:
        entries = [getattr(each, name) for each in gradients]
        found[name] = entries if stack.listed and entries[0] is not None else entries[0]
        if name.endswith("_0"):
            found[name] = np.stack(entries)
    found["diff_src"] = _outer(stack, diff, diff_dst.dtype)
    found["diff_h_0"] = found["diff_h_0"].view(diff_dst.dtype)
    return gradients[0]._replace(**found)


def kept_by(saved: SavedRecurrence) -> list[Array]:
    """What a backward pass needs beside arguments and results of the forward one."""
    own = [it for each in saved.states for it in _own(each)]
    width = len(saved.stack.directions)
    return own + [each.src for each in saved.states[width::width]]


def restored(
    cell: str,
    x: Any,
    named: dict[str, Any],
    settings: Settings,
    first: dict[str, Any],
    kept: list[Array],
) -> SavedRecurrence:
    """What `forward` saved, with weights packed again; ``kept`` are y and those of `kept_by`."""
    stack, src, parameters = stack_of(cell, x, named, settings, bits=False)
    given = {name: states_of(stack, name, each, src) for name, each in first.items()}
    width = len(stack.directions)
    y, *others = kept
    sources = [src, *others[2 * stack.runs :]]
    results = [*sources[1:], y]
    packed, states = [], []
    for run in range(stack.runs):
        layer, way = divmod(run, width)
        primitive = _prepared(stack, stack.channels(run), stack.directions[way])
        weights = {name: each[run] for name, each in parameters.items()}
        packed.append(primitive.pack_weights(**weights))
        dst = np.ascontiguousarray(np.split(results[layer], width, axis=2)[way])
        own = others[2 * run : 2 * run + 2]
        begin = _of_run(given, run).values()
        kind: Any = LSTMSaved if cell == "lstm" else GRUSaved
        states.append(kind(sources[layer], *begin, *own, dst, None))
    return SavedRecurrence(stack, tuple(packed), tuple(states))


def _own(states: LSTMSaved | GRUSaved) -> tuple[Array, Array]:
    """What a layer in one direction alone has."""
    return states.gates, states.cells if isinstance(states, LSTMSaved) else states.hidden_n


def _required(cell: str, dy: Any, saved: Any) -> tuple[Stack, Array]:
    """The stack that was saved and the gradient of its y, checked."""
    origin = f"expected what {cell}(..., training=True) returned"
    if not isinstance(saved, SavedRecurrence):
        raise TypeError(f"saved is of type {type(saved).__name__}, {origin}")
    stack = saved.stack
    if stack.cell != cell:
        raise ValueError(f"saved is from {stack.cell}, {origin}")
    diff_dst = float_operand("dy", dy, stack.bits)
    if stack.dtype != type_of(diff_dst):
        raise TypeError(f"dy has dtype {diff_dst.dtype}, expected {stack.dtype} as x had")
    require_shape("dy", diff_dst, stack.y_shape, "that of y")
    return stack, diff_dst


@lru_cache(maxsize=_PREPARED)
def _primitive(
    cell: tuple[str, tuple[tuple[str, Any], ...]],
    shape: tuple[int, int, int],
    K: int,
    dtype: str,
    reverse: bool,
    bias: bool,
) -> Any:
    name, options = cell
    return _CELLS[name](shape, K, dtype=dtype, reverse=reverse, bias=bias, **dict(options))


def _prepared(stack: Stack, channels: int, reverse: bool) -> Any:
    shape = (stack.T, stack.N, channels)
    cell = (stack.cell, stack.options)
    return _primitive(cell, shape, stack.K, stack.dtype, reverse, stack.bias)


def _of_run(states: dict[str, Array | None], run: int) -> dict[str, Any]:
    return {name: None if each is None else each[run] for name, each in states.items()}


def _outer(stack: Stack, array: Array, dtype: np.dtype[Any]) -> Array:
    """(T, N, ...) in the order of the axes that the caller uses."""
    ordered = np.ascontiguousarray(array.swapaxes(0, 1)) if stack.batch_first else array
    return ordered.view(dtype)


def _sum(one: Array, other: Array) -> Array:
    if one.dtype == np.float32:
        return np.add(one, other)
    return to_bfloat16(np.add(widened(one), widened(other)))
