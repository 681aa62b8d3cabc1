"""Optimiser steps in networks: what dlprim.optim gives, bit for bit, and formulas in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dlprim import optim
from dlprim.graph import Builder, Graph, interpret
from dlprim.graph.compiled import compile_graph
from dlprim.graph.verify import verify
from networks import drawn

Array = np.ndarray[Any, Any]

OPTIMIZERS: dict[str, Callable[[list[Array]], Any]] = {
    "sgd": lambda p: optim.SGD(p, 0.1),
    "sgd with momentum": lambda p: optim.SGD(p, 0.1, 0.9, weight_decay=0.01),
    "nesterov": lambda p: optim.SGD(p, 0.1, 0.9, nesterov=True),
    "adam": lambda p: optim.Adam(p, 0.01),
    "adam with a penalty": lambda p: optim.Adam(p, 0.01, weight_decay=0.1),
    "adamw": lambda p: optim.AdamW(p, 0.01, (0.8, 0.95), weight_decay=0.1),
    "lamb": lambda p: optim.LAMB(p, 0.01, weight_decay=0.1),
    "rmsprop": lambda p: optim.RMSprop(p, 0.01),
    "rmsprop with all": lambda p: optim.RMSprop(
        p, 0.01, momentum=0.5, centered=True, weight_decay=0.1
    ),
}
SHAPES = [(3,), (40, 50), (), (20000,), (0, 4)]


def graph_of(update: Any) -> Graph:
    """Gradients, and behind them settings, counts, parameters and their states, all changed."""
    b = Builder()
    gradients = [b.input("g", row[0].shape, "float32") for row in update.rows]
    ((rule, numbers),) = zip(update.rules, update.settings, strict=True)
    settings = b.input("settings", (len(numbers),), "float64")
    counts = None if update.counts is None else b.input("counts", update.counts.shape, "int64")
    operands, states = [settings, counts, None], []
    for row, gradient in zip(update.rows, gradients, strict=True):
        own = [None if it is None else b.input("s", it.shape, it.dtype) for it in row]
        operands += [own[0], gradient, *own[1:]]
        states += [it for it in own if it is not None]
    made = b.emit("update", operands, rule=rule, places=tuple(range(len(gradients))))
    return b.graph([], dict(zip(states, made, strict=True)))


def arrays_of(update: Any, gradients: list[Array]) -> list[Array]:
    counts = [] if update.counts is None else [update.counts]
    rows = [it for row in update.rows for it in row if it is not None]
    return [*gradients, np.array(update.settings[0]), *counts, *rows]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_update_gives_the_bits_of_the_optimizer(name: str) -> None:
    parameters = [drawn(*shape) for shape in SHAPES]
    own = [it.copy() for it in parameters]
    wide = [it.copy() for it in parameters]
    by_hand, in_network, formula = (OPTIMIZERS[name](it) for it in (parameters, own, wide))
    graph = graph_of(in_network.update())
    verify(graph)
    compiled = compile_graph(graph)
    # Where a penalty takes the gradient away, rounding decides which way Adam goes.
    decided = [np.ones(shape, bool) for shape in SHAPES]
    for step in range(3):
        gradients = [drawn(*shape, seed=step + 1) for shape in SHAPES]
        for it, w, g in zip(decided, parameters, gradients, strict=True):
            it &= np.abs(g + 0.1 * w) > 1e-3
        if step == 2:
            for it in (by_hand, in_network, formula):
                it.lr = 0.003
        by_hand.step(gradients)
        compiled.run(arrays_of(in_network.update(), gradients))
        interpret(graph, arrays_of(formula.update(), gradients))
        for it in (in_network, formula):  # whose counters this graph does not change
            if hasattr(it, "steps"):
                it.steps = by_hand.steps
        for one, other, right, it in zip(parameters, own, wide, decided, strict=True):
            np.testing.assert_array_equal(other, one)
            np.testing.assert_allclose(other[it], right[it], rtol=1e-5, atol=1e-6)
        state, other, right = (it.state_dict() for it in (by_hand, in_network, formula))
        for key, one in state.items():
            np.testing.assert_array_equal(other[key], one)
            if isinstance(one, np.ndarray):
                it = decided[int(key.split(".")[1])]
                np.testing.assert_allclose(other[key][it], right[key][it], rtol=1e-5, atol=1e-6)


def test_operands_of_an_update_are_checked() -> None:
    b = Builder()
    w, g = b.input("w", (3,), "float32"), b.input("g", (4,), "float32")
    settings, counts = b.input("settings", (3,), "float64"), b.input("counts", (1,), "int64")
    with pytest.raises(ValueError, match="an operand is g"):
        b.emit("update", [settings, None, None, w, g, *[None] * 4], rule="sgd", places=(0,))
    with pytest.raises(ValueError, match="settings"):
        b.emit("update", [settings, counts, None, w, w, w, w, None, None], rule="adam", places=(0,))
    five = b.input("settings", (5,), "float64")
    with pytest.raises(ValueError, match="counts"):
        b.emit("update", [five, counts, None, w, w, w, w, None, None], rule="adam", places=(1,))
    with pytest.raises(ValueError, match="limit"):
        b.emit("clip", [w, w])


def test_what_is_no_state_is_updated_in_a_copy() -> None:
    b = Builder()
    w, g = b.input("w", (3,), "float32"), b.input("g", (3,), "float32")
    settings = b.input("settings", (3,), "float64")
    (made,) = b.emit("update", [settings, None, None, w, g, *[None] * 4], rule="sgd", places=(0,))
    graph = b.graph([made, w])
    arrays = [drawn(3), drawn(3, seed=1), np.array([0.5, 0, 0])]
    found, before = compile_graph(graph).run(arrays)
    np.testing.assert_array_equal(before, drawn(3))
    np.testing.assert_allclose(found, arrays[0] - 0.5 * arrays[1], rtol=1e-6)
