"""Which maps are joined."""

from __future__ import annotations

import numpy as np
import pytest

from dlprim.graph import Builder, interpret
from dlprim.graph.compiled import compile_graph
from dlprim.graph.expressions import operand
from dlprim.graph.passes.maps import join_maps

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
