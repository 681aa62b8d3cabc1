"""Maps of integers and conditions: one step of the core, as NumPy computes them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dlprim
from dlprim import _core
from dlprim.graph import Builder, Graph, interpret
from dlprim.graph.compiled import compile_graph
from dlprim.graph.expressions import Expression, number, operand
from dlprim.graph.passes import optimized

DTYPES = ("bool", "int8", "int32", "int64", "uint8", "float32", "float64")
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
ARITHMETIC = ("add", "subtract", "multiply", "maximum", "minimum")


def drawn(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """With the ends of the type, so that sums leave it."""
    generator = np.random.default_rng(seed)
    if dtype == "bool":
        return generator.random(shape) < 0.5
    if dtype.startswith("float"):
        special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.5], dtype)
        return generator.choice(special, shape)
    limits = np.iinfo(dtype)
    ends = np.array([limits.min, limits.max, 0, 1, 2, limits.max - 1], dtype)
    return generator.choice(ends, shape)


def check(graph: Graph, arrays: list[np.ndarray], steps: str = ": map(") -> None:
    compiled = compile_graph(graph)
    assert ": call(" not in compiled.explain()
    assert steps in compiled.explain()
    for found, right in zip(compiled.run(arrays), interpret(graph, arrays), strict=True):
        assert found.dtype == right.dtype
        np.testing.assert_array_equal(found, right)


def graph_of(expression: Expression, dtypes: tuple[str, ...], result: str, *shapes: Any) -> Graph:
    b = Builder()
    given = shapes or ((3, 70), (70,), (3, 1))
    pairs = zip("xyz", given, dtypes, strict=False)
    inputs = [b.input(name, shape, dtype) for name, shape, dtype in pairs]
    return b.graph([b.map(expression, *inputs, dtype=result)])


def arrays_of(graph: Graph) -> list[np.ndarray]:
    return [drawn(it.dtype.name, it.shape, seed) for seed, it in enumerate(graph.inputs)]


@pytest.mark.parametrize("function", COMPARISONS)
@pytest.mark.parametrize("result", ["float32", "float64"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float64"])
def test_comparisons_make_numbers(function: str, result: str, dtype: str) -> None:
    graph = graph_of((function, operand(0), operand(1)), (dtype, dtype), result)
    made = ": formula(" if (dtype, result) == ("bool", "float32") else ": map("
    check(graph, arrays_of(graph), made)


@pytest.mark.parametrize("function", COMPARISONS)
@pytest.mark.parametrize("other", ["int64", "bool"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "int64"])
def test_comparisons(function: str, dtype: str, other: str) -> None:
    graph = graph_of((function, operand(0), operand(1)), (dtype, other), "bool")
    check(graph, arrays_of(graph))


@pytest.mark.parametrize("function", ARITHMETIC)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_sums_and_products_are_cut_to_their_type(function: str, dtype: str) -> None:
    expression = ("less", (function, operand(0), operand(1)), operand(0))
    if dtype in ("int8", "uint8"):  # of which the row engine makes floats
        expression = ("less", (function, operand(0), operand(1)), operand(2))
    graph = graph_of(expression, (dtype, dtype, "int64"), "bool")
    check(graph, arrays_of(graph))
    graph = graph_of((function, operand(0), operand(1)), (dtype, dtype), "int64")
    check(graph, arrays_of(graph))


@pytest.mark.parametrize("result", ["bool", "int32", "float32", "float64"])
@pytest.mark.parametrize("dtype", ["bool", "int32", "int64"])
def test_casts(dtype: str, result: str) -> None:
    graph = graph_of(operand(0), (dtype,), result)
    made = ": formula(" if (dtype, result) == ("bool", "float32") else ": map("
    check(graph, arrays_of(graph), "" if dtype == result else made)


@pytest.mark.parametrize("least", [-np.inf, -3.4028234663852886e38, -1e9])
def test_masks_choose_floats(least: float) -> None:
    unseen = ("not", ("and", operand(0), ("not_equal", operand(1), number(0))))
    graph = graph_of(("where", unseen, number(least), number(0.0)), ("bool", "int64"), "float32")
    check(graph, arrays_of(graph))
    chosen = ("where", operand(0), operand(1), number(least))
    graph = graph_of(chosen, ("bool", "float32"), "float32")
    check(graph, arrays_of(graph), ": map(" if np.isinf(least) else ": formula(")


@given(
    st.tuples(*[st.sampled_from(DTYPES)] * 3),
    st.sampled_from(COMPARISONS),
    st.sampled_from(["and", "or", "xor"]),
    st.sampled_from(["int64", "bool", "float32"]),
)
def test_any_types(dtypes: tuple[str, ...], compare: str, both: str, result: str) -> None:
    condition = (both, (compare, operand(0), operand(1)), ("not", operand(2)))
    graph = graph_of(condition, dtypes, result)
    arrays = arrays_of(graph)
    for found, right in zip(
        compile_graph(graph).run(arrays), interpret(graph, arrays), strict=True
    ):
        np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize(
    "shapes", [((), ()), ((1,), (0,)), ((2, 1, 5), (3, 1)), ((130, 2, 300), (1, 1))], ids=str
)
def test_shapes_are_broadcast(shapes: Any) -> None:
    graph = graph_of(("equal", operand(0), operand(1)), ("int64", "int64"), "bool", *shapes)
    check(graph, arrays_of(graph), "" if 0 in shapes[1] else ": map(")


def test_same_bits_for_any_number_of_threads() -> None:
    graph = graph_of(("add", operand(0), operand(1)), ("int64",) * 2, "int64", (300, 301), (301,))
    arrays = arrays_of(graph)
    for count in (1, 2, 3):
        with dlprim.threads(count):
            check(graph, arrays)


def test_integers_that_doubles_do_not_hold_and_numbers_that_no_type_holds() -> None:
    large = ("add", operand(0), number(2**60 + 1))
    graph = graph_of(large, ("int64",), "int64")
    arrays = arrays_of(graph)
    (found,), (right,) = compile_graph(graph).run(arrays), interpret(graph, arrays)
    np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        ([], "0 operations, expected 1 to 64"),
        ([("input", "int64", [1], 0.0)], "operands of input that are not there"),
        ([("input", "int32", [0], 0.0)], "as int32"),
        ([("number", "text", [], 0.0)], "elements are of text"),
        ([("sine", "int64", [], 0.0)], "no function sine"),
        ([("number", "float32", [], 0.0), ("add", "float32", [0, 0], 0.0)], "makes float32 in"),
        ([("number", "bool", [], 0.0)], "makes bool in C order"),
        ([("number", "int64", [], float("nan"))], "the number nan of type int64"),
        ([("number", "int64", [], 1e17)], "expected at most 2.53"),
    ],
)
def test_operations_that_do_not_fit_are_refused(operations: Any, message: str) -> None:
    network = _core.Network()
    x = network.input((3,), "int64")
    with pytest.raises(ValueError, match=message):
        network.map(operations, [x], network.temporary((3,), "int64"))


def test_attention_takes_masks_of_conditions_and_sums_of_several() -> None:
    b = Builder()
    q, k, v = (b.input(name, (2, 3, 5, 8), "float32") for name in "qkv")
    seen, bias = b.input("seen", (2, 1, 1, 5), "bool"), b.input("bias", (3, 5, 5), "float32")
    scores = b.apply("add", b.matmul(q, b.transpose(k, (0, 1, 3, 2))), bias)
    hidden = b.map(("where", operand(0), number(0.0), number(-np.inf)), seen, dtype="float32")
    shares = b.emit("softmax", [b.apply("add", scores, hidden)], axis=-1, log=False)[0]
    graph = b.graph([b.matmul(shares, v)])
    assert "attention" in [it.operator for it in optimized(graph).nodes]
    arrays = [drawn_floats(it.shape) for it in graph.inputs]
    arrays[3] = np.arange(5) < np.array([3, 5]).reshape(2, 1, 1, 1)
    compiled = compile_graph(graph)
    assert ": call(" not in compiled.explain()
    np.testing.assert_allclose(
        compiled.run(arrays)[0], interpret(graph, arrays)[0], rtol=1e-5, atol=1e-5
    )


def drawn_floats(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


@pytest.mark.parametrize("place", [0, 2, -1])
def test_one_place_that_is_known_is_a_view(place: int) -> None:
    b = Builder()
    x = b.input("x", (2, 3, 4), "float32")
    y = b.gather(x, b.constant(np.array(place)), 1)
    graph = b.graph([y, b.gather(x, b.constant(np.array([place])), 1)])
    check(graph, [drawn_floats((2, 3, 4))], "")


@pytest.mark.parametrize("types", [*itertools.product(("int8", "uint8"), repeat=2)], ids=str)
@pytest.mark.parametrize(
    "shapes",
    [
        ((7, 33), (33, 5)),
        ((2, 3, 1, 64), (64, 70)),
        ((2, 9, 5), (2, 5, 1)),
        ((1, 300), (300, 12)),
        ((2, 3, 515), (515, 40)),
        ((2, 5, 1000), (2, 1000, 3)),
    ],
    ids=str,
)
def test_products_of_bytes_are_steps(types: tuple[str, str], shapes: Any) -> None:
    b = Builder()
    factors = [b.input(*it) for it in zip("xy", shapes, types, strict=True)]
    graph = b.graph([b.emit("matmul", factors, dtype="int32")[0]])
    check(graph, arrays_of(graph), ": formula(")
