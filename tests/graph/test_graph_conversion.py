"""Networks of halves in float32."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dlprim.graph import Builder, interpret
from dlprim.graph.compiled import compile_graph
from dlprim.graph.conversion import in_float32
from dlprim.graph.expressions import operand
from networks import drawn

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


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("value", [None, 0.5, "input"])
def test_padding_between_products_is_bfloat16(mode: str, value: Any) -> None:
    b = Builder()
    x = b.matmul(b.input("x", (3, 8), "float32"), b.constant(drawn(8, 5)))
    arrays = [drawn(3, 8)]
    operands = [x]
    if value is not None:
        is_known = value != "input"
        number = np.full(1, value if is_known else 0.25, np.float32)
        operands.append(b.constant(number) if is_known else b.input("v", (1,), "float32"))
        arrays += [] if is_known else [number]
    (y,) = b.emit("pad", operands, widths=((0, 0), (1, 2)), mode=mode)
    graph = b.graph([b.matmul(y, b.constant(drawn(8, 4)))])

    (found,) = compile_graph(graph, dtype="bfloat16").run(arrays)

    np.testing.assert_allclose(found, interpret(graph, arrays)[0], rtol=0.05, atol=0.1)
