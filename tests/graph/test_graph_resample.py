"""Sums of elements at listed places, of images in blocks and of other arrays."""

from __future__ import annotations

import numpy as np
import pytest

from dlprim.graph import Builder, Graph, Value, interpret
from dlprim.graph.compiled import compile_graph

GEOMETRY = {
    "strides": (1, 1),
    "dilations": (1, 1),
    "padding": ((0, 0), (0, 0)),
    "groups": 1,
}
# Twice the same at the rim, side by side, further apart, and one alone.
PLACES = np.array([[0, 0], [0, 1], [1, 4], [3, 4], [4, 4], [2, 2]])
WEIGHTS = np.array([[0.25, 0.75], [0.5, 0.5], [1.5, -0.5], [0.1, 0.9], [1, 0], [0, 1]])


def resampled(b: Builder, x: Value, axis: int) -> Value:
    taps = [b.constant(PLACES), b.constant(WEIGHTS.astype(np.float32))]
    return b.emit("resample", [x, *taps], axis=axis)[0]


def images(axes: tuple[int, ...], is_blocked: bool) -> Graph:
    b = Builder()
    y = x = b.input("x", (2, 16, 5, 5), "float32")
    if is_blocked:
        w = np.random.default_rng(1).standard_normal((16, 16, 1, 1)).astype(np.float32)
        y = b.emit("convolution", [x, b.constant(w), None], **GEOMETRY)[0]
    for axis in axes:
        y = resampled(b, y, axis)
    return b.graph([y])


@pytest.mark.parametrize("is_blocked", [True, False])
@pytest.mark.parametrize("axes", [(2,), (3,), (2, 3), (-1, -2), (2, 1)])
def test_compiled_sums_are_those_of_the_interpreter(
    axes: tuple[int, ...], is_blocked: bool
) -> None:
    graph = images(axes, is_blocked)
    x = np.random.default_rng(2).standard_normal((2, 16, 5, 5)).astype(np.float32)
    compiled = compile_graph(graph)
    np.testing.assert_allclose(compiled.run([x])[0], interpret(graph, [x])[0], rtol=1e-5, atol=1e-5)
    described = compiled.explain()
    assert ("resample(" in described) == (is_blocked and axes[0] != 1)
    assert "call(" not in described


@pytest.mark.parametrize("taps", [1, 2, 4, 5])
@pytest.mark.parametrize("shape", [(2, 3, 7, 5), (3, 5), (4, 1, 5), (5,)])
def test_the_last_axis_is_summed_in_rows(shape: tuple[int, ...], taps: int) -> None:
    """Where there are others: a place at a time is read, and what lies there as vectors."""
    generator = np.random.default_rng(0)
    b = Builder()
    x = b.input("x", shape, "float32")
    places = generator.integers(0, 5, (8, taps))
    weights = generator.standard_normal((8, taps)).astype(np.float32)
    y = b.emit("resample", [x, b.constant(places), b.constant(weights)], axis=-1)[0]
    graph, array = b.graph([y]), generator.standard_normal(shape).astype(np.float32)
    compiled = compile_graph(graph)
    found, right = compiled.run([array])[0], interpret(graph, [array])[0]
    np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)
    assert ("in rows: copy" in compiled.explain()) == (len(shape) > 1)


def test_places_beside_an_infinity_are_not_read() -> None:
    b = Builder()
    x = b.input("x", (2, 3, 5), "float32")
    places = b.constant(np.array([[0], [2], [4], [4]]))
    weights = b.constant(np.ones((4, 1), np.float32))
    compiled = compile_graph(b.graph([b.emit("resample", [x, places, weights], axis=2)[0]]))
    array = np.full((2, 3, 5), np.inf, np.float32)
    array[..., ::2] = 1
    np.testing.assert_array_equal(compiled.run([array])[0], np.ones((2, 3, 4), np.float32))


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_elements_that_follow_themselves_are_copied(axis: int, times: int) -> None:
    b = Builder()
    x = b.input("x", (3, 40, 70), "float32")
    places = b.constant(np.repeat(np.arange(x.shape[axis]), times)[:, None])
    weights = b.constant(np.ones((times * x.shape[axis], 1), np.float32))
    y = b.emit("resample", [b.transpose(x, (0, 2, 1)), places, weights], axis=(0, 2, 1)[axis])[0]
    compiled = compile_graph(b.graph([y]))
    array = np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)
    right = np.repeat(array, times, axis).transpose(0, 2, 1)
    np.testing.assert_array_equal(compiled.run([array])[0], right)
    assert "formula" not in compiled.explain()


@pytest.mark.parametrize(
    ("stride", "taps", "dilation"), [(2, 2, 1), (3, 2, 2), (2, 3, 1), (4, 9, 1)]
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("axis", [1, 2])
def test_taps_at_one_distance(axis: int, dtype: str, stride: int, taps: int, dilation: int) -> None:
    """Rows are read in phases of the stride, with a weight for each tap of each result."""
    generator = np.random.default_rng(0)
    b = Builder()
    x = b.input("x", (3, 45, 70), dtype)
    results = (x.shape[axis] - 1 - dilation * (taps - 1) - 1) // stride + 1
    places = 1 + stride * np.arange(results)[:, None] + dilation * np.arange(taps)
    weights = generator.standard_normal(places.shape).astype(np.float32)
    y = b.emit("resample", [x, b.constant(places), b.constant(weights)], axis=axis)[0]
    graph = b.graph([y])
    array = generator.standard_normal(x.shape).astype(x.dtype)
    compiled = compile_graph(graph)
    made = [it.astype(np.float32) for it in (*compiled.run([array]), *interpret(graph, [array]))]
    close = 1e-5 if dtype == "float32" else 2e-2
    np.testing.assert_allclose(*made, rtol=close, atol=close)
    rows = np.moveaxis(array.astype(np.float64), axis, 1)[:, places]
    right = np.moveaxis(np.einsum("nrt...,rt->nr...", rows, weights), 1, axis)
    np.testing.assert_allclose(made[0], right, rtol=close, atol=10 * close)
    assert "call(" not in compiled.explain()


@pytest.mark.parametrize("times", [(2, 2), (3, 2), (2, 1), (5, 3), (1, 4)])
@pytest.mark.parametrize("axes", [(2, 1), (1, 2), (0, 2), (1, 1)])
@pytest.mark.parametrize("is_read", [False, True])
def test_elements_that_are_repeated_again(
    is_read: bool, axes: tuple[int, int], times: tuple[int, int]
) -> None:
    """Copied once, unless what is between is read elsewhere."""
    b = Builder()
    y = x = b.input("x", (3, 20, 33), "float32")
    array = np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)
    results, right = [], [array]
    for axis, count in zip(axes, times, strict=True):
        places = b.constant(np.repeat(np.arange(y.shape[axis]), count)[:, None])
        weights = b.constant(np.ones((count * y.shape[axis], 1), np.float32))
        y = b.emit("resample", [y, places, weights], axis=axis)[0]
        results.append(y)
        right.append(np.repeat(right[-1], count, axis))
    compiled = compile_graph(b.graph(results if is_read else results[-1:]))
    for found, expected in zip(compiled.run([array])[::-1], right[::-1], strict=False):
        np.testing.assert_array_equal(found, expected)


def test_what_changes_between_is_repeated_as_it_was() -> None:
    b = Builder()
    state = b.input("state", (3, 20, 33), "float32")
    y = state
    for axis in (2, 1):
        places = b.constant(np.repeat(np.arange(y.shape[axis]), 2)[:, None])
        weights = b.constant(np.ones((2 * y.shape[axis], 1), np.float32))
        y = b.emit("resample", [y, places, weights], axis=axis)[0]
        if axis == 2:
            added = b.map(("add", ("input", 0), ("number", 1.0)), state)
    array = np.random.default_rng(0).standard_normal(state.shape).astype(np.float32)
    changed = array.copy()
    (found,) = compile_graph(b.graph([y], {state: added})).run([changed])
    np.testing.assert_array_equal(found, array.repeat(2, 1).repeat(2, 2))
    np.testing.assert_array_equal(changed, array + 1)


@pytest.mark.parametrize("times", [2, 3])
@pytest.mark.parametrize("axes", [(1, 0, 1), (0, 1, 0), (1, 0, 1, 0)])
def test_repeats_of_repeats_of_repeats(axes: tuple[int, ...], times: int) -> None:
    b = Builder()
    y = b.input("x", (8, 64), "float32")
    for axis in axes:
        extent = y.shape[axis]
        places = b.constant(np.repeat(np.arange(extent), times)[:, None])
        ones = b.constant(np.ones((times * extent, 1), np.float32))
        y = b.emit("resample", [y, places, ones], axis=axis)[0]
    x = np.random.default_rng(3).standard_normal((8, 64)).astype(np.float32)
    right = x
    for axis in axes:
        right = np.repeat(right, times, axis)
    assert np.array_equal(compile_graph(b.graph([y])).run([x])[0], right)
