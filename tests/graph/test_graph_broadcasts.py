"""Masks that exporters spread over all pairs of words are computed on the words."""

from __future__ import annotations

import numpy as np
import pytest

from dlprim.graph import Builder, Graph, interpret
from dlprim.graph.graph import Array
from dlprim.graph.passes.broadcasts import spread_last


def _checked(graph: Graph, *arrays: Array) -> list[tuple[str, tuple[int, ...]]]:
    """Operators and shapes after the pass, which gives what the graph gave."""
    after = spread_last(graph)
    for found, expected in zip(interpret(after, arrays), interpret(graph, arrays), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    return [(node.operator, node.output.shape) for node in after.nodes]


def test_a_mask_of_words_is_spread_last() -> None:
    b = Builder()
    there = b.cast(b.input("mask", (2, 5), "int64"), "bool")
    places = np.stack(np.meshgrid(np.arange(2), np.arange(5), indexing="ij"), -1)[:, None, None]
    (words,) = b.call(
        "gather_nd", [there, b.constant(places, "places")], [((2, 1, 1, 5), "bool")], batch_dims=0
    )
    all_queries = b.constant(np.ones((1, 1, 5, 1), bool), "all")
    pairs = b.apply("bitwise_and", all_queries, words)
    none, least = b.constant(np.float32(0), "none"), b.constant(np.float32(-1e9), "least")
    graph = b.graph([b.apply("where", pairs, none, least, dtype="float32")])
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    found = _checked(graph, mask)
    assert found == [
        ("map", (2, 5)),
        ("reshape", (2, 1, 1, 5)),
        ("map", (2, 1, 1, 5)),
        ("expand", (2, 1, 5, 5)),
    ]


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("function", ["and", "or", "xor", "equal"])
def test_known_conditions_of_one_value_are_left_out_where_they_decide_nothing(
    function: str, value: bool
) -> None:
    b = Builder()
    x = b.input("x", (3, 4), "bool")
    graph = b.graph([b.apply(function, x, b.constant(np.full((3, 4), value), "same"))])
    found = _checked(graph, np.array([[True, False, True, False]] * 3))
    changes_nothing = (function in ("and", "equal")) == value
    assert found == ([] if changes_nothing else [("map", (3, 4))])


def test_a_constant_that_gives_the_result_its_shape_stays_in_it() -> None:
    b = Builder()
    x = b.input("x", (1, 4), "float32")
    graph = b.graph([b.apply("add", x, b.constant(np.full((3, 1), 2, np.float32), "two"))])
    x_array = np.arange(4, dtype=np.float32)[None]
    assert _checked(graph, x_array) == [("map", (1, 4)), ("expand", (3, 4))]


@pytest.mark.parametrize("places", [[[1], [0], [2]], [[0], [1], [1]]])
def test_other_gathers_stay(places: list[list[int]]) -> None:
    b = Builder()
    x = b.input("x", (3, 2), "float32")
    listed = b.constant(np.array(places), "places")
    graph = b.graph(b.call("gather_nd", [x, listed], [((3, 2), "float32")], batch_dims=0))
    assert _checked(graph, np.arange(6, dtype=np.float32).reshape(3, 2)) == [("call", (3, 2))]


def test_places_outside_are_told_when_the_network_runs() -> None:
    b = Builder()
    x = b.input("x", (3,), "float32")
    listed = b.constant(np.array([0, 1, 5]), "places")
    graph = spread_last(b.graph([b.gather(x, listed, 0)]))
    with pytest.raises(IndexError, match="expected inside"):
        interpret(graph, [np.zeros(3, np.float32)])
