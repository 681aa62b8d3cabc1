"""Layers and directions of recurrent cells over the primitives, one layer after the other."""

from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dlprim.arguments.arrays import Array
from dlprim.arguments.floats import to_bfloat16, widened
from dlprim.functions.recurrent_arguments import Parameters, Stack
from dlprim.primitives.rnn import GRU, LSTM
from dlprim.primitives.rnn_operands import GRUSaved, LSTMSaved, PackedWeights

_CELLS = {"lstm": LSTM, "gru": GRU}
_PREPARED = 128  # shapes that are kept; a network has fewer

# By name, such as h_0, each (layers * directions, N, K).
States: TypeAlias = dict[str, Array | None]


class SavedRecurrence(NamedTuple):
    """What `lstm` and `gru` with training=True keep for their backward passes.

    The tuples have an entry per layer and direction, in PyTorch's order.
    """

    stack: Stack
    weights: tuple[PackedWeights, ...]
    states: tuple[LSTMSaved | GRUSaved, ...]


def forward(
    stack: Stack,
    src: Array,
    parameters: Parameters,
    states: States,
    lengths: Any,
    training: bool,
) -> tuple[Array, list[Array], SavedRecurrence | None]:
    """y, the last states (h_n and, of an LSTM, c_n), and what the backward pass needs."""
    dtype = src.dtype  # uint16 for bits of bfloat16, which primitives take, but do not return
    last: list[list[Array]] = []
    packed, saved = [], []
    while len(last) < stack.runs:
        layer = []
        for reverse in stack.directions:
            run = len(last)
            cell = _prepared(stack, stack.channels(run), reverse)
            weights = cell.pack_weights(**{name: each[run] for name, each in parameters.items()})
            results = cell.forward(
                src, weights, **_of_run(states, run), lengths=lengths, training=training
            )
            if training:
                *results, kept = results
                packed.append(weights)
                saved.append(kept)
            y, *ends = results
            layer.append(y)
            last.append(ends)
        src = layer[0] if len(layer) == 1 else np.concatenate(layer, axis=2)
    h_n, *c_n = (np.stack(ends) for ends in zip(*last, strict=True))
    kept_of_all = SavedRecurrence(stack, tuple(packed), tuple(saved)) if training else None
    return _outer(stack, src, dtype), [h_n.view(dtype), *c_n], kept_of_all


def backward(
    saved: SavedRecurrence, diff_dst: Array, states: States
) -> tuple[Array, dict[str, list[Any]]]:
    """The gradient of x, and all others by name, each with an entry per layer and direction."""
    stack = saved.stack
    width = len(stack.directions)
    diff = np.ascontiguousarray(diff_dst.swapaxes(0, 1)) if stack.batch_first else diff_dst
    gradients: list[Any] = []
    for first in reversed(range(0, stack.runs, width)):
        parts = [diff] if width == 1 else np.split(diff, width, axis=2)
        layer = []
        for run, reverse in enumerate(stack.directions, first):
            cell = _prepared(stack, stack.channels(run), reverse)
            part = np.ascontiguousarray(parts[run - first])
            layer.append(
                cell.backward(part, saved.states[run], saved.weights[run], **_of_run(states, run))
            )
        gradients = layer + gradients
        diff = layer[0].diff_src
        for other in layer[1:]:
            diff = _sum(diff, other.diff_src)
    names = [name for name in gradients[0]._fields if name != "diff_src"]
    lists = {name: [getattr(each, name) for each in gradients] for name in names}
    lists["diff_h_0"] = [each.view(diff_dst.dtype) for each in lists["diff_h_0"]]
    return _outer(stack, diff, diff_dst.dtype), lists


@lru_cache(maxsize=_PREPARED)
def _primitive(cell: str, *shape_and_how: Any) -> Any:
    return _CELLS[cell](*shape_and_how)


def _prepared(stack: Stack, channels: int, reverse: bool) -> Any:
    shape = (stack.T, stack.N, channels)
    return _primitive(stack.cell, shape, stack.K, stack.dtype, reverse, stack.bias)


def _of_run(states: States, run: int) -> States:
    return {name: None if each is None else each[run] for name, each in states.items()}


def _outer(stack: Stack, array: Array, dtype: np.dtype[Any]) -> Array:
    """(T, N, ...) in the order of the axes that the caller uses."""
    ordered = np.ascontiguousarray(array.swapaxes(0, 1)) if stack.batch_first else array
    return ordered.view(dtype)


def _sum(one: Array, other: Array) -> Array:
    if one.dtype == np.float32:
        return np.add(one, other)
    return to_bfloat16(np.add(widened(one), widened(other)))
