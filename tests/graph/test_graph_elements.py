"""Steps on elements at places, along axes and in order, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dlprim
from dlprim.graph import Builder, Graph, interpret
from dlprim.graph.compiled import compile_graph

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def drawn(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    if dtype == "bool":
        return generator.random(shape) < 0.5
    if dtype in INTEGERS:
        return generator.integers(0, 100, shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype_of(dtype))


def run(graph: Graph, arrays: list[np.ndarray], threads: int = 1) -> list[np.ndarray]:
    compiled = compile_graph(graph)
    assert ": call(" not in compiled.explain()
    with dlprim.threads(threads):
        return compiled.run(arrays)


def called(function: str, arrays: list[np.ndarray], results: Any, **attributes: Any) -> Graph:
    b = Builder()
    inputs = [b.input(f"x{at}", it.shape, it.dtype) for at, it in enumerate(arrays)]
    return b.graph(b.call(function, inputs, results, **attributes))


def same(graph: Graph, arrays: list[np.ndarray]) -> None:
    """As NumPy computes it, by one thread and by two."""
    for threads in (1, 2):
        for found, right in zip(run(graph, arrays, threads), interpret(graph, arrays), strict=True):
            assert found.dtype == right.dtype
            np.testing.assert_array_equal(found, right)


# ---------------------------------------------------------------- elements at places


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "int64"])
def test_gathered_elements(dtype: str, axis: int) -> None:
    x = drawn(dtype, (5, 40, 7))
    shape = [5, 31, 3]
    shape[axis] = 90
    places = np.random.default_rng(1).integers(-x.shape[axis], x.shape[axis], shape)
    result = [(tuple(shape), x.dtype)]
    same(called("gather_elements", [x, places], result, axis=axis), [x, places])
    narrow = places.astype(np.int32)
    same(called("gather_elements", [x, narrow], result, axis=axis), [x, narrow])


@pytest.mark.parametrize(
    ("shape", "batch", "depth"),
    [((9,), 0, 1), ((9,), 0, 3), ((4, 9), 1, 1), ((4, 6, 9), 2, 1), ((300,), 0, 2), ((9,), 0, 0)],
)
def test_gathered_rows(shape: tuple[int, ...], batch: int, depth: int) -> None:
    x = drawn("float32", (4, 6, 5))
    generator = np.random.default_rng(1)
    columns = [generator.integers(-n, n, shape) for n in x.shape[batch : batch + depth]]
    places = np.stack(columns, -1) if columns else np.zeros((*shape, 0), np.int64)
    whole = (*shape, *x.shape[batch + depth :])
    same(called("gather_nd", [x, places], [(whole, x.dtype)], batch_dims=batch), [x, places])


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("how", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float16", "float32", "float64"])
def test_scattered_elements(dtype: str, how: str, axis: int) -> None:
    """Updates of one element follow each other in the order of the indices."""
    x = drawn(dtype, (6, 40, 7))
    shape = [5, 31, 3]
    shape[axis] = 90
    places = np.random.default_rng(1).integers(-x.shape[axis], x.shape[axis], shape)
    updates = drawn(dtype, tuple(shape), 2)
    arrays = [x, places, updates]
    graph = called("scatter_elements", arrays, [(x.shape, x.dtype)], axis=axis, how=how)
    same(graph, arrays)


@pytest.mark.parametrize("how", ["none", "add", "max"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_scattered_rows(depth: int, how: str) -> None:
    x = drawn("float32", (12, 9, 33))
    columns = [np.random.default_rng(at).integers(-n, n, 200) for at, n in enumerate(x.shape)]
    places = np.stack(columns[:depth], -1)
    updates = drawn("float32", (200, *x.shape[depth:]), 2)
    arrays = [x, places, updates]
    same(called("scatter_nd", arrays, [(x.shape, x.dtype)], how=how), arrays)


@pytest.mark.parametrize("place", [5, -6])
def test_places_outside_are_refused(place: int) -> None:
    x, places = drawn("float32", (5, 4)), np.array([[0], [place]])
    graph = called("gather_nd", [x, places], [((2, 4), x.dtype)], batch_dims=0)
    with pytest.raises(IndexError, match=f"index {place} is outside of 5 elements"):
        run(graph, [x, places])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gathers_along_any_axis(axis: int) -> None:
    x, places = drawn("float32", (3, 50, 6)), np.array([[0, -1, 2], [2, 1, -3]])
    b = Builder()
    inputs = [b.input("x", x.shape, x.dtype), b.input("i", places.shape, places.dtype)]
    same(b.graph([b.gather(inputs[0], inputs[1], axis)]), [x, places])


# ---------------------------------------------------------------- in order


def top(x: np.ndarray, axis: int, k: int, largest: bool) -> Graph:
    shape = list(x.shape)
    shape[axis] = k
    results = [(tuple(shape), x.dtype), (tuple(shape), np.dtype(np.int64))]
    return called("top_k", [x], results, axis=axis, k=k, largest=largest)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 10, 32, 33, 300])
@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "bfloat16", "float32", "float64"])
def test_top(dtype: str, k: int, largest: bool) -> None:
    """Sizes of scores of a detector, with many that are equal in narrow types."""
    x = drawn(dtype, (3, 900))
    same(top(x, 1, k, largest), [x])


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_top_along_any_axis(axis: int, largest: bool) -> None:
    x = drawn("float32", (7, 40, 9))
    same(top(x, axis, 5, largest), [x])


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 9, 16])
def test_top_of_long_rows(k: int, largest: bool) -> None:
    """Rows of zeros, of two values, of the smallest numbers, in order, and with a few infinite or
    no numbers: what is sought first is the best of every place among 32 neighbours."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((9, 519)).astype(np.float32)
    x[0] = 0
    x[1] = rng.choice(np.array([-0.0, 0.0, 1.0], np.float32), 519)
    x[2] *= np.float32(1e-40)
    x[3].sort()
    x[4] = -np.sort(-x[4])
    x[5, 100:140] = np.nan
    x[6, :40] = np.inf
    x[7, 3::32] = -np.inf
    same(top(x, 1, k, largest), [x])


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [3, 40, 120])
def test_top_of_what_is_no_number(k: int, largest: bool) -> None:
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0], np.float32)
    x = np.random.default_rng(0).choice(special, (6, 120))
    x[1] = np.nan
    same(top(x, 1, k, largest), [x])


# ---------------------------------------------------------------- along axes


@pytest.mark.parametrize("function", ["sum", "product", "max", "min"])
@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "int64", "uint64"])
def test_reductions_of_integers(dtype: str, axes: tuple[int, ...], function: str) -> None:
    x = drawn(dtype, (3, 40, 7))
    b = Builder()
    graph = b.graph([b.reduce(function, b.input("x", x.shape, x.dtype), axes)])
    same(graph, [x])


@pytest.mark.parametrize("function", ["sum", "mean", "product", "max", "min"])
@pytest.mark.parametrize("axes", [(1,), (2,), (0, 2)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_reductions_of_floats(dtype: str, axes: tuple[int, ...], function: str) -> None:
    x = drawn(dtype, (3, 40, 17))
    b = Builder()
    graph = b.graph([b.reduce(function, b.input("x", x.shape, x.dtype), axes, keepdims=True)])
    (found,), (right,) = run(graph, [x]), interpret(graph, [x])
    assert found.dtype == right.dtype
    unit = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-22, "float64": 2.0**-50}
    atol = unit[dtype] * np.abs(right.astype(np.float64)).max()
    found, right = found.astype(np.float64), right.astype(np.float64)
    np.testing.assert_allclose(found, right, unit[dtype], atol)


@pytest.mark.parametrize("function", ["sum", "product", "max", "min", "mean"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_reductions_of_nothing(dtype: str, function: str) -> None:
    b = Builder()
    graph = b.graph([b.reduce(function, b.input("x", (3, 0, 2), dtype), (1,))])
    same(graph, [np.zeros((3, 0, 2), dtype)])


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("function", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "float32", "float64"])
def test_places_of_extremes(dtype: str, axis: int, function: str, last: bool) -> None:
    x = drawn(dtype, (4, 50, 6))
    shape = tuple(1 if at == axis else n for at, n in enumerate(x.shape))
    same(called(function, [x], [(shape, np.dtype(np.int64))], axis=axis, last=last), [x])
    if dtype == "float32":
        x[1:, 3:30:4] = np.nan
        x[0] = 0.0
        same(called(function, [x], [(shape, np.dtype(np.int64))], axis=axis, last=last), [x])


@pytest.mark.parametrize("function", ["running_sum", "running_product"])
@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("reverse", [True, False])
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_running(dtype: str, reverse: bool, exclusive: bool, function: str) -> None:
    x = drawn(dtype, (3, 12, 5))
    how = {"reverse": reverse, "exclusive": exclusive}
    for axis in range(3):
        same(called(function, [x], [(x.shape, x.dtype)], axis=axis, **how), [x])
