"""Graphs that resemble what a rule rewrites, and must not be rewritten, or not so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dlprim.graph import Builder, Value, interpret
from dlprim.graph.compiled import compile_graph
from networks import convolution, drawn

Made = Callable[[Builder], list[Value]]
X, Y = ("input", 0), ("input", 1)


def assert_kept(make: Made, *inputs: Any) -> None:
    """What is compiled is what is interpreted: values, types, shapes and where NaN is."""
    b = Builder()
    graph = b.graph(make(b))
    for found, expected in zip(
        compile_graph(graph).run(list(inputs)), interpret(graph, inputs), strict=True
    ):
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        np.testing.assert_allclose(
            np.float64(found), np.float64(expected), rtol=1e-4, atol=1e-5, equal_nan=True
        )


def test_sums_of_conditions_are_sums_of_numbers() -> None:
    def make(b: Builder) -> list[Value]:
        kept = [b.input(name, (6,), "bool") for name in "xy"]
        one, other = (b.cast(it, "float32") for it in kept)
        return [b.apply("add", one, other), b.apply("subtract", one, other), b.apply("negate", one)]

    x, y = np.array([1, 1, 0, 0, 1, 0], bool), np.array([1, 0, 1, 0, 1, 1], bool)
    assert_kept(make, x, y)


def test_comparisons_made_floats_are_numbers() -> None:
    def make(b: Builder) -> list[Value]:
        x = b.input("x", (9,), "float32")
        kept = [b.map((name, X, ("number", 0.0)), x, dtype="bool") for name in ("greater", "less")]
        one, other = (b.cast(it, "float32") for it in kept)
        return [b.apply("negate", b.apply("subtract", one, other))]

    assert_kept(make, drawn(9))


@pytest.mark.parametrize("function", ["exp", "negate", "abs"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_bytes_made_floats_are_computed_as_floats(function: str, dtype: str) -> None:
    def make(b: Builder) -> list[Value]:
        return [b.apply(function, b.cast(b.input("x", (5,), dtype), "float32"))]

    assert_kept(make, np.array([0, 20, 50, 88, 128], np.uint8).view(dtype))


NEARLY = {
    "gelu of integers": (
        "multiply",
        ("multiply", X, ("number", 0.5)),
        ("add", ("erf", ("multiply", X, ("number", 0.5**0.5))), ("number", 1.0)),
    ),
    "clipped far away": ("minimum", ("maximum", X, ("number", 0.0)), ("number", 2000.0)),
    "cut above zero": ("where", ("greater", X, ("number", 0.005)), X, ("number", 0.0)),
    "NaN made zero": ("where", ("greater", X, ("number", 0.0)), X, ("number", 0.0)),
}


@pytest.mark.parametrize("case", NEARLY)
def test_what_is_nearly_an_activation_is_none(case: str) -> None:
    dtype = "int32" if "integers" in case else "float32"
    x = np.array([-5, 5, 0.004, 0.006, 65504, np.nan], np.float32)
    x = x[:2].astype(dtype) if dtype == "int32" else x[: 6 if "NaN" in case else 5]

    assert_kept(lambda b: [b.map(NEARLY[case], b.input("x", x.shape, dtype), dtype="float32")], x)


def test_a_weight_that_adds_axes_is_not_that_of_a_norm() -> None:
    def make(b: Builder) -> list[Value]:
        (y,) = b.emit(
            "normalize", [b.input("x", (3, 8), "float32"), None, None], axes=1, epsilon=0, rms=True
        )
        return [b.apply("multiply", y, b.constant(drawn(1, 1, 8)))]

    assert_kept(make, drawn(3, 8))


def test_a_product_of_more_is_not_the_weight_of_a_norm() -> None:
    def make(b: Builder) -> list[Value]:
        (y,) = b.emit(
            "normalize", [b.input("x", (3, 8), "float32"), None, None], axes=1, epsilon=0, rms=True
        )
        return [b.map(("multiply", ("floor", X), Y), y, b.constant(drawn(8)))]

    assert_kept(make, drawn(3, 8))


def test_a_root_that_is_cut_off_is_no_norm() -> None:
    def make(b: Builder) -> list[Value]:
        x = b.input("x", (2, 4), "float32")
        mean = b.reduce("mean", b.apply("multiply", x, x), (-1,), True)
        cut = ("maximum", ("sqrt", X), ("number", 1e-4))
        return [b.apply("multiply", x, b.map(("divide", ("number", 1.0), cut), mean))]

    assert_kept(make, np.array([[1e-4, 1e-4, -1e-4, 1e-4], [1, 2, 3, 4]], np.float32))


def test_a_product_in_another_type_stays_so() -> None:
    def make(b: Builder) -> list[Value]:
        y = b.matmul(b.input("x", (3, 8), "float32"), b.constant(drawn(8, 4)))
        return [b.cast(y, ml_dtypes.bfloat16)]

    assert_kept(make, drawn(3, 8))


def attention(
    b: Builder,
    *,
    shapes: tuple[int, int, int] = (2, 2, 2),
    mask: Value | None = None,
    is_guarded: bool = False,
) -> list[Value]:
    """Attention of as many heads each of queries, keys and values."""
    q, k, v = (
        b.input(name, (1, heads, 3, 4), "float32")
        for name, heads in zip("qkv", shapes, strict=True)
    )
    scores = b.matmul(q, b.transpose(k, (0, 1, 3, 2)))
    scores = scores if mask is None else b.apply("add", scores, mask)
    (weights,) = b.emit("softmax", [scores], axis=-1, log=False)
    if is_guarded:
        weights = b.map(("where", ("is_nan", X), ("number", 0.0), X), weights)
    return [b.matmul(weights, v)]


@pytest.mark.parametrize("shapes", [(1, 3, 3), (3, 1, 3), (3, 3, 1), (1, 3, 1), (3, 1, 1)])
def test_heads_that_are_broadcast(shapes: tuple[int, int, int]) -> None:
    arrays = [drawn(1, heads, 3, 4, seed=place) for place, heads in enumerate(shapes)]
    assert_kept(lambda b: attention(b, shapes=shapes), *arrays)


def test_conditions_that_are_added_to_scores_do_not_hide_keys() -> None:
    mask = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0]], bool)
    arrays = [drawn(1, 2, 3, 4, seed=place) for place in range(3)]
    assert_kept(lambda b: attention(b, mask=b.input("m", (3, 3), "bool")), mask, *arrays)


def test_queries_without_keys_are_zeros_where_nan_is_replaced() -> None:
    mask = np.array([[0, 0, 0], [-np.inf] * 3, [0, -np.inf, 0]], np.float32)
    arrays = [drawn(1, 2, 3, 4, seed=place) for place in range(3)]
    assert_kept(lambda b: attention(b, mask=b.constant(mask), is_guarded=True), *arrays)


def test_queries_of_another_type_give_results_of_the_type_of_scores() -> None:
    def make(b: Builder) -> list[Value]:
        q = b.input("q", (1, 2, 4, 4), "float64")
        k, v = (b.input(name, (1, 2, 4, 4), "float32") for name in "kv")
        scaled = b.map(("multiply", X, ("number", 0.5)), q, dtype="float32")
        scores = b.matmul(scaled, b.transpose(k, (0, 1, 3, 2)))
        (weights,) = b.emit("softmax", [scores], axis=-1, log=False)
        return [b.matmul(weights, v)]

    q, k, v = (drawn(1, 2, 4, 4, seed=place) for place in range(3))
    assert_kept(make, q.astype(np.float64), k, v)


@pytest.mark.parametrize("function", ["add", "multiply"])
def test_an_operand_that_only_gives_its_shape_is_not_normalised(function: str) -> None:
    def make(b: Builder) -> list[Value]:
        operands = [b.input(name, (2, 3), "float32") for name in "xyz"]
        y = b.map((function, X, Y), *operands)
        return list(b.emit("normalize", [y, None, None], axes=1, epsilon=1e-3, rms=True))

    assert_kept(make, *(drawn(2, 3, seed=place) for place in range(3)))


@pytest.mark.parametrize("function", ["add", "minimum"])
def test_masks_of_the_least_number_are_no_nan_in_bfloat16(function: str) -> None:
    b = Builder()
    q, k = b.input("q", (2, 4, 8), "float32"), b.input("k", (2, 8, 4), "float32")
    scores = b.apply(function, b.matmul(q, k), b.input("mask", (4, 4), "float32"))
    graph = b.graph(b.emit("softmax", [b.reshape(scores, (8, 4))], axis=-1, log=False))
    mask = np.zeros((4, 4), np.float32)
    mask[1] = np.finfo(np.float32).min
    arrays = [drawn(2, 4, 8), drawn(2, 8, 4), mask]

    (found,) = compile_graph(graph, dtype="bfloat16").run(arrays)

    np.testing.assert_allclose(found, interpret(graph, arrays)[0], atol=0.05)


@pytest.mark.parametrize(
    "name", ["maximum", "minimum", "relu", "relu6", "hardsigmoid", "hardswish"]
)
def test_maps_keep_what_is_no_number(name: str) -> None:
    x = np.array([np.nan, 1, -1, 8, np.inf, np.nan, 3], np.float32)
    z = np.array([1, np.nan, -1, 9, 2, np.nan, -3], np.float32)
    builder = Builder()
    values = [builder.input(it, (7,), "float32") for it in "xz"]
    six = builder.constant(np.float32(6))
    if name in ("maximum", "minimum"):
        results = [
            builder.apply(name, *values),
            builder.apply(name, values[0], six),
            builder.apply(name, six, values[1]),
        ]
    else:
        results = [builder.apply(name, value) for value in values]
    graph = builder.graph(results)
    found = compile_graph(graph).run([x, z])
    for one, other in zip(found, interpret(graph, [x, z]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_part_of_a_residual_is_not_all_of_it() -> None:
    def make(b: Builder) -> list[Value]:
        x, residual = (b.input(name, (2, 8, 9, 9), "float32") for name in "xr")
        half = ("multiply", ("number", 0.5), Y)
        return [b.map(("add", X, half), convolution(b, x, 8, 3), residual)]

    assert_kept(make, drawn(2, 8, 9, 9), drawn(2, 8, 9, 9, seed=1))


def test_equal_operands_of_nodes_with_other_types_are_other_values() -> None:
    def make(b: Builder) -> list[Value]:
        x = b.input("x", (7,), "float32")
        return [b.cast(x, dtype) for dtype in ("int32", "int8", "float64", "int32")]

    assert_kept(make, 20 * drawn(7))


def test_filters_of_single_channels_that_make_several() -> None:
    """Groups of one channel in and two out, between layers whose channels lie in blocks."""

    def make(b: Builder) -> list[Value]:
        x = convolution(b, b.input("x", (2, 3, 9, 9), "float32"), 16, 3)
        return [convolution(b, convolution(b, x, 32, 3, groups=16), 8, 1)]

    assert_kept(make, drawn(2, 3, 9, 9))


@pytest.mark.parametrize("value", [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e38])
@pytest.mark.parametrize("function", ["add", "subtract", "multiply", "divide"])
@pytest.mark.parametrize("shape", [(), (1,), (4,)])
def test_constants_that_are_no_usual_numbers_behind_products(
    function: str, value: float, shape: tuple[int, ...]
) -> None:
    """What kernels do with a result before they store it, and scores of attention."""

    def make(b: Builder) -> list[Value]:
        number = b.constant(np.full(shape, value, np.float32))
        x, image = b.input("x", (1, 2, 4, 4), "float32"), b.input("image", (1, 3, 4, 4), "float32")
        scores = b.apply(function, b.matmul(x, b.transpose(x, (0, 1, 3, 2))), number)
        (weights,) = b.emit("softmax", [scores], axis=-1, log=False)
        y = b.matmul(x, b.constant(drawn(4, 4)))
        convolved = convolution(b, image, 8, 1)
        attended = b.matmul(weights, x)
        return [
            b.apply(function, y, number),
            b.apply(function, number, y),
            b.apply("relu", b.apply(function, convolved, number)),
            # Attention that sees no key is zeros.
            *([] if (function, value) in hidden else [attended]),
        ]

    hidden = [("add", -np.inf), ("subtract", np.inf)]
    x, image = np.abs(drawn(1, 2, 4, 4)) + 0.1, drawn(1, 3, 4, 4)
    with np.errstate(all="ignore"):
        assert_kept(make, x, image)


def test_places_in_one_table_of_integers_are_each_looked_at() -> None:
    """What was seen before are the places, not the table: a state waits for all of them."""
    b = Builder()
    s, table = b.input("s", (4,), "float32"), b.input("table", (5,), "int64")
    places = [b.input(name, (1,), "int64") for name in "ij"]
    moved = b.apply("add", s, b.constant(np.ones(4, np.float32)))
    compiled = compile_graph(b.graph([b.gather(table, it, 0) for it in places], {s: moved}))
    state, rows = np.zeros(4, np.float32), np.arange(5)
    for wrong in ([9, 0], [0, 9]):
        with pytest.raises(IndexError, match="index 9"):
            compiled.run([state, rows, *(np.array([it]) for it in wrong)])
        np.testing.assert_array_equal(state, np.zeros(4))
    assert compiled.run([state, rows, np.array([4]), np.array([2])]) == [[4], [2]]
    np.testing.assert_array_equal(state, np.ones(4))
