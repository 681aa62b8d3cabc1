"""Gradients of norms that were taken elsewhere get the relu that stands in front of them."""

from __future__ import annotations

import numpy as np
import pytest

from dlprim.graph import Builder, Graph, Value, interpret
from dlprim.graph.compiled import compile_graph
from dlprim.graph.expressions import number, operand
from dlprim.graph.passes.layers import join_gates
from dlprim.graph.verify import verify
from networks import drawn

SHAPE = (2, 16, 4, 4)
_GATE = ("where", ("less_equal", operand(1), number(0.0)), number(0.0), operand(0))


class Made:
    """A graph in the making, of inputs alike."""

    def __init__(self) -> None:
        self.b, self.count = Builder(), 0

    def input(self, shape: tuple[int, ...] = SHAPE) -> Value:
        self.count += 1
        return self.b.input(f"x{self.count}", shape, "float32")

    def gate(self, diff: Value) -> Value:
        return self.b.map(_GATE, diff, self.input())

    def norm(self, diff: Value, x: Value) -> list[Value]:
        """Gradients by x, weight and bias."""
        statistics = [self.input(SHAPE[1:2]), self.b.apply("exp", self.input(SHAPE[1:2]))]
        inputs = [diff, x, *statistics, self.input(SHAPE[1:2]), None, None]
        return self.b.emit("batch_norm_gradient", inputs, epsilon=1e-3, residual=False)


def gated(graph: Graph) -> list[tuple[bool, bool]]:
    """Of the gradients whether they have a relu, and whether they give what it lets through."""
    joined = join_gates(graph)
    verify(joined)
    arrays = [drawn(*it.shape, seed=place) for place, it in enumerate(graph.inputs)]
    expected = interpret(graph, arrays)
    for found in (interpret(joined, arrays), compile_graph(graph).run(arrays)):
        for one, other in zip(expected, found, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-3)
    norms = [it for it in joined.nodes if it.operator == "batch_norm_gradient"]
    return [(it.inputs[5] is not None, it.attributes["residual"]) for it in norms]


def test_a_relu_that_nothing_else_reads() -> None:
    it = Made()
    assert gated(it.b.graph(it.norm(it.gate(it.input()), it.input()))) == [(True, False)]


@pytest.mark.parametrize("way", ["result", "map", "norm"])
def test_what_the_relu_lets_through_is_read_by_others(way: str) -> None:
    it = Made()
    passed = it.gate(it.input())
    outputs = it.norm(passed, it.input())
    if way == "result":
        outputs = [passed, *outputs]
    elif way == "map":
        outputs = [it.b.apply("add", outputs[0], passed), *outputs]
    else:
        outputs = [*outputs, *it.norm(passed, it.input())]
    expected = [(True, True)] + [(False, False)] * (way == "norm")
    assert gated(it.b.graph(outputs)) == expected


def test_what_passes_is_what_was_normalised() -> None:
    it = Made()
    passed = it.gate(it.input())
    assert gated(it.b.graph(it.norm(passed, passed))) == [(False, False)]


def test_what_is_normalised_follows_from_what_passes() -> None:
    it = Made()
    passed = it.gate(it.input())
    outputs = it.norm(passed, it.b.apply("tanh", passed))
    assert gated(it.b.graph(outputs)) == [(False, False)]


def test_two_gradients_do_not_wait_for_each_other() -> None:
    """Each normalised what follows from what passes the other's relu: one stays as it is."""
    it = Made()
    passed = [it.gate(it.input()), it.gate(it.input())]
    sources = [it.b.apply("tanh", value) for value in passed]
    outputs = [*it.norm(passed[0], sources[1]), *it.norm(passed[1], sources[0])]
    assert sorted(gated(it.b.graph(outputs))) == [(False, False), (True, True)]
