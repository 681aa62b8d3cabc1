"""Pools whose windows leave the array, padding, softmax along any axis: steps of the core."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from dlprim.graph import Builder, Graph, interpret
from dlprim.graph.compiled import compile_graph


def check(graph: Graph) -> str:
    arrays: list[Any] = [
        np.random.default_rng(0).standard_normal(it.shape).astype(it.dtype) for it in graph.inputs
    ]
    compiled = compile_graph(graph)
    for found, right in zip(compiled.run(arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)
    return compiled.explain()


POOLS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "up": ((2, 3, 7, 8), {"kernel": (3, 2), "strides": (2, 3), "counts": (4, 3)}),
    "in front": ((1, 2, 6, 6), {"padding": ((1, 0), (0, 1)), "counts": (5, 5)}),
    "apart": ((1, 2, 9, 9), {"dilations": (2, 3), "counts": (7, 6)}),
    "rows": ((2, 3, 11), {"kernel": (3,), "strides": (2,), "counts": (6,)}),
    "volumes": ((1, 2, 5, 6, 4), {"kernel": (2,) * 3, "strides": (2,) * 3, "counts": (3, 3, 2)}),
}


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("counts_padding", [False, True])
@pytest.mark.parametrize("function", ["max", "mean"])
def test_windows_that_leave_the_array(function: str, counts_padding: bool, name: str) -> None:
    shape, given = POOLS[name]
    rank = len(shape) - 2
    how = {"kernel": (2,) * rank, "strides": (1,) * rank, "dilations": (1,) * rank, **given}
    how = {"padding": ((0, 0),) * rank, **how, "function": function}
    b = Builder()
    x = b.input("x", shape, "float32")
    graph = b.graph([b.emit("pool", [x], **how, counts_padding=counts_padding)[0]])
    assert ": call(" not in check(graph)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize(
    "widths", [((0, 0), (2, 1), (0, 3)), ((1, 1), (0, 0), (-1, 2)), ((0, 0), (-1, 0), (0, -2))]
)
def test_padding(widths: Any, mode: str) -> None:
    b = Builder()
    x = b.input("x", (3, 4, 5), "float32")
    value = [b.constant(np.array([7], np.float32))] if mode == "constant" else []
    graph = b.graph([b.emit("pad", [x, *value], widths=widths, mode=mode)[0]])
    assert ": call(" not in check(graph)


def test_padding_by_what_is_computed_or_not_said() -> None:
    b = Builder()
    x, value = b.input("x", (3, 4), "float32"), b.input("value", (), "float32")
    how = {"widths": ((1, 0), (0, 2)), "mode": "constant"}
    graph = b.graph([b.emit("pad", [x, value], **how)[0], b.emit("pad", [x], **how)[0]])
    assert ": call(" not in check(graph)


def test_padding_by_more_than_there_is_is_left_to_numpy() -> None:
    b = Builder()
    x = b.input("x", (3, 2), "float32")
    graph = b.graph([b.emit("pad", [x], widths=((0, 0), (3, 4)), mode="reflect")[0]])
    assert ": call(" in check(graph)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_along_any_axis(axis: int, log: bool) -> None:
    b = Builder()
    x = b.input("x", (5, 4, 7), "float32")
    graph = b.graph([b.emit("softmax", [x], axis=axis, log=log)[0]])
    assert ": call(" not in check(graph)


@pytest.mark.parametrize(("columns", "filled"), [(40, 4 * 44 + 4 * 6), (4, 10 * 8)])
def test_what_is_beside_wide_rows_is_filled_alone(columns: int, filled: int) -> None:
    """Of narrow ones the whole array is first."""
    b = Builder()
    x = b.input("x", (6, columns), "float32")
    graph = b.graph([b.emit("pad", [x], widths=((1, 3), (2, 2)), mode="constant")[0]])
    copies = re.findall(r"copy\(\d+ float32 \((\d+), (\d+)\)\)", check(graph))
    sizes = [int(rows) * int(width) for rows, width in copies]
    assert sizes[-1] == 6 * columns
    assert sum(sizes[:-1]) == filled
