"""LSTM and GRU of PyTorch's modules, which TorchDynamo traces as one call each.

AOT autograd would take the call apart, step by step of a sequence where gradients are wanted. So it
is replaced by dlprim's operator before that, whose gradient is one operator, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from dlprim.torch.eager.recurrent import STATES, recur

_FLOATS = {torch.float32, torch.bfloat16}


def lstm(input: torch.Tensor, hx: Any, *how: Any) -> tuple[torch.Tensor, ...]:
    """`torch.lstm`."""
    return tuple(_recurred("lstm", input, hx, how) or torch.lstm(input, hx, *how))


def gru(input: torch.Tensor, hx: Any, *how: Any) -> tuple[torch.Tensor, ...]:
    """`torch.gru`."""
    found = _recurred("gru", input, hx, how)
    if found is None:
        return tuple(torch.gru(input, hx, *how))
    return tuple(it.to(hx.dtype) for it in found)  # which autocast leaves as it is


def _recurred(
    cell: str, input: torch.Tensor, hx: Any, how: Sequence[Any]
) -> tuple[torch.Tensor, ...] | None:
    """Results of our operator; None for packed sequences, projections and other types."""
    weights, has_biases, layers, dropout, training, both_ways, batch_first = how
    states = hx if isinstance(hx, tuple | list) else (hx,)
    width = 2 if both_ways else 1
    each = 4 if has_biases else 2
    is_listed = isinstance(weights, tuple | list) and len(weights) == layers * width * each
    if not is_listed or len(states) != len(STATES[cell]):
        return None
    if not _are_computed((input, *states, *weights)):
        return None
    x = input.transpose(0, 1) if batch_first else input
    drops = layers > 1 and training and dropout > 0
    once = 1 if drops else layers
    ends = []
    for first in range(0, layers, once):
        runs = slice(first * width, (first + once) * width)
        own = weights[runs.start * each : runs.stop * each]
        x = torch.nn.functional.dropout(x, dropout) if first else x
        x, *last = recur(cell, x, own, [it[runs] for it in states], (once, both_ways))
        ends.append(last)
    joined = [it[0] if len(it) == 1 else torch.cat(it) for it in zip(*ends, strict=True)]
    return (x.transpose(0, 1) if batch_first else x, *joined)


def _are_computed(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether they are of types that dlprim has, and of one type where autocast makes none."""
    dtypes = {it.dtype for it in tensors}
    if torch.is_autocast_enabled("cpu"):
        is_single = torch.get_autocast_dtype("cpu") is torch.bfloat16
    else:
        is_single = len(dtypes) == 1
    are_here = all(it.device.type == "cpu" and it.layout is torch.strided for it in tensors)
    return is_single and are_here and dtypes <= _FLOATS


_OURS: dict[Any, Callable[..., Any]] = {torch.lstm: lstm, torch.gru: gru}


def with_recurrences(traced: GraphModule) -> None:
    """Replaces the calls in a graph as TorchDynamo traces it."""
    found = [it for it in traced.graph.nodes if it.op == "call_function" and it.target in _OURS]
    for node in found:
        node.target = _OURS[node.target]
    if found:
        traced.recompile()
