"""Compiled, arrays go into 8 bits and back as the interpreter has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlprim.graph import Builder, Graph, interpret
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
