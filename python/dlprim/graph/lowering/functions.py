"""Calls of dlprim's own functions, where a node has no step yet but there is a function for it.

Each takes arrays and attributes as the operator's oracle does, and returns None for what it does
not compute, which then the oracle does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from dlprim.functions.conv.ordinary import conv3d
from dlprim.functions.conv.transposed import (
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from dlprim.functions.convolution import conv2d
from dlprim.functions.rows.group_norm import group_norm
from dlprim.graph.lowering.formulas import is_computed
from dlprim.graph.operators import OPERATORS
from dlprim.graph.operators.operator import Arrays, Attributes
from dlprim.primitives.rnn import GRU, LSTM


def _convolution(arrays: Arrays, attributes: Attributes) -> list[Any] | None:
    x, w, bias, residual = (*arrays, None, None)[:4]
    is_plain = residual is None and attributes.get("activation") is None
    function = {4: conv2d, 5: conv3d}.get(x.ndim)
    padding = attributes["padding"]
    is_even = all(front == back for front, back in padding)
    if function is None or not is_plain or not is_even or not x.size or x.dtype != w.dtype:
        return None
    return [
        function(
            x,
            w,
            bias,
            attributes["strides"],
            tuple(front for front, _ in padding),
            attributes["dilations"],
            attributes["groups"],
        )
    ]


def _transposed(arrays: Arrays, attributes: Attributes) -> list[Any] | None:
    x, w, bias = (*arrays, None)[:3]
    padding = attributes["padding"]
    function = {3: conv_transpose1d, 4: conv_transpose2d, 5: conv_transpose3d}.get(x.ndim)
    steps = zip(attributes["strides"], attributes["dilations"], strict=True)
    more = zip(attributes["output_padding"], steps, strict=True)
    is_even = all(front == back >= 0 for front, back in padding)
    is_usual = all(0 <= extra < max(pair) for extra, pair in more)
    if function is None or not is_even or not is_usual or not x.size or x.dtype != w.dtype:
        return None
    return [
        function(
            x,
            w,
            bias,
            attributes["strides"],
            tuple(front for front, _ in padding),
            attributes["output_padding"],
            attributes["groups"],
            attributes["dilations"],
        )
    ]


def _group_norm(arrays: Arrays, attributes: Attributes) -> list[Any] | None:
    x, weight, bias = arrays
    if not x.size or x.ndim < 3:
        return None
    return [group_norm(x, attributes["groups"], weight, bias, attributes["epsilon"])]


_LAYERS: dict[str, type[LSTM] | type[GRU]] = {"gru": GRU, "lstm": LSTM}


@lru_cache(maxsize=64)
def _layer(cell: str, x_shape: tuple[int, int, int], hidden: int, **how: Any) -> LSTM | GRU:
    return _LAYERS[cell](x_shape, hidden, **how)


def _recurrent_gradient(arrays: Arrays, attributes: Attributes) -> list[Any] | None:
    """Forward once more, keeping the gates, and backward."""
    x, w, r, bias_x, bias_h, h, c, lengths, diff, *lasts = arrays
    cell = attributes["cell"]
    if cell not in _LAYERS or not x.size:
        return None
    how = {"dtype": x.dtype.name, "reverse": attributes["reverse"]}
    layer = _layer(cell, x.shape, r.shape[1], **how)
    weights = layer.pack_weights(w, r, bias_x, bias_h)
    states = {"h_0": h, "c_0": c} if cell == "lstm" else {"h_0": h}
    trained = layer.forward(x, weights, **states, lengths=lengths, training=True)
    given = np.zeros(trained.y.shape, x.dtype) if diff is None else diff
    ends = dict(zip(("diff_h_n", "diff_c_n")[: len(states)], lasts, strict=False))
    found = layer.backward(given, trained.saved, weights, **ends)._asdict()
    names = ("src", "w_ih", "w_hh", "b_ih", "b_hh", "h_0", "c_0")[: 5 + len(states)]
    made = [found[f"diff_{name}"] for name in names]
    return [
        it if name == "c_0" else it.astype(x.dtype, copy=False)
        for name, it in zip(names, made, strict=True)
    ]


_FUNCTIONS: dict[str, Callable[[Arrays, Attributes], list[Any] | None]] = {
    "convolution": _convolution,
    "group_norm": _group_norm,
    "recurrent_gradient": _recurrent_gradient,
    "transposed_convolution": _transposed,
}


def computed(operator: str, arrays: Arrays, attributes: Attributes) -> list[Any]:
    """The results of an operator, by a function of dlprim or by the operator's oracle."""
    function = _FUNCTIONS.get(operator)
    floats = [np.asarray(it) for it in arrays if it is not None]
    if function is not None and is_computed(*(it.dtype for it in floats)):
        results = function(arrays, attributes)
        if results is not None:
            return results
    return OPERATORS[operator].compute(arrays, attributes)
