"""Recurrent layers with their gradients in one network: gates go from forward to backward."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import dlprim
import rnn_reference as reference
from dlprim.graph import Builder, Graph, Value, gradient, interpret
from dlprim.graph.compiled import CompiledGraph, compile_graph
from dlprim.graph.graph import sorted_nodes
from rnn_cases import Operands, Rnn, doubles, drawn_lengths
from rnn_checker import assert_close, tolerance

Arrays = list[Any]
CELLS = ("lstm", "gru", "rnn")
cells = pytest.mark.parametrize("cell", CELLS)


class Layer:
    """One layer with all that it may be given, its gradients by everything, and both in float64."""

    def __init__(self, rnn: Rnn, dtype: str, with_lengths: bool) -> None:
        self.t = t = Operands(rnn, dtype)
        self.rnn, self.dtype = rnn, dtype
        self.lengths = drawn_lengths(rnn, t.random) if with_lengths else None
        given = [t.x, t.w_ih, t.w_hh, t.b_ih, t.b_hh, t.h_0]
        ends = [t.diff_y, t.diff_h_n]
        if rnn.cell == "lstm":
            given, ends = [*given, t.c_0], [*ends, t.diff_c_n]
        b = Builder()
        values = [b.input(f"x{place}", it.shape, it.dtype) for place, it in enumerate(given)]
        rest: list[Value | None] = [*values, None, None][:7]
        if self.lengths is not None:
            rest.append(b.input("lengths", self.lengths.shape, np.int64))
        made = b.emit("recurrent", rest, cell=rnn.cell, reverse=rnn.reverse)
        self.graph = b.graph(made)
        self.joint = gradient(self.graph, made, values)
        self.given: Arrays = [*given, *([] if self.lengths is None else [self.lengths])]
        self.cotangents: Arrays = ends

    def expected(self) -> Arrays:
        t, rnn = self.t, self.rnn
        result = reference.forward(
            rnn.cell, doubles(t.x), t.weights, t.start, self.lengths, rnn.reverse
        )
        found = reference.backward(rnn.cell, t.weights, result, doubles(t.diff_y), t.diff_end)
        by_states = [found.diff_h_0, found.diff_c_0][: 1 + (rnn.cell == "lstm")]
        by = [found.diff_src, *found[3:], *by_states]
        return [*[result.y, result.h_n, result.c_n][: len(self.cotangents)], *by]

    def check(self, found: Sequence[Any]) -> None:
        limit = tolerance(self.rnn, self.dtype)
        for array, right in zip(found, self.expected(), strict=True):
            assert_close(array, right, limit)


def _in_two_parts(layer: Layer) -> Arrays:
    made, inputs = len(layer.graph.outputs), len(layer.given)
    network = compile_graph(layer.joint, pause=(inputs, made)).network
    run, first = network.begin_if_exact(tuple(layer.given))
    kept = [np.copy(it) for it in first]
    for array in first:
        array[...] = 3  # whoever called has it, and may write to it
    return [*kept, *run.resume(layer.cotangents)]


@cells
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("with_lengths", [False, True])
def test_gradients_in_one_network_and_in_two_parts(
    cell: str, dtype: str, reverse: bool, with_lengths: bool
) -> None:
    layer = Layer(Rnn(cell, 7, 5, 20, 33, reverse), dtype, with_lengths)
    network = compile_graph(layer.joint)
    assert _runs(network) == (1, 1)
    whole = network.run([*layer.given, *layer.cotangents])
    layer.check(whole)
    for one, other in zip(whole, _in_two_parts(layer), strict=True):
        np.testing.assert_array_equal(one, other)


def _runs(network: CompiledGraph) -> tuple[int, int]:
    """How often layers run forward and backward; none in Python."""
    text = network.explain()
    assert ": call(" not in text
    return len(re.findall(r": rnn\(", text)), text.count(": rnn_backward(")


@cells
def test_the_interpreter_keeps_the_same(cell: str) -> None:
    for reverse in (False, True):
        layer = Layer(Rnn(cell, 6, 4, 9, 11, reverse), "float32", True)
        layer.check(interpret(layer.joint, [*layer.given, *layer.cotangents]))


@cells
def test_results_are_the_same_bits_for_any_number_of_threads(cell: str) -> None:
    layer = Layer(Rnn(cell, 5, 70, 40, 150), "float32", True)
    network, arrays = compile_graph(layer.joint), [*layer.given, *layer.cotangents]
    with dlprim.threads(1):
        expected = network.run(arrays)
    for count in (2, 3, 8):
        with dlprim.threads(count):
            for one, other in zip(network.run(arrays), expected, strict=True):
                np.testing.assert_array_equal(one, other)


@cells
def test_a_network_of_float32_in_bfloat16(cell: str) -> None:
    layer = Layer(Rnn(cell, 6, 16, 24, 40), "float32", True)
    network = compile_graph(layer.joint, dtype="bfloat16")
    assert _runs(network) == (1, 1)
    found = network.run([*layer.given, *layer.cotangents])
    for array, right in zip(found, layer.expected(), strict=True):
        assert array.dtype == np.float32
        assert_close(array, right, 3 * tolerance(layer.rnn, "bfloat16"))


def test_without_a_gradient_nothing_is_kept() -> None:
    layer = Layer(Rnn("lstm", 6, 4, 9, 11), "float32", False)
    joint = layer.joint
    outputs = joint.outputs[: len(layer.graph.outputs)]
    graph = Graph(joint.inputs, outputs, sorted_nodes(outputs, joint.nodes), joint.constants)
    for it in (layer.graph, graph):
        (node,) = compile_graph(it).graph.nodes
        assert "training" not in node.attributes


@cells
def test_gradients_of_the_last_state_alone(cell: str) -> None:
    """Those by y, which nobody has, are zeros."""
    layer = Layer(Rnn(cell, 6, 4, 9, 11), "float32", True)
    graph, inputs = layer.graph, len(layer.graph.inputs)
    joint = gradient(graph, graph.outputs[1:2], layer.graph.inputs[: 6 + (cell == "lstm")])
    layer.t.diff_y[...] = 0
    layer.t.diff_c_n[...] = 0
    network = compile_graph(joint)
    assert _runs(network) == (1, 1)
    layer.check(network.run([*layer.given, layer.cotangents[1]]))
    assert len(joint.inputs) == inputs + 1


def _twice(b: Builder, x: Value, weights: Sequence[Value]) -> Value:
    """One layer behind itself."""
    for _ in range(2):
        x = b.emit("recurrent", [x, *weights], cell="gru", reverse=False)[0]
    return x


def test_a_layer_that_runs_twice_is_packed_once() -> None:
    t = Operands(Rnn("gru", 5, 3, 12, 12))
    b = Builder()
    x, *weights = (
        b.input(f"x{n}", it.shape, it.dtype) for n, it in enumerate((t.x, *t.parameters))
    )
    y = _twice(b, x, weights)
    joint = gradient(b.graph([y]), [y], [x, *weights])
    network, arrays = compile_graph(joint), [t.x, *t.parameters, t.diff_y]
    assert _runs(network) == (2, 2)
    assert network.explain().count(": rnn_transpose(") == 1
    for one, other in zip(network.run(arrays), interpret(joint, arrays), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-4)


@cells
@pytest.mark.parametrize("known", [(1, 2, 3, 4), (0, 1, 2, 3, 4, 5, 6)])
def test_weights_that_are_constants(cell: str, known: tuple[int, ...]) -> None:
    """Also where all that a layer reads is, so that it runs as the network is compiled."""
    layer = Layer(Rnn(cell, 6, 4, 9, 11, reverse=True), "float32", True)
    graph = layer.graph
    constants = {graph.inputs[at]: layer.given[at] for at in known if at < 6 + (cell == "lstm")}
    if 0 in known:
        constants[graph.inputs[-1]] = layer.given[-1]
    inputs = tuple(it for it in graph.inputs if it not in constants)
    fixed = Graph(inputs, graph.outputs, graph.nodes, constants)
    joint = gradient(fixed, graph.outputs, graph.inputs[: 6 + (cell == "lstm")])
    given = dict(zip(graph.inputs, layer.given, strict=True))
    network = compile_graph(joint)
    assert _runs(network)[1] == 1
    layer.check(network.run([*(given[it] for it in inputs), *layer.cotangents]))


@cells
def test_float16_and_shapes_of_zero(cell: str) -> None:
    b = Builder()
    rows = reference.GATES[cell] * 7
    shapes = [(4, 3, 5), (rows, 5), (rows, 7)]
    values = [b.input(f"x{n}", it, "float16") for n, it in enumerate(shapes)]
    made = b.emit("recurrent", [*values, None, None], cell=cell, reverse=False)
    joint = gradient(b.graph(made[:1]), made[:1], values)
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(it.shape).astype(np.float16) / 4 for it in joint.inputs]
    network = compile_graph(joint)
    assert _runs(network) == (1, 1)
    for one, other in zip(network.run(arrays), interpret(joint, arrays), strict=True):
        assert one.dtype == np.float16
        np.testing.assert_allclose(doubles_of(one), doubles_of(other), rtol=0.02, atol=0.01)
    for shape in ((0, 3), (4, 0)):
        layer = Layer(Rnn(cell, *shape, 5, 7), "float32", False)
        layer.check(compile_graph(layer.joint).run([*layer.given, *layer.cotangents]))


def doubles_of(array: Any) -> Any:
    return np.asarray(array, np.float64)


def test_lengths_are_refused_by_name() -> None:
    layer = Layer(Rnn("lstm", 6, 2, 9, 11), "float32", True)
    layer.given[-1] = np.array([7, 1])
    with pytest.raises(ValueError, match=r"lengths\[0\] is 7, expected an integer from 0 to T = 6"):
        compile_graph(layer.joint).run([*layer.given, *layer.cotangents])
