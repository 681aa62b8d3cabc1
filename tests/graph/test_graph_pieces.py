"""Chains of products that run for a piece of the rows at a time: what they give, and when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byte_graphs import Bytes
from threads_of_python import check_two_threads

import dlprim
from dlprim.graph import Builder, Graph, Value, interpret
from dlprim.graph.compiled import CompiledGraph, compile_graph
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.lowering.pieces import lower_pieces
from dlprim.graph.passes import PASSES, optimized
from dlprim.graph.passes import pieces as passes_pieces
from dlprim.graph.passes.pieces import rows_of, run_in_pieces
from networks import drawn, linear

UNTOUCHED = PASSES.index(run_in_pieces)  # passes; that one marks chains


def perceptron(rows: int, channels: tuple[int, ...]) -> Graph:
    b = Builder()
    y = b.input("x", (rows, channels[0]), "float32")
    for place, count in enumerate(channels[1:], 2):
        y = linear(b, y, count)
        if place < len(channels):
            y = b.apply("relu", y)
    return b.graph([y])


@pytest.fixture
def in_pieces_of_5(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it costs."""

    def rows_of_piece(chain: passes_pieces._Chain) -> int:
        return min(5, rows_of(chain.nodes[0].output))

    monkeypatch.setattr(passes_pieces._Chain, "rows_of_piece", rows_of_piece)


def is_in_pieces(compiled: CompiledGraph) -> bool:
    return ": pieces(" in compiled.explain()


def check(graph: Graph, compiled: CompiledGraph, tolerance: float = 1e-5) -> None:
    """Against the interpreter, and the same bits on any number of threads."""
    arrays = [drawn(*value.shape) for value in graph.inputs]
    with dlprim.threads(1):
        expected = compiled.run(arrays)
    for found, right in zip(expected, interpret(graph, arrays), strict=True):
        assert found.shape == right.shape
        assert found.dtype == right.dtype
        scale = float(np.abs(right).max(initial=1e-3))
        np.testing.assert_allclose(found / scale, right / scale, rtol=0, atol=tolerance)
    for count in (2, 3, 4):
        with dlprim.threads(count):
            for found, right in zip(compiled.run(arrays), expected, strict=True):
                np.testing.assert_array_equal(found, right)


@pytest.mark.usefixtures("in_pieces_of_5")
@pytest.mark.parametrize("layers", [1, 2, 3, 5])
@pytest.mark.parametrize("rows", [0, 1, 5, 13, 60])
def test_perceptrons_give_the_same_in_pieces(layers: int, rows: int) -> None:
    graph = perceptron(rows, (13, 37, 64, 3, 48, 16)[: layers + 1])
    compiled = compile_graph(graph)
    assert is_in_pieces(compiled) == (layers > 1 and rows > 0)
    check(graph, compiled)


@pytest.mark.usefixtures("in_pieces_of_5")
@pytest.mark.parametrize("layers", [2, 4])
def test_perceptrons_give_the_same_in_bfloat16(layers: int) -> None:
    graph = perceptron(23, (13, 37, 64, 3, 48)[: layers + 1])
    compiled = compile_graph(graph, dtype="bfloat16")
    assert is_in_pieces(compiled)
    check(graph, compiled, 0.05)


def residual_chain() -> Graph:
    """What a transformer has behind attention: sums, norms, a softmax, images of rows."""
    b = Builder()
    x = b.input("x", (3, 7, 32), "float32")
    skipped = b.input("skipped", (3, 7, 32), "float32")
    y = b.apply("gelu", linear(b, x, 64))
    y = b.apply("add", linear(b, y, 32), skipped)
    weights = [b.constant(drawn(32, seed=2)), b.constant(drawn(32, seed=3))]
    (y,) = b.emit("normalize", [y, *weights], axes=1, epsilon=1e-5, rms=False)
    y = b.reshape(linear(b, b.reshape(y, (21, 32)), 16), (3, 7, 16))
    (y,) = b.emit("softmax", [y], axis=2, log=False)
    return b.graph([b.apply("multiply", y, b.constant(drawn(16)))])


@pytest.mark.usefixtures("in_pieces_of_5")
def test_sums_norms_and_softmax_are_part_of_a_chain() -> None:
    graph = residual_chain()
    compiled = compile_graph(graph)
    explained = compiled.explain()
    assert explained.count(": pieces(") == 1
    inside = explained.split(": pieces(")[1]
    for step in ("linear", "layer_norm", "softmax"):
        assert step in inside
    assert compiled.peak_bytes == 0
    assert "4 pieces and a rest" in explained
    check(graph, compiled)


@pytest.mark.usefixtures("in_pieces_of_5")
def test_chains_of_8_bits_run_in_pieces() -> None:
    b = Bytes()
    y = b.dequantize(b.input("x", (23, 12), "uint8"))
    for _ in range(2):
        y = b.dequantize(b.quantize(b.apply("relu", b.product(y))))
    graph = b.graph([b.product(y)])
    compiled = compile_graph(graph)
    explained = compiled.explain()
    assert explained.count("quantized_matmul") == 3
    assert ": pieces(" in explained
    x = np.random.default_rng(0).integers(0, 256, (23, 12), np.uint8)
    (found,) = compiled.run([x])
    (whole,) = compile_graph(graph, UNTOUCHED).run([x])
    np.testing.assert_array_equal(found, whole)


def _read_twice(b: Builder, x: Value) -> list[Value]:
    y = b.apply("relu", linear(b, x, 32))
    return [linear(b, y, 8), y]


def _across_rows(b: Builder, x: Value) -> list[Value]:
    (y,) = b.emit("softmax", [linear(b, x, 32)], axis=0, log=False)
    return [linear(b, y, 8)]


def _transposed(b: Builder, x: Value) -> list[Value]:
    return [linear(b, b.transpose(linear(b, x, 32), (1, 0)), 8)]


def _row_of_numbers(b: Builder, x: Value) -> list[Value]:
    each = b.constant(drawn(x.shape[0], 1))
    return [linear(b, b.apply("multiply", linear(b, x, 32), each), 8)]


def _in_other_rows(b: Builder, x: Value) -> list[Value]:
    return [linear(b, b.reshape(linear(b, x, 32), (2 * x.shape[0], 16)), 8)]


def _computed_weights(b: Builder, x: Value) -> list[Value]:
    y = linear(b, x, 32)
    return [b.matmul(b.matmul(y, b.transpose(y, (1, 0))), y)]


@pytest.mark.usefixtures("in_pieces_of_5")
@pytest.mark.parametrize(
    "make",
    [_read_twice, _across_rows, _transposed, _row_of_numbers, _in_other_rows, _computed_weights],
)
def test_what_is_no_chain_of_rows_is_left_alone(make: Any) -> None:
    b = Builder()
    graph = b.graph(make(b, b.input("x", (22, 16), "float32")))
    compiled = compile_graph(graph)
    assert not is_in_pieces(compiled)
    check(graph, compiled)


def test_what_must_be_called_from_python_is_not_in_pieces(in_pieces_of_5: None) -> None:
    lowering = Lowering(optimized(perceptron(23, (13, 37, 16))), {"pieces": lower_pieces})
    lowering.run()
    assert "pieces" not in lowering.network.describe()
    assert lowering.network.describe().count(": call(") == 2
    x = drawn(23, 13)
    (expected,) = interpret(lowering.graph, [x])
    np.testing.assert_allclose(lowering.network.run([x])[0], expected, rtol=0, atol=1e-4)


def test_few_rows_and_small_networks_are_left_alone_and_explained() -> None:
    compiled = compile_graph(perceptron(32, (13, 512, 256, 128)))
    assert not is_in_pieces(compiled)
    assert "not in pieces of rows: matmul" in compiled.explain()
    assert "32 rows through 3 products would not be faster" in compiled.explain()


def test_pieces_take_less_memory_for_all_rows(in_pieces_of_5: None) -> None:
    graph = perceptron(600, (16, 64, 64, 8))
    assert compile_graph(graph, UNTOUCHED).peak_bytes > 0
    assert compile_graph(graph).peak_bytes == 0


@pytest.mark.usefixtures("in_pieces_of_5")
def test_two_threads_of_python_run_one_network_in_pieces() -> None:
    compiled = compile_graph(perceptron(203, (16, 64, 64, 8)))
    check_two_threads(compiled, ([drawn(203, 16, seed=0)], [drawn(203, 16, seed=1)]), 30)


@pytest.mark.usefixtures("in_pieces_of_5")
def test_the_pass_changes_no_value() -> None:
    graph = optimized(residual_chain(), UNTOUCHED)
    marked = run_in_pieces(graph)
    assert [node.outputs for node in marked.nodes] == [node.outputs for node in graph.nodes]
    assert {node.attributes["pieces"] for node in marked.nodes} == {(0, 5)}
