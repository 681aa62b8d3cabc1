"""Networks of halves in float32."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from dlprim.graph import Builder, interpret
from dlprim.graph.conversion import in_float32
from dlprim.graph.expressions import operand

X = operand(0)


def test_what_is_between_inputs_and_outputs_is_not_rounded() -> None:
    builder = Builder()
    x = builder.input("x", (3,), "float16")
    y = builder.map(("multiply", X, X), x)
    graph = in_float32(builder.graph([y, builder.map(("sqrt", X), y)]), ("float16",))
    squares, roots = interpret(graph, [np.full(3, 300, np.float16)])
    assert squares.dtype == roots.dtype == np.float16
    assert np.isinf(squares).all()
    np.testing.assert_array_equal(roots, np.float16(300))


def test_other_types_are_left_alone() -> None:
    builder = Builder()
    x = builder.input("x", (2, 2), "bfloat16")
    weights = builder.constant(np.eye(2, dtype=ml_dtypes.bfloat16))
    graph = builder.graph([builder.cast(builder.matmul(x, weights), "float64")])
    kept = in_float32(graph, ("float16",))
    assert [node.output.dtype for node in kept.nodes] == [it.output.dtype for it in graph.nodes]
    wide = in_float32(graph, ("float16", "bfloat16"))
    assert [node.output.dtype.name for node in wide.nodes] == ["float32", "float32", "float64"]


def test_functions_without_a_formula_see_the_types_that_they_expect() -> None:
    builder = Builder()
    x = builder.input("x", (2, 4), "float16")
    y = builder.apply("abs", x)
    results = builder.call(
        "top_k", [y], [((2, 2), "float16"), ((2, 2), "int64")], axis=1, k=2, largest=True
    )
    graph = in_float32(builder.graph(results), ("float16",))
    found, places = interpret(graph, [np.array([[1, -4, 2, 3], [0, 5, -6, 7]], np.float16)])
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, [[4, 3], [7, 6]])
    np.testing.assert_array_equal(places, [[1, 3], [3, 2]])
