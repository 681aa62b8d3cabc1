"""Caches of keys and values in graphs: written where they lie, read as far as they are filled."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dlprim.graph import Builder, Graph, interpret
from dlprim.graph.compiled import compile_graph
from dlprim.graph.verify import verify
from drawing import RNG
from networks import drawn

BF16 = np.dtype(ml_dtypes.bfloat16)
MASKS: dict[str, Any] = {
    "none": lambda n, h, q, k: None,
    "bool": lambda n, h, q, k: RNG.random((n, 1, 1, k)) < 0.7,
    "added": lambda n, h, q, k: drawn(n, h, q, k),
}


def attending(
    shape: tuple[int, ...], dtype: Any, mask: np.ndarray | None, **how: Any
) -> tuple[Graph, list[np.ndarray]]:
    n, heads, kv_heads, queries, places, size = shape
    b = Builder()
    arrays = [drawn(n, heads, queries, size, seed=1)]
    arrays += [drawn(n, kv_heads, places, size, seed=seed) for seed in (2, 3)]
    arrays = [it.astype(dtype) for it in arrays]
    inputs = [b.input(name, it.shape, it.dtype) for name, it in zip("qkv", arrays, strict=True)]
    inputs.append(b.input("fill", (n,), "int64"))
    if mask is not None:
        inputs.append(b.input("mask", mask.shape, mask.dtype))
    how = {"scale": 0.3, "softcap": 0.0, "causal": False, "window": 0, **how}
    return b.graph(b.emit("filled_attention", inputs, **how)), arrays


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", [np.float32, BF16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(
    "how", [{}, {"causal": True}, {"causal": True, "window": 4}, {"softcap": 2.0}], ids=str
)
def test_attention_to_filled_places(how: dict[str, Any], dtype: Any, mask: str) -> None:
    shape = (2, 4, 2, 3, 70, 24)
    n, heads, _, queries, places, _ = shape
    hidden = MASKS[mask](n, heads, queries, places)
    graph, arrays = attending(shape, dtype, hidden, **how)
    verify(graph)
    compiled = compile_graph(graph)
    assert "call(" not in compiled.explain()
    bound = 2e-5 if dtype == np.float32 else 2e-2
    for fill in ([70, 3], [1, 0], [41, 69]):
        given = [it.copy() for it in arrays]
        for cache in given[1:]:
            for rows, count in zip(cache, fill, strict=True):
                rows[:, count:] = np.nan
        given.append(np.array(fill))
        given += [] if hidden is None else [hidden]
        (right,), (found,) = interpret(graph, given), compiled.run(given)
        np.testing.assert_allclose(
            found.astype(np.float32), right.astype(np.float32), rtol=bound, atol=bound
        )


def decoding(n: int = 2, rows: int = 1, places: int = 40) -> Graph:
    """Rows of x go to both caches behind what is there, and all of it is looked at."""
    b = Builder()
    x = b.input("x", (n, 2, rows, 16), "float32")
    caches = [b.input(name, (n, 2, places, 16), "float32") for name in "kv"]
    first = b.input("first", (n,), "int64")
    fill = b.map(("add", ("input", 0), ("number", float(rows))), first, dtype=np.int64)
    made = [
        b.emit("placed_rows", [cache, b.apply(name, x), first])[0]
        for cache, name in zip(caches, ("tanh", "exp"), strict=True)
    ]
    how = {"scale": 0.25, "softcap": 0.0, "causal": True, "window": 0}
    y = b.emit("filled_attention", [x, *made, fill], **how)
    return b.graph(y, dict(zip(caches, made, strict=True)))


@pytest.mark.parametrize("rows", [1, 3])
def test_a_cache_that_is_a_state_is_written_in_place(rows: int) -> None:
    graph = decoding(rows=rows)
    verify(graph)
    compiled = compile_graph(graph)
    explained = compiled.explain()
    assert explained.count("placed_rows(") == 2
    assert "changed" not in explained
    assert "as it was" not in explained
    assert compiled.peak_bytes < 2 * 2 * 40 * 16 * 4  # less than a cache
    right = [np.full((2, 2, 40, 16), np.nan, np.float32) for _ in "kv"]
    found = [it.copy() for it in right]
    for step in range(5):
        first = np.array([rows * step, 20 + rows * step])
        x = drawn(2, 2, rows, 16, seed=step)
        if step == 0:
            for caches in (right, found):
                for it in caches:
                    it[1, :, :20] = drawn(2, 20, 16, seed=9)
        (expected,) = interpret(graph, [x, *right, first])
        (got,) = compiled.run([x, *found, first])
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)
        for one, other in zip(found, right, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


def test_a_cache_that_is_no_state_stays_as_it_was() -> None:
    b = Builder()
    cache, rows = (
        b.input("cache", (1, 2, 9, 4), "float32"),
        b.input("rows", (1, 2, 2, 4), "float32"),
    )
    first = b.input("first", (1,), "int64")
    made = b.emit("placed_rows", [cache, rows, first])[0]
    graph = b.graph([made, b.apply("exp", cache)])
    given = [drawn(1, 2, 9, 4), drawn(1, 2, 2, 4, seed=1), np.array([7])]
    before = given[0].copy()
    expected, found = interpret(graph, given), compile_graph(graph).run(given)
    assert np.array_equal(given[0], before)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("place", [-1, 40])
def test_a_place_that_is_none_is_refused_and_states_stay(place: int) -> None:
    graph = decoding()
    compiled = compile_graph(graph)
    caches = [drawn(2, 2, 40, 16, seed=it) for it in (1, 2)]
    before = [it.copy() for it in caches]
    for run in (compiled.run, lambda arrays: interpret(graph, arrays)):
        with pytest.raises(IndexError, match=f"of 40 places has none for 1 rows from {place} on"):
            run([drawn(2, 2, 1, 16), *caches, np.array([0, place])])
        assert all(np.array_equal(*it) for it in zip(caches, before, strict=True))


@pytest.mark.parametrize(
    ("operator", "shapes", "sentence"),
    [
        ("placed_rows", [(1, 2, 9, 4), (1, 3, 2, 4), (1,)], "do not fit a cache"),
        ("placed_rows", [(1, 2, 9, 4), (1, 2, 2, 4), (2,)], r"expected int64 of \[1\]"),
        ("filled_attention", [(1, 2, 1, 4), (1, 2, 9, 4), (1, 2, 9, 4), ()], "expected int64"),
    ],
)
def test_what_does_not_fit_is_refused(
    operator: str, shapes: list[tuple[int, ...]], sentence: str
) -> None:
    b = Builder()
    *floats, counts = shapes
    inputs = [b.input(str(at), shape, "float32") for at, shape in enumerate(floats)]
    inputs.append(b.input("counts", counts, "int64"))
    how = {"scale": 1.0, "softcap": 0.0, "causal": False, "window": 0}
    with pytest.raises(ValueError, match=sentence):
        b.emit(operator, inputs, **(how if operator == "filled_attention" else {}))
