"""Compiled, arrays go into 8 bits and back as the interpreter has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from byte_graphs import POOL, Bytes

from dlprim.graph import Builder, Graph, Value, interpret
from dlprim.graph.compiled import compile_graph

SHAPES = [((3, 5, 70), 1), ((3, 5, 7), 1), ((6, 9), -1), ((9, 4), 0), ((2, 3, 4, 5), 1)]


def graph_of(shape: tuple[int, ...], axis: int | None, dtype: str, way: str) -> Graph:
    b = Builder()
    random = np.random.default_rng(0)
    channels = () if axis is None else (shape[axis],)
    scale = random.uniform(0.01, 0.05, channels).astype(np.float32)
    limits = np.iinfo(dtype)
    zero = random.integers(limits.min // 2, limits.max // 2, channels).astype(dtype)
    x = b.input("x", shape, "float32" if way == "quantize" else dtype)
    inputs = [x, b.constant(scale), b.constant(zero)]
    how = {"axis": axis or 0, "dtype": dtype if way == "quantize" else "float32"}
    return b.graph(b.emit(way, inputs, **how))


def check(graph: Graph, x: Any, program: str) -> None:
    compiled = compile_graph(graph, 0)
    (result,), (expected,) = compiled.run([x]), interpret(graph, [x])
    np.testing.assert_array_equal(result, expected)
    assert program in compiled.explain()


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(("shape", "axis"), [*SHAPES, ((3, 50), None), ((1,), None)])
def test_floats_to_bytes_and_back(shape: tuple[int, ...], axis: int | None, dtype: str) -> None:
    x = 5 * np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    x.reshape(-1)[:1] = np.nan
    check(graph_of(shape, axis, dtype, "quantize"), x, f" quantize_{dtype}")
    limits = np.iinfo(dtype)
    q = np.random.default_rng(1).integers(limits.min, limits.max, shape, dtype, endpoint=True)
    check(graph_of(shape, axis, dtype, "dequantize"), q, f" dequantize_{dtype}")


def test_what_the_programs_do_not_take_is_computed_by_the_oracle() -> None:
    b = Builder()
    x, scale = b.input("x", (4,), "float32"), b.input("scale", (), "float32")
    graph = b.graph(b.emit("quantize", [x, scale, None], axis=0, dtype="uint8"))
    compiled = compile_graph(graph, 0)
    result = compiled.run([np.arange(4, dtype=np.float32), np.asarray(0.5, np.float32)])
    assert result[0].tolist() == [0, 2, 4, 6]
    assert "call" in compiled.explain()
    empty = graph_of((3, 0), None, "uint8", "quantize")
    assert compile_graph(empty).run([np.ones((3, 0), np.float32)])[0].shape == (3, 0)


def rows_with(b: Bytes, end: str) -> Value:
    y = b.product(b.reshape(b.rows(), (5, 1, 12)))
    if end == "float":
        return b.apply("add", y, b.floats(7))
    if end == "relu":
        return b.quantize(b.apply("relu", y), 0.05, 0)
    return b.quantize(y, 0.1, -3, "int8")


def sums(b: Bytes, *others: Value) -> Value:
    y = b.apply("add", b.images(), b.images("z", "int8", scale=0.07, zero=-3))
    for other in others:
        y = b.apply("multiply", y, other)
    return b.quantize(b.apply("relu", y), 0.1113)


NATIVE: dict[str, Callable[[Bytes], Value]] = {
    "sums": sums,
    "sums by channel": lambda b: sums(b, b.floats(4, 1, 1)),
    "as floats": lambda b: b.cast(b.input("x", (3, 5), "uint8"), "float32"),
    "maxima": lambda b: b.quantize(b.emit("pool", [b.images()], **POOL)[0]),
    "product": lambda b: rows_with(b, "float"),
    "product with relu": lambda b: rows_with(b, "relu"),
    "product in 8 bits": lambda b: rows_with(b, "bytes"),
    "product of int8": lambda b: b.product(b.rows(dtype="int8", zero=-9)),
}


@pytest.mark.parametrize("name", NATIVE)
def test_nodes_of_bytes_have_steps(name: str) -> None:
    b = Bytes()
    graph = b.graph([NATIVE[name](b)])
    compiled = compile_graph(graph)
    assert "call" not in compiled.explain()
    random = np.random.default_rng(3)
    arrays = []
    for value in graph.inputs:
        limits = np.iinfo(value.dtype)
        arrays.append(random.integers(limits.min, limits.max, value.shape, value.dtype.name))
    (result,), (expected,) = compiled.run(arrays), interpret(graph, arrays)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    if result.dtype == np.float32:
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-4)
    else:
        difference = np.abs(result.astype(int) - expected.astype(int))
        assert difference.max() <= 1
        assert (difference > 0).mean() < 0.02
