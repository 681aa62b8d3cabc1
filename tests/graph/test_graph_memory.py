"""Weights are in memory once: networks share equal ones, and what was folded into them goes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dlprim.graph import Builder, Graph, interpret
from dlprim.graph.compiled import CompiledGraph, compile_graph
from dlprim.graph.graph import sorted_nodes
from dlprim.graph.lowering import sharing
from dlprim.graph.lowering.sharing import Weights, made_of, packed_once, passing, shared


def linear(rows: int, weights: np.ndarray) -> Graph:
    b = Builder()
    x = b.input("x", (rows, 128), "float32")
    y = b.matmul(x, b.constant(weights))
    return b.graph([b.apply("multiply", y, b.constant(np.full(96, 2, np.float32)))])


def convolution(rows: int, weights: np.ndarray) -> Graph:
    b = Builder()
    x = b.input("x", (rows, 32, 9, 9), "float32")
    geometry = {
        "strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilations": (1, 1), "groups": 1,
    }  # fmt: skip
    inputs = [x, b.constant(weights.reshape(-1, 32, 2, 2)), None]
    return b.graph([b.emit("convolution", inputs, **geometry)[0]])


def drawn(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((128, 96), np.float32)


@pytest.mark.parametrize("make", [linear, convolution])
def test_networks_for_other_shapes_have_the_same_weights(
    make: Callable[[int, np.ndarray], Graph],
) -> None:
    gc.collect()
    before = len(sharing._known)
    kept: list[CompiledGraph] = [compile_graph(make(4, drawn()))]
    once = len(sharing._known)
    assert once == before + 1
    kept += [compile_graph(make(rows, drawn())) for rows in (4, 8, 16)]
    assert len(sharing._known) <= once + 1  # another form at most
    kept.append(compile_graph(make(4, drawn(1))))
    assert len(sharing._known) > once
    kept.clear()
    gc.collect()
    assert len(sharing._known) == before


def test_what_weights_were_made_of_goes() -> None:
    weights = drawn()
    it = weakref.ref(weights)
    compiled = compile_graph(linear(4, weights))
    del weights
    gc.collect()
    assert it() is None
    assert not compiled.graph.constants


def test_only_equal_arrays_are_shared() -> None:
    first = np.zeros(4096, np.float32)
    assert shared(first) is first
    assert shared(first.copy()) is first
    assert shared(first.view(np.int32)) is not first
    assert shared(first.reshape(64, 64)) is not first
    other = first.copy()
    other[777] = 1  # between the elements that are looked at first
    assert shared(other) is other
    other[777] = -0.0
    assert shared(other) is other
    small = np.zeros(8, np.float32)
    assert shared(small) is small
    assert shared(np.zeros(8, np.float32)) is not small
    turned = np.zeros((64, 64), np.float32).T
    assert shared(turned) is turned


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8])
@pytest.mark.parametrize("size", [64, 300])
@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize("is_kept", [False, True])
def test_what_was_made_of_weights_is_made_again(
    dtype: Any, size: int, is_turned: bool, is_kept: bool
) -> None:
    source = np.random.default_rng(0).integers(-9, 9, (size, size)).astype(np.float32)
    made = 0

    def make() -> np.ndarray:
        nonlocal made
        made += 1
        array = passing((size, size), np.dtype(dtype))
        array[...] = 2 * source
        return np.array(array, order="F") if is_turned else array

    def weights() -> Weights:
        return Weights(made_of(make(), source, "twice", make)[3:].T)

    living = made_of(make(), source, "twice", make)
    first = Weights(living[3:].T)
    if not is_kept:
        del living
    gc.collect()
    form = packed_once(first, "form", np.array)
    assert made == (1 if is_kept else 2)  # nobody else keeps it
    np.testing.assert_array_equal(form, (2 * source)[3:].T.astype(dtype))
    assert packed_once(weights(), "form", np.array) is form


def test_a_table_that_is_a_factor_too_is_packed_in_bfloat16(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its rows are read as they are; sums that the network gives are not rounded."""
    monkeypatch.setattr("dlprim.graph.passes.algebra.MOST_FOLDED_BYTES", 1 << 10)
    table = np.random.default_rng(3).integers(-4, 5, (300, 64)).astype(np.float32)
    b = Builder()
    words, known = b.input("words", (7,), "int64"), b.constant(table)
    x = b.apply("multiply", b.gather(known, words, 0), b.constant(np.float32(0.5)))
    graph = b.graph([b.matmul(x, b.transpose(known, (1, 0)))])
    compiled = compile_graph(graph, dtype="bfloat16")
    assert "linear(" in compiled.explain()
    assert "formula" not in compiled.explain().partition("linear")[2]
    places = np.array([3, 299, 0, 17, 5, 4, 250])
    (y,) = compiled.run([places])
    np.testing.assert_array_equal(y, 0.5 * table[places] @ table.T)


def test_sums_that_are_asked_for_last_keep_nothing_of_what_they_are_of() -> None:
    """As gradients of biases, which are updated together."""
    b = Builder()
    rows, width, layers = 64, 128, 8
    x = b.input("x", (rows, width), "float32")
    sums = []
    for place in range(layers):
        w = b.input(f"w{place}", (width, width), "float32")
        x = b.matmul(x, w)
        # One reads it as it lies, the other by way of a view.
        sums.append(b.reduce("sum", x, (0,)))
        sums.append(b.reduce("sum", b.reshape(x, (rows // 2, 2 * width)), (0,)))
    graph = b.graph([b.reduce("sum", x, (0, 1)), b.concat(sums[::-1], 0)])
    first = sorted_nodes(graph.outputs[:1], graph.nodes)
    graph = replace(graph, nodes=(*first, *(it for it in graph.nodes if it not in first)))
    compiled = compile_graph(graph)
    one = 4 * rows * width
    assert compiled.peak_bytes <= 3 * one
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(it.shape, np.float32) / 11 for it in graph.inputs]
    for found, right in zip(compiled.run(arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-3, atol=1e-3)
