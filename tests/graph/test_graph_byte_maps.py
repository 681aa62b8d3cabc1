"""Compiled, maps from bytes, to bytes and between them are one step that reads and writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byte_graphs import Bytes

import dlprim
from dlprim.graph import Graph, interpret
from dlprim.graph.compiled import compile_graph
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.passes import optimized

pytestmark = pytest.mark.every_level

# A power of two: the interpreter's float64 rounds nothing that float32 does not.
STEP = 0.0625


def into_bytes(expression: Expression, zero: int, dtype: str) -> Expression:
    whole = np.iinfo(dtype)
    rounded: Expression = ("round", ("divide", expression, number(STEP)))
    if zero:
        rounded = ("add", rounded, number(float(zero)))
    return ("minimum", ("fmax", rounded, number(float(whole.min))), number(float(whole.max)))


def float_of(place: int, zero: int, scale: float = STEP) -> Expression:
    return ("multiply", ("subtract", operand(place), number(float(zero))), number(scale))


def every(dtype: str, *shape: int) -> Any:
    """All bytes, over and over."""
    count = int(np.prod(shape))
    return (np.arange(count) * 7 % 256).astype(np.uint8).view(dtype).reshape(shape)


def check(graph: Graph, arrays: list[Any], steps: list[str]) -> None:
    """The same bits as the interpreter's for any number of threads, in steps of these kinds."""
    compiled = compile_graph(graph, 0)
    (expected,) = interpret(graph, arrays)
    before = dlprim.get_num_threads()
    try:
        for threads in (1, 3):
            dlprim.set_num_threads(threads)
            (found,) = compiled.run(arrays)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
    finally:
        dlprim.set_num_threads(before)
    lines = compiled.explain().splitlines()
    assert [line.split(" : ")[1].split("(")[0] for line in lines] == steps


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("other", ["uint8", "int8"])
@pytest.mark.parametrize("zero", [0, 3, -5])
def test_a_residual_of_bytes_is_one_step(dtype: str, other: str, zero: int) -> None:
    b = Bytes()
    x, y = b.input("x", (3, 5, 7, 9), dtype), b.input("y", (3, 5, 7, 9), other)
    total: Expression = ("relu", ("add", float_of(0, 100), float_of(1, -3, STEP / 2)))
    total = ("subtract", total, number(1.0))
    z = b.map(into_bytes(total, zero, dtype), x, y, dtype=dtype)
    random = np.random.default_rng(2)
    arrays = [every(dtype, 3, 5, 7, 9), random.permuted(every(other, 3, 5, 7, 9))]
    check(b.graph([z]), arrays, ["formula"])


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_channels_last_and_numbers_by_channel_are_read_where_they_lie(dtype: str) -> None:
    b = Bytes()
    x, y = (b.transpose(b.input(it, (2, 6, 7, 5), dtype), (0, 3, 1, 2)) for it in "xy")
    scale = b.constant(np.arange(1, 6, dtype=np.float32).reshape(5, 1, 1) / 4, "scale")
    shift = b.constant(np.arange(-2, 3, dtype=np.int8).reshape(5, 1, 1), "shift")
    total = ("add", ("multiply", float_of(0, 7), operand(2)), float_of(1, -9))
    total = ("subtract", total, float_of(3, 0, 0.5))
    z = b.map(into_bytes(total, 11, dtype), x, y, scale, shift, dtype=dtype)
    graph = b.graph([b.transpose(z, (0, 2, 3, 1))])
    check(graph, [every(dtype, 2, 6, 7, 5), every(dtype, 2, 6, 7, 5)[::-1].copy()], ["formula"])


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_one_side_may_be_floats(dtype: str) -> None:
    b = Bytes()
    x = b.input("x", (4, 70), dtype)
    check(b.graph([b.cast(x, "float32")]), [every(dtype, 4, 70)], ["formula"])
    y = b.map(("relu", float_of(0, 3)), x, dtype="float32")
    check(b.graph([y]), [every(dtype, 4, 70)], ["formula"])
    b = Bytes()
    x = b.input("x", (999,), "float32")
    y = b.map(into_bytes(operand(0), 5, dtype), x, dtype=dtype)
    # Halves, what is saturated, and infinities.
    floats = np.linspace(-400, 400, 999).round() * np.float32(STEP / 2)
    floats[:4] = np.inf, -np.inf, 1e30, -0.0
    check(b.graph([y]), [floats.astype(np.float32)], ["formula"])


def test_conditions_of_conditions_are_compiled() -> None:
    b = Bytes()
    x, y = b.input("x", (4, 70), "uint8"), b.input("y", (70,), "float32")
    inside = ("and", ("less", operand(1), float_of(0, 7)), ("not", ("less", operand(1), number(0))))
    z = b.map(("where", inside, float_of(0, 7), number(-1.0)), x, y, dtype="float32")
    arrays = [every("uint8", 4, 70), np.linspace(-2, 9, 70).astype(np.float32)]
    check(b.graph([z]), arrays, ["formula"])


def test_what_numpy_computes_in_integers_stays_there() -> None:
    for expression, dtype, step in (
        (("add", operand(0), operand(1)), "uint8", "map"),
        (("multiply", ("add", operand(0), operand(1)), number(0.5)), "float32", "map"),
        (into_bytes(("add", operand(0), operand(1)), 0, "uint8"), "uint8", "map"),
        (("add", float_of(0, 0), float_of(1, 0)), "uint8", "map"),  # cut, not rounded
    ):
        b = Bytes()
        x, y = (b.input(it, (300,), "uint8") for it in "xy")
        graph = b.graph([b.map(expression, x, y, dtype=dtype)])
        check(graph, [every("uint8", 300), every("uint8", 300)], [step])


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_maps_end_in_bytes_where_they_are_quantised(dtype: str) -> None:
    b = Bytes()
    x, y = b.input("x", (9, 50), "float32"), b.input("y", (50,), "float32")
    total = b.apply("add", b.apply("relu", x), y)
    graph = b.graph([b.quantize(total, STEP, 3, dtype)])
    floats = np.linspace(-30, 30, 450).round(2).astype(np.float32).reshape(9, 50)
    floats[0, :4] = np.nan, np.inf, -np.inf, 1e30
    row = np.arange(50, dtype=np.float32) / 4
    found = optimized(graph)
    assert [node.operator for node in found.nodes] == ["map"]
    expected = interpret(graph, [floats, row])[0]
    assert expected[0, 0] == np.iinfo(dtype).min
    np.testing.assert_array_equal(interpret(found, [floats, row])[0], expected)
    check(found, [floats, row], ["formula"])


def test_maps_read_the_bytes_that_floats_were_made_of() -> None:
    b = Bytes()
    x = b.dequantize(b.input("x", (4, 60), "uint8"), STEP, 7)
    total = b.map(("add", operand(0), operand(1)), x, b.input("y", (60,), "float32"))
    y = b.emit("softmax", [total], axis=-1, log=False)[0]
    graph = b.graph([b.apply("add", y, b.transpose(b.transpose(x, (1, 0)), (1, 0)))])
    found = optimized(graph)
    assert [node.operator for node in found.nodes] == ["map", "softmax", "map"]
    arrays = [every("uint8", 4, 60), np.linspace(-1, 1, 60).astype(np.float32)]
    (result,), (expected,) = compile_graph(graph).run(arrays), interpret(graph, arrays)
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_conversions_stay_beside_what_is_no_map_of_floats() -> None:
    b = Bytes()
    x = b.dequantize(b.input("x", (4, 60), "uint8"), STEP, 7)
    rows = b.dequantize(b.input("q", (4, 60), "int8"), np.arange(1, 5) / 8, None)
    graph = b.graph([b.apply("less", x, b.floats(60), dtype="bool"), b.apply("relu", rows)])
    operators = [node.operator for node in optimized(graph).nodes]
    assert operators == ["dequantize", "map", "dequantize", "map"]
    twice = b.apply("relu", b.input("f", (4, 60), "float32"))
    graph = b.graph([b.quantize(twice), twice])
    assert [node.operator for node in optimized(graph).nodes] == ["map", "quantize"]
