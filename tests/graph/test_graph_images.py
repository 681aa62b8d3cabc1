"""Chains of steps on images that run for a few images at a time: what they give, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from byte_graphs import Bytes
from threads_of_python import check_two_threads

import dlprim
from dlprim.graph import Builder, Graph, Node, Value, interpret
from dlprim.graph.compiled import CompiledGraph, compile_graph
from dlprim.graph.lowering.images import lower_images
from dlprim.graph.lowering.lowering import Lowering
from dlprim.graph.passes import PASSES, images, optimized
from dlprim.graph.passes.images import run_images_in_pieces
from networks import batch_norm, convolution, drawn, linear, pool

UNTOUCHED = PASSES.index(run_images_in_pieces)  # passes; that one marks chains
SHAPE = (7, 3, 13, 11)


def longest(graph: Graph, chain: list[Node], ends: list[bool]) -> tuple[int, int]:
    """All of a chain that can be, three images at a time, whatever it costs."""
    count = max((place + 1 for place, is_end in enumerate(ends) if is_end), default=0)
    return (count, min(3, chain[0].output.shape[0])) if count > 1 else (0, 0)


@pytest.fixture
def in_pieces_of_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "images_of_pieces", longest)


def pieces_in(compiled: CompiledGraph) -> int:
    return compiled.explain().count(": pieces(")


def check(graph: Graph, tolerance: float = 1e-5) -> CompiledGraph:
    """Against the interpreter, the same bits on any number of threads, and as the whole batch."""
    compiled = compile_graph(graph)
    arrays = [drawn(*value.shape) for value in graph.inputs]
    with dlprim.threads(1):
        expected = compiled.run(arrays)
    whole = compile_graph(graph, UNTOUCHED).run(arrays)
    for others in (interpret(graph, arrays), whole):
        for found, right in zip(expected, others, strict=True):
            assert found.shape == right.shape
            scale = float(np.abs(right).max(initial=1e-3))
            np.testing.assert_allclose(found / scale, right / scale, rtol=0, atol=tolerance)
    for count in (2, 4):
        with dlprim.threads(count):
            for found, right in zip(compiled.run(arrays), expected, strict=True):
                np.testing.assert_array_equal(found, right)
    return compiled


def _plain(b: Builder, x: Value) -> list[Value]:
    return [convolution(b, b.apply("relu", convolution(b, x, 20, 3, 2)), 8, 1)]


def _residual(b: Builder, x: Value) -> list[Value]:
    y = b.apply("relu", batch_norm(b, convolution(b, x, 20, 7, 2)))
    y = pool(b, y, "max", 3)
    z = b.apply("relu", convolution(b, y, 8, 1))
    return [b.apply("relu", b.apply("add", convolution(b, z, 20, 3), y))]


def _depthwise(b: Builder, x: Value) -> list[Value]:
    y = convolution(b, convolution(b, x, 24, 1), 24, 3, groups=24)
    return [convolution(b, b.apply("hardswish", y), 40, 3, groups=4)]


def _behind_rows(b: Builder, x: Value) -> list[Value]:
    y = b.apply("sigmoid", pool(b, convolution(b, x, 16, 3), "average", 2))
    return [linear(b, b.reduce("mean", convolution(b, y, 16, 3), (2, 3)), 5)]


def _gated(b: Builder, x: Value) -> list[Value]:
    """A sum over pixels ends one chain, and another one begins in blocks behind it."""
    y = convolution(b, convolution(b, x, 20, 3), 20, 3)
    gate = b.apply("sigmoid", b.reduce("mean", y, (2, 3), keepdims=True))
    z = b.apply("multiply", y, gate)
    return [convolution(b, b.apply("relu", convolution(b, z, 20, 3)), 20, 1)]


@pytest.mark.usefixtures("in_pieces_of_3")
@pytest.mark.parametrize("count", [1, 3, 7, 8])
@pytest.mark.parametrize(
    ("make", "chains"),
    [(_plain, 1), (_residual, 1), (_depthwise, 1), (_behind_rows, 1), (_gated, 2)],
)
def test_networks_give_the_same_in_pieces(
    make: Callable[[Builder, Value], list[Value]], chains: int, count: int
) -> None:
    b = Builder()
    graph = b.graph(make(b, b.input("x", (count, *SHAPE[1:]), "float32")))
    assert pieces_in(check(graph)) == chains


@pytest.mark.usefixtures("in_pieces_of_3")
def test_networks_give_the_same_in_bfloat16() -> None:
    b = Builder()
    graph = b.graph(_residual(b, b.input("x", SHAPE, "float32")))
    compiled = compile_graph(graph, dtype="bfloat16")
    assert pieces_in(compiled) == 1
    x = drawn(*SHAPE)
    (expected,) = interpret(graph, [x])
    (found,) = compiled.run([x])
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.03 * np.abs(expected).max())


@pytest.mark.usefixtures("in_pieces_of_3")
@pytest.mark.parametrize("ends", ["floats", "bytes"])
def test_networks_of_8_bits_run_in_pieces(ends: str) -> None:
    b = Bytes()
    y = b.dequantize(b.input("x", (7, 4, 6, 6), "uint8"))
    for _ in range(3):
        y = b.dequantize(b.quantize(b.apply("relu", b.convolution(y))))
    graph = b.graph([y if ends == "floats" else b.quantize(b.convolution(y))])
    compiled = compile_graph(graph)
    assert compiled.explain().count("quantized_convolution") >= 3
    assert pieces_in(compiled) == 1
    x = np.random.default_rng(0).integers(0, 256, (7, 4, 6, 6), np.uint8)
    (found,) = compiled.run([x])
    (whole,) = compile_graph(graph, UNTOUCHED).run([x])
    np.testing.assert_array_equal(found, whole)


@pytest.mark.usefixtures("in_pieces_of_3")
@pytest.mark.parametrize("place", ["residual", "x"])
def test_a_constant_with_all_images_is_no_part_of_a_piece(place: str) -> None:
    b = Bytes()
    x = b.dequantize(b.input("x", (7, 8, 6, 6), "uint8"))
    held = b.generator.integers(0, 255, (7, 8, 6, 6), dtype=np.uint8)
    known = b.dequantize(b.constant(held, "known"))
    if place == "residual":
        y = b.apply("add", b.convolution(x), known)
    else:
        y = b.apply("add", b.convolution(known), x)
    for _ in range(2):
        y = b.convolution(b.dequantize(b.quantize(y)))
    graph = b.graph([b.quantize(y)])
    arrays = [np.random.default_rng(0).integers(0, 256, (7, 8, 6, 6), np.uint8)]
    (found,), (whole,) = (compile_graph(graph, it).run(arrays) for it in (None, UNTOUCHED))
    np.testing.assert_array_equal(found, whole)


def _two_inputs(b: Builder, x: Value) -> list[Value]:
    other = b.input("other", x.shape, "float32")
    return [convolution(b, b.apply("add", x, other), 8, 3)]


def _read_twice(b: Builder, x: Value) -> list[Value]:
    y = convolution(b, x, 8, 3)
    return [convolution(b, y, 8, 1), y]


def _across_images(b: Builder, x: Value) -> list[Value]:
    y = b.reduce("max", convolution(b, x, 8, 3), (0,), keepdims=True)
    return [convolution(b, y, 8, 1)]


def _number_of_each_image(b: Builder, x: Value) -> list[Value]:
    each = b.constant(drawn(x.shape[0], 1, 1, 1))
    return [convolution(b, b.apply("multiply", convolution(b, x, 8, 3), each), 8, 1)]


def _computed_filters(b: Builder, x: Value) -> list[Value]:
    w = b.input("w", (8, x.shape[1], 1, 1), "float32")
    none = ((0, 0), (0, 0))
    y = b.emit("convolution", [x, w], groups=1, strides=(1, 1), dilations=(1, 1), padding=none)
    return [b.apply("relu", y[0])]


@pytest.mark.usefixtures("in_pieces_of_3")
@pytest.mark.parametrize(
    "make", [_two_inputs, _read_twice, _across_images, _number_of_each_image, _computed_filters]
)
def test_what_is_no_chain_of_images_is_left_alone(make: Any) -> None:
    b = Builder()
    graph = b.graph(make(b, b.input("x", SHAPE, "float32")))
    assert pieces_in(check(graph)) == 0


def test_the_next_chain_begins_behind_what_is_read_far_away(in_pieces_of_3: None) -> None:
    b = Builder()
    y = convolution(b, convolution(b, b.input("x", SHAPE, "float32"), 8, 3), 8, 1)
    z = convolution(b, convolution(b, y, 8, 3), 8, 1)
    graph = b.graph([b.apply("add", b.reduce("max", z, (0,), keepdims=True), y)])
    assert pieces_in(check(graph)) == 2  # y is read behind the others


def test_what_must_be_called_from_python_is_not_in_pieces(in_pieces_of_3: None) -> None:
    b = Builder()
    graph = b.graph(_plain(b, b.input("x", SHAPE, "float32")))
    lowering = Lowering(optimized(graph), {"images": lower_images})
    lowering.run()
    assert "pieces" not in lowering.network.describe()
    x = drawn(*SHAPE)
    (expected,) = interpret(graph, [x])
    np.testing.assert_allclose(lowering.network.run([x])[0], expected, rtol=0, atol=1e-4)


@pytest.mark.usefixtures("in_pieces_of_3")
def test_two_threads_of_python_run_one_network_in_pieces() -> None:
    b = Builder()
    compiled = compile_graph(b.graph(_residual(b, b.input("x", SHAPE, "float32"))))
    check_two_threads(compiled, ([drawn(*SHAPE, seed=0)], [drawn(*SHAPE, seed=1)]), 30)


def _wide(count: int) -> Graph:
    b = Builder()
    y = b.input("x", (count, 3, 112, 112), "float32")
    for k in (64, 64, 64):
        y = convolution(b, y, k, 1)
    return b.graph([b.reduce("mean", y, (2, 3))])


def test_large_batches_run_in_pieces_and_single_images_do_not() -> None:
    count = 4096  # 13 GB, beyond any cache; nothing of it is touched
    large = compile_graph(_wide(count))
    assert "pieces of 1 image " in large.explain()
    assert large.peak_bytes < compile_graph(_wide(count), UNTOUCHED).peak_bytes
    assert pieces_in(compile_graph(_wide(1))) == 0


@pytest.mark.usefixtures("in_pieces_of_3")
def test_the_pass_changes_no_value() -> None:
    b = Builder()
    graph = optimized(b.graph(_residual(b, b.input("x", SHAPE, "float32"))), UNTOUCHED)
    marked = run_images_in_pieces(graph)
    assert [node.outputs for node in marked.nodes] == [node.outputs for node in graph.nodes]
    assert {node.attributes["images"] for node in marked.nodes} == {(0, 3)}
