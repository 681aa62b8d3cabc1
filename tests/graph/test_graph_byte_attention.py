"""Attention of quantised arrays: recognised, computed as its pieces are, on the same bits."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from byte_graphs import Bytes
from hypothesis import given
from hypothesis import strategies as st

import dlprim
from dlprim.graph import Graph, Value, interpret
from dlprim.graph.compiled import compile_graph
from dlprim.graph.passes import optimized
from dlprim.graph.verify import verify

U8, S8 = ("uint8", 130), ("int8", 3)
STEP = 0.02  # of q, k and v


class Case(NamedTuple):
    """Kinds are a dtype and a zero point."""

    shape: tuple[int, ...] = (2, 3, 17, 33, 20, 12)  # batch, heads, queries, keys, sizes
    q: tuple[str, int] = U8
    k: tuple[str, int] = U8
    v: tuple[str, int] = U8
    scores: tuple[str, int] | None = ("uint8", 121)
    weights: tuple[str, int] = ("uint8", 0)
    y: tuple[str, int] | None = ("uint8", 125)
    mask: str = "none"
    keys_are_columns: bool = False


CASES = {
    "plain": Case(),
    "signed": Case(q=S8, k=S8, v=S8, scores=S8, weights=("int8", -128), y=S8),
    "no zero points": Case(q=("int8", 0), k=("int8", 0), v=("int8", 0), scores=("int8", 0)),
    "zero points of 128": Case(q=("uint8", 128), k=("uint8", 128), v=("uint8", 128)),
    "mixed": Case(q=S8, v=S8, weights=("uint8", 7), y=("int8", -20)),
    "scores as they are": Case(scores=None),
    "a float result": Case(y=None),
    "padding": Case(mask="padding"),
    "hidden rows": Case(mask="rows"),
    "causal": Case(mask="causal", shape=(1, 2, 37, 37, 16, 16)),
    "keys as columns": Case(keys_are_columns=True),
    "signed columns": Case(k=S8, keys_are_columns=True, mask="padding"),
    "one query": Case((2, 3, 1, 33, 20, 12)),
    "one key": Case((1, 2, 5, 1, 20, 12)),
    "one of all": Case((1, 1, 1, 1, 1, 1)),
    "odd": Case((1, 2, 67, 129, 13, 7), mask="padding"),
    "long": Case((1, 1, 130, 1100, 64, 64)),
    "three axes": Case((6, 17, 33, 20, 12)),
}


def mask_of(b: Bytes, case: Case) -> Value:
    *_, queries, keys, _, _ = case.shape
    if case.mask == "causal":
        hidden = np.triu(np.full((queries, keys), -np.inf, np.float32), 1)
        return b.constant(hidden, "mask")
    rows = queries if case.mask == "rows" else 1
    return b.input("mask", (1, 1, rows, keys), "float32")


def graph_of(case: Case) -> Graph:
    b = Bytes()
    *leading, queries, keys, size, values = case.shape
    outer = tuple(leading)

    def operand(name: str, rows: int, columns: int, kind: tuple[str, int]) -> Value:
        return b.dequantize(b.input(name, (*outer, rows, columns), kind[0]), STEP, kind[1])

    def paired(x: Value, scale: float, kind: tuple[str, int]) -> Value:
        return b.dequantize(b.quantize(x, scale, kind[1], kind[0]), scale, kind[1])

    q, v = operand("q", queries, size, case.q), operand("v", keys, values, case.v)
    if case.keys_are_columns:
        k = operand("k", size, keys, case.k)
    else:
        axes = (*range(len(leading)), len(leading) + 1, len(leading))
        k = b.transpose(operand("k", keys, size, case.k), axes)
    x = b.matmul(q, k)
    if case.scores is not None:
        x = paired(x, 0.1513 * size**0.5, case.scores)  # no sum lies between two steps
    x = b.apply("multiply", x, b.constant(np.float32(size**-0.5)))
    if case.mask != "none":
        x = b.apply("add", x, mask_of(b, case))
    p = b.emit("softmax", [x], axis=-1, log=False)[0]
    y = b.matmul(paired(p, 0.00393, case.weights), v)
    return b.graph([y if case.y is None else b.quantize(y, 0.6 * STEP, case.y[1], case.y[0])])


def arrays_of(graph: Graph, case: Case) -> list[Any]:
    generator = np.random.default_rng(0)
    arrays: list[Any] = []
    for value in graph.inputs:
        if value.dtype.kind in "iu":
            limits = np.iinfo(value.dtype.name)
            whole = generator.integers(limits.min, limits.max, value.shape, value.dtype, True)
            arrays.append(whole)
        elif value.name != "mask":
            arrays.append(generator.standard_normal(value.shape).astype(np.float32))
        else:
            mask = np.where(generator.random(value.shape) < 0.7, np.float32(0), np.float32(-3e38))
            if case.mask == "rows":
                mask[..., 3, :] = -3e38
            arrays.append(mask)
    return arrays


def assert_near(found: Any, expected: Any) -> None:
    """A step apart at most, where a weight or a result lies between two of them."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    step = 1 if found.dtype.kind in "iu" else 0.6 * STEP
    difference = np.abs(found.astype(np.float64) - expected) / step
    assert difference.max() <= 1
    assert (difference > 1e-3).mean() < 0.01


@pytest.mark.parametrize("name", CASES)
def test_it_is_recognised_and_keeps_values(name: str) -> None:
    graph = graph_of(CASES[name])
    found = optimized(graph)
    verify(found)
    operators = [it.operator for it in found.nodes if it.operator not in ("transpose", "reshape")]
    behind = ["quantize"] if name == "three axes" else []  # of a float result that is reshaped
    assert operators == ["quantized_attention", *behind]
    arrays = arrays_of(graph, CASES[name])
    (expected,) = interpret(graph, arrays)
    assert_near(interpret(found, arrays)[0], expected)
    compiled = compile_graph(graph)
    assert "byte_attention" in compiled.explain()
    assert_near(compiled.run(arrays)[0], expected)


@given(*[st.sampled_from((1, 2, 3, 5, 16, 31, 65))] * 4, st.sampled_from(["none", "padding"]))
def test_any_shape(queries: int, keys: int, size: int, values: int, mask: str) -> None:
    case = Case((1, 2, queries, keys, size, values), mask=mask)
    graph = graph_of(case)
    arrays = arrays_of(graph, case)
    assert_near(compile_graph(graph).run(arrays)[0], interpret(graph, arrays)[0])


@pytest.mark.parametrize("name", ["plain", "long", "causal"])
def test_same_bits_for_any_number_of_threads(name: str) -> None:
    graph = graph_of(CASES[name])
    arrays, made = arrays_of(graph, CASES[name]), []
    for count in (1, 2, 3):
        with dlprim.threads(count):
            made.append(compile_graph(graph).run(arrays)[0])
    assert all(np.array_equal(made[0], it) for it in made[1:])


def changed(what: str) -> Graph:
    """Attention but for one thing."""
    b = Bytes()
    q, k, v = (
        b.dequantize(b.input(name, (1, 2, 8, 8), "uint8"), STEP, 130) for name in ("q", "k", "v")
    )
    x = b.matmul(q, b.transpose(k, (0, 1, 3, 2)))
    if what == "float scores":
        x = b.matmul(b.input("z", (1, 2, 8, 8), "float32"), b.transpose(k, (0, 1, 3, 2)))
    rounded = b.dequantize(b.quantize(x, 0.1, 100), 0.1, 101 if what == "another pair" else 100)
    p = b.emit("softmax", [rounded], axis=-2 if what == "another axis" else -1, log=False)[0]
    weights = b.dequantize(
        b.quantize(p, 2.0**-40 if what == "tiny steps" else 1 / 255, 0), 1 / 255, 0
    )
    if what == "float weights":
        weights = p
    y = b.matmul(weights, v)
    return b.graph([b.apply("add", y, p) if what == "weights are read" else y])


@pytest.mark.parametrize(
    "what",
    [
        "float scores", "another pair", "another axis", "tiny steps", "float weights",
        "weights are read",
    ],
)  # fmt: skip
def test_what_is_not_quite_that_stays(what: str) -> None:
    graph = changed(what)
    assert "quantized_attention" not in [it.operator for it in optimized(graph).nodes]
    arrays = arrays_of(graph, Case())
    (expected,) = interpret(graph, arrays)
    (found,) = compile_graph(graph).run(arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2 / 255 * 2.6)
