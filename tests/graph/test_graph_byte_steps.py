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
