"""Networks in another type: what is converted, and what must not be."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from dlprim.graph import Builder, Value, interpret
from dlprim.graph.conversion import in_float32
from dlprim.graph.expressions import operand
from dlprim.graph.passes import optimized

X, Y = operand(0), operand(1)


def test_products_are_converted_and_results_are_of_the_type_that_they_had(
    random: np.random.Generator,
) -> None:
    builder = Builder()
    x = builder.input("x", (4, 32), "float32")
    weights = random.standard_normal((32, 64)).astype("f4")
    y = builder.apply("relu", builder.matmul(x, builder.constant(weights)))
    graph = builder.graph([y])
    low = optimized(graph, dtype="bfloat16")
    kinds = {node.operator: node.output.dtype.name for node in low.nodes}
    assert kinds["matmul"] == "bfloat16"
    array = random.standard_normal((4, 32)).astype("f4")
    result, right = interpret(low, [array])[0], interpret(graph, [array])[0]
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, right, rtol=0.05, atol=0.2)
    assert not np.array_equal(result, right)


def _rotated(builder: Builder) -> tuple[Value, Value]:
    x = builder.input("x", (1, 8), "float32")
    positions = builder.cast(builder.input("positions", (1, 1), "int64"), "float32")
    frequencies = builder.constant(np.linspace(0.9, 1, 8, dtype="f4")[None])
    angles = builder.map(("cos", ("multiply", X, Y)), positions, frequencies)
    return x, builder.map(("multiply", X, Y), x, angles)


def test_angles_of_positions_are_computed_as_they_were() -> None:
    builder = Builder()
    _, y = _rotated(builder)
    arrays = [np.ones((1, 8), np.float32), np.array([[3001]])]
    graph = builder.graph([y])
    result = interpret(optimized(graph, dtype="bfloat16"), arrays)[0]
    np.testing.assert_allclose(result, interpret(graph, arrays)[0], rtol=0.01, atol=1e-3)


def test_masks_stay_finite() -> None:
    builder = Builder()
    x = builder.input("x", (2, 3), "float32")
    mask = builder.input("mask", (2, 3), "bool")
    least = builder.constant(np.array(np.finfo(np.float32).min, np.float32))
    zero = builder.constant(np.zeros((), np.float32))
    added = builder.map(("where", X, Y, operand(2)), mask, zero, least, dtype="float32")
    scores = builder.map(("add", X, Y), x, added)
    graph = builder.graph([builder.emit("softmax", [scores], axis=1, log=False)[0]])
    none = np.zeros((2, 3), bool)
    result = interpret(optimized(graph, dtype="bfloat16"), [np.ones((2, 3), np.float32), none])[0]
    np.testing.assert_allclose(result, 1 / 3, rtol=0.01)


def test_halves_are_computed_in_float32() -> None:
    builder = Builder()
    x = builder.input("x", (3,), "float16")
    y = builder.map(("multiply", X, X), x)
    graph = in_float32(builder.graph([y, builder.map(("sqrt", X), y)]))
    squares, roots = interpret(graph, [np.full(3, 300, np.float16)])
    assert squares.dtype == roots.dtype == np.float16
    assert np.isinf(squares).all()
    np.testing.assert_array_equal(roots, np.float16(300))


def test_functions_without_a_formula_see_the_types_that_they_expect() -> None:
    builder = Builder()
    x = builder.input("x", (2, 4), "float32")
    identity = builder.constant(np.eye(4, dtype=np.float32))
    y = builder.matmul(builder.apply("abs", x), identity)
    values, places = builder.call(
        "top_k", [y], [((2, 2), "float32"), ((2, 2), "int64")], axis=1, k=2, largest=True
    )
    low = optimized(builder.graph([values, places]), dtype="bfloat16")
    array = np.array([[1, -4, 2, 3], [0, 5, -6, 7]], np.float32)
    found, where = interpret(low, [array])
    np.testing.assert_array_equal(found, [[4, 3], [7, 6]])
    np.testing.assert_array_equal(where, [[1, 3], [3, 2]])
    assert any(value.dtype == ml_dtypes.bfloat16 for node in low.nodes for value in node.outputs)
