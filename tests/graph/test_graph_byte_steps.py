"""Compiled, arrays go into 8 bits and back as the interpreter has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from byte_cases import FIRES, rounded
from byte_graphs import Bytes

from dlprim.graph import Builder, Graph, Value, interpret
from dlprim.graph.compiled import compile_graph
from dlprim.graph.passes import optimized

pytestmark = pytest.mark.every_level

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


@pytest.mark.parametrize("scale", [1e-45, 1e-39, 1e-38, 1e-20, 1.0, 1e20, 8e37, 3e38])
def test_scales_to_the_ends_of_float32(scale: float) -> None:
    factor = np.float32(scale)
    b = Builder()
    x = b.input("x", (211,), "float32")
    inputs = [x, b.constant(factor), b.constant(np.array(3, np.int8))]
    graph = b.graph(b.emit("quantize", inputs, axis=0, dtype="int8"))
    with np.errstate(all="ignore"):
        steps = np.arange(-300, 302.5, 3.5, dtype=np.float32) * factor
        some = np.array([0, -0.0, np.nan, np.inf, -np.inf, 1.5, -1e-38], np.float32)
        numbers = np.resize(np.concatenate([some, some * factor, steps]), 211)
    check(graph, numbers, " quantize_int8")


@pytest.mark.parametrize("way", ["quantize", "dequantize"])
@pytest.mark.parametrize(("shape", "axis"), [*SHAPES, ((3, 300), None)])
def test_scales_that_a_run_computes(shape: tuple[int, ...], axis: int | None, way: str) -> None:
    b, random = Builder(), np.random.default_rng(3)
    channels = () if axis is None else (shape[axis],)
    types = ("float32", "uint8") if way == "quantize" else ("uint8", "float32")
    x, scale = b.input("x", shape, types[0]), b.input("scale", channels, "float32")
    zero = b.input("zero", channels, "uint8")
    graph = b.graph(b.emit(way, [x, scale, zero], axis=axis or 0, dtype=types[1]))
    numbers = random.integers(0, 256, shape)
    arrays = [
        (numbers / 50 - 3).astype(types[0]) if way == "quantize" else numbers.astype(types[0]),
        random.uniform(0.01, 0.05, channels).astype(np.float32),
        np.asarray(random.integers(0, 256, channels), np.uint8),
    ]
    compiled = compile_graph(graph, 0)
    np.testing.assert_array_equal(compiled.run(arrays)[0], interpret(graph, arrays)[0])
    assert "formula" in compiled.explain()


@pytest.mark.parametrize("dtypes", [("uint8", "uint8"), ("int8", "uint8"), ("uint8", "int8")])
@pytest.mark.parametrize("size", [1, 7, 300, 20000])
def test_what_bytes_become_is_a_table(dtypes: tuple[str, str], size: int) -> None:
    b = Builder()
    x = b.input("x", (2, size), dtypes[0])
    floats = b.emit("dequantize", [x, b.constant(np.float32(0.05))], axis=0, dtype="float32")[0]
    bounded = b.apply("tanh", b.transpose(floats, (1, 0)))
    scale, zero = b.constant(np.float32(1 / 127)), b.constant(np.asarray(3, dtypes[1]))
    graph = b.graph(b.emit("quantize", [bounded, scale, zero], axis=0, dtype=dtypes[1]))
    whole = np.iinfo(dtypes[0])
    q = np.random.default_rng(4).integers(whole.min, whole.max, (2, size), dtypes[0], endpoint=True)
    compiled = compile_graph(graph)
    right = np.tanh(q.T * np.float64(np.float32(0.05))) / np.float64(np.float32(1 / 127))
    limits = np.iinfo(dtypes[1])
    expected = np.clip(np.rint(right) + 3, limits.min, limits.max)
    np.testing.assert_array_equal(compiled.run([q])[0], expected)
    assert "gather(" in compiled.explain()


def test_arrays_without_elements_have_no_bytes() -> None:
    empty = graph_of((3, 0), None, "uint8", "quantize")
    assert compile_graph(empty).run([np.ones((3, 0), np.float32)])[0].shape == (3, 0)


# What has steps of its own besides the rules' cases, of which one adds floats of another kind.
MORE: dict[str, Callable[[Bytes], Value]] = {
    "as floats": lambda b: b.cast(b.input("x", (3, 5), "uint8"), "float32"),
    "product of more axes": lambda b: b.product(b.reshape(b.rows(), (5, 1, 12))),
    "sums by channel": lambda b: b.quantize(
        b.apply("multiply", b.apply("add", b.images(), b.images("z", "int8")), b.floats(4, 1, 1)),
        0.1113,
    ),
    "signed and moved": lambda b: b.quantize(
        b.apply("relu", b.convolution(b.images(dtype="int8", zero=-9), b.floats(8))),
        0.05, -3, "int8",
    ),
    # So many products for each byte that these become words where nothing multiplies bytes.
    "sum of what is rounded, wide": lambda b: rounded(b, width=30)[0],
    "bounds": lambda b: b.quantize(b.clip(b.convolution(b.images()), -0.5, 0.7), 0.01, 90),
    "one axis": lambda b: b.quantize(
        b.emit(
            "convolution",
            [
                b.dequantize(b.input("x", (2, 4, 9), "uint8")),
                b.dequantize(b.weights(8, 4, 3), 0.002, 0),
                None,
            ],
            strides=(2,), dilations=(1,), padding=((1, 0),), groups=1,
        )[0]
    ),
    "between images": lambda b: b.convolution(
        b.dequantize(
            b.quantize(b.apply("add", *(b.dequantize(b.quantize(b.convolution(x), 0.1), 0.1)
                                        for x in (b.images(), b.images("z")))), 0.2113), 0.2113
        )
    ),
}  # fmt: skip
CASES = {name: case.make for name, case in FIRES.items()} | MORE
# Rows of a table at places of 8 bits, and what no kernel pads.
CALLED = {"tables"}


@pytest.mark.parametrize("name", CASES)
def test_nodes_of_bytes_have_steps(name: str) -> None:
    b = Bytes()
    graph = b.graph([CASES[name](b)])
    compiled = compile_graph(graph)
    assert ("call(" in compiled.explain()) == (name in CALLED)
    random = np.random.default_rng(3)
    arrays: list[Any] = []
    for value in graph.inputs:
        if value.dtype.kind == "f":
            arrays.append(random.standard_normal(value.shape, np.float32))
            continue
        limits = np.iinfo(value.dtype)
        drawn = random.integers(limits.min, limits.max, value.shape, endpoint=True)
        arrays.append(drawn.astype(value.dtype))
    (result,), (expected,) = compiled.run(arrays), interpret(optimized(graph), arrays)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    if result.dtype == np.float32:
        scale = np.abs(expected).max()
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5 * scale)
    else:
        # Maps are in float64 for NumPy, and in float32 for the row engine.
        difference = np.abs(result.astype(int) - expected.astype(int))
        assert difference.max() <= (1 if "map" in compiled.explain() else 0)
        assert (difference > 0).mean() < 0.02
