"""Which maps are joined."""

from __future__ import annotations

import numpy as np
import pytest

from dlprim.graph import Builder, interpret
from dlprim.graph.compiled import compile_graph
from dlprim.graph.expressions import operand
from dlprim.graph.passes.maps import join_maps
from drawing import RNG

pytestmark = pytest.mark.any_level


def test_integers_made_floats_stay_in_front_of_what_is_compiled() -> None:
    """The engine does not read them, and would leave the whole map to NumPy."""
    b = Builder()
    x, zero = b.input("x", (3, 4), "float32"), b.input("zero", (), "uint8")
    y = b.apply("exp", b.apply("subtract", x, b.cast(zero, "float32")))
    graph = b.graph([y])
    result = join_maps(graph)
    assert [len(node.operands) for node in result.nodes] == [1, 2]
    arrays = [np.ones((3, 4), np.float32), np.array(3, np.uint8)]
    np.testing.assert_array_equal(interpret(result, arrays)[0], interpret(graph, arrays)[0])


@pytest.mark.parametrize("dtype", ["float16", "float32", "int64"])
def test_a_condition_about_integers_is_made_numbers_in_its_own_pass(dtype: str) -> None:
    b = Builder()
    x, k = b.input("x", (5, 1), "int32"), b.input("k", (1, 7), "int32")
    is_equal = b.map(("equal", operand(0), operand(1)), x, k, dtype="bool")
    graph = b.graph([b.cast(is_equal, dtype)])
    result = join_maps(graph)
    assert len(result.nodes) == (2 if dtype == "int64" else 1)
    arrays = [np.arange(5, dtype=np.int32)[:, None], np.arange(7, dtype=np.int32)[None]]
    right = interpret(graph, arrays)[0]
    np.testing.assert_array_equal(interpret(result, arrays)[0], right)
    found = compile_graph(result).run(arrays)[0]
    assert found.dtype == right.dtype
    np.testing.assert_array_equal(found, right)


# Rows that are alike in blocks of whole rows, rows longer than a block, and one element for all.
@pytest.mark.parametrize("columns", [1, 7, 1000, 1025, 3000, 9000])
@pytest.mark.parametrize("rows", [1, 3, 700])
def test_operands_of_one_row_serve_all_rows(rows: int, columns: int) -> None:
    if rows * columns > 2**21:
        columns //= 10
    b = Builder()
    x, row = b.input("x", (rows, columns), "int64"), b.input("row", (columns,), "int64")
    each, one = b.input("each", (rows, 1), "int64"), b.input("one", (), "int64")
    total = b.apply("add", b.apply("multiply", x, row), b.apply("subtract", each, one))
    network = compile_graph(b.graph([total]))
    values = (RNG.integers(-9, 9, size) for size in [(rows, columns), (columns,), (rows, 1), ()])
    arrays = [np.asarray(it, np.int64) for it in values]
    right = arrays[0] * arrays[1] + (arrays[2] - arrays[3])
    np.testing.assert_array_equal(network.run(arrays)[0], right)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_made_int64_are_cut_and_the_least_where_none_is(dtype: str) -> None:
    b = Builder()
    network = compile_graph(b.graph([b.cast(b.input("x", (8,), dtype), "int64")]))
    x = np.array([1.9, -1.9, 0, -(2.0**63), 2.0**63, np.inf, -np.inf, np.nan], dtype)
    least = np.iinfo(np.int64).min
    np.testing.assert_array_equal(network.run([x])[0], [1, -1, 0, *[least] * 5])
