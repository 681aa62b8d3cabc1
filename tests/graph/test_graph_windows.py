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
    "a column": ((2, 3, 7, 1), {"kernel": (3, 1), "strides": (2, 1), "counts": (3, 1)}),
    "a far column": (
        (2, 3, 7, 1),
        {"kernel": (3, 1), "strides": (2, 1), "dilations": (2, 1), "counts": (2, 1)},
    ),
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


# Kernel, strides, padding, dilations: in phases of a stride, and beyond the end of a row.
ROWS: list[tuple[Any, ...]] = [
    ((5, 5), (1, 1), ((2, 2), (2, 2)), (1, 1)),
    ((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1)),
    ((3, 3), (2, 3), ((0, 0), (0, 0)), (1, 1)),
    ((1, 4), (1, 2), ((0, 0), (0, 0)), (1, 3)),
    ((2, 3), (3, 4), ((1, 0), (1, 1)), (2, 2)),
    ((9, 2), (1, 5), ((4, 4), (0, 0)), (1, 1)),
    ((2, 11), (1, 3), ((0, 0), (5, 5)), (1, 1)),
]


@pytest.mark.parametrize("geometry", ROWS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("function", ["max", "mean"])
def test_windows_along_rows(function: str, dtype: str, geometry: tuple[Any, ...]) -> None:
    """One axis after the other, beside what NumPy makes of all taps; what is no number stays."""
    kernel, strides, padding, dilations = geometry
    b = Builder()
    x = b.input("x", (2, 3, 21, 67), dtype)
    outer = zip(x.shape[2:], kernel, strides, padding, dilations, strict=True)
    counts = tuple((n + sum(pads) - d * (k - 1) - 1) // s + 1 for n, k, s, pads, d in outer)
    how = {"kernel": kernel, "strides": strides, "padding": padding, "dilations": dilations}
    y = b.emit("pool", [x], function=function, counts_padding=False, counts=counts, **how)[0]
    graph = b.graph([y])
    array = np.random.default_rng(0).standard_normal(x.shape).astype(x.dtype)
    array[0, 1, 7, 5], array[1, 2, 20, 66] = np.nan, np.inf
    compiled = compile_graph(graph)
    (found,), (right,) = compiled.run([array]), interpret(graph, [array])
    rtol = {"float32": 1e-5, "bfloat16": 1e-2, "float16": 2e-3}[dtype]
    both = (it.astype(np.float32) for it in (found, right))
    np.testing.assert_allclose(*both, rtol=0 if function == "max" else rtol, atol=rtol / 5)
    assert ": call(" not in compiled.explain()


def test_windows_along_rows_of_pixels_behind_channels() -> None:
    b = Builder()
    x = b.input("x", (2, 40, 33, 6), "float32")
    how = {"kernel": (3, 2), "strides": (1, 1), "padding": ((1, 1), (0, 0)), "dilations": (1, 1)}
    turned = b.transpose(x, (0, 3, 1, 2))
    y = b.emit("pool", [turned], function="max", counts_padding=False, counts=(40, 32), **how)[0]
    check(b.graph([b.transpose(y, (0, 2, 3, 1))]))


@pytest.mark.parametrize("function", ["max", "mean"])
def test_windows_along_columns_that_lie_in_rows(function: str) -> None:
    """The last that is read of a column is the last of the array."""
    b = Builder()
    x = b.input("x", (1, 3, 7, 41), "float32")
    how = {"kernel": (3, 2), "strides": (2, 2), "padding": ((0, 0),) * 2, "dilations": (1, 1)}
    turned = b.transpose(x, (0, 1, 3, 2))
    y = b.emit("pool", [turned], function=function, counts_padding=False, counts=(20, 3), **how)[0]
    check(b.graph([y]))


# Channels, stride, readers' filters, and whether rows are read as they lie.
PLAIN: list[tuple[int, int, bool, bool]] = [
    (3, 2, False, True),
    (64, 1, False, True),
    (64, 2, False, False),
    (64, 1, True, False),
]


@pytest.mark.parametrize(("channels", "stride", "is_filtered", "is_in_rows"), PLAIN)
def test_maxima_are_of_rows_where_blocks_gain_nothing(
    channels: int, stride: int, is_filtered: bool, is_in_rows: bool
) -> None:
    b = Builder()
    x = b.input("x", (1, channels, 40, 40), "float32")
    how = {"kernel": (2, 2), "strides": (stride,) * 2, "padding": ((0, 0),) * 2}
    counts = (38 // stride + 1,) * 2
    given = {**how, "dilations": (1, 1), "counts": counts, "counts_padding": False}
    y = b.emit("pool", [x], function="max", **given)[0]
    if is_filtered:
        w = b.constant(np.ones((16, channels, 1, 1), np.float32))
        alone = {"strides": (1, 1), "dilations": (1, 1), "padding": ((0, 0),) * 2, "groups": 1}
        y = b.emit("convolution", [y, w, None], **alone)[0]
    assert (": pool(" in check(b.graph([y]))) != is_in_rows


def test_windows_of_nothing() -> None:
    b = Builder()
    x = b.input("x", (0, 3, 40, 40), "float16")
    how = {"kernel": (3, 3), "strides": (1, 1), "padding": ((1, 1),) * 2, "dilations": (1, 1)}
    y = b.emit("pool", [x], function="max", counts_padding=False, counts=(40, 40), **how)[0]
    check(b.graph([y]))


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
