"""Models whose caches stay between calls: TensorScatter with Attention, GroupQueryAttention."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from drawing import RNG

pytestmark = pytest.mark.any_level

pytest.importorskip("onnx.numpy_helper", reason="onnx makes the models that are read here")
helper: Any = import_module("onnx.helper")
TensorProto: Any = import_module("onnx").TensorProto
onnx: Any = import_module("dlprim.onnx")

N, HEADS, GROUPS, SIZE, PLACES = 2, 4, 2, 16, 24
FLOAT = 1


def model_of(nodes: list[Any], inputs: list[Any], outputs: list[Any], opset: int) -> Any:
    infos = [[helper.make_tensor_value_info(*it) for it in ports] for ports in (inputs, outputs)]
    graph = helper.make_graph(nodes, "cached", *infos)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return onnx.load(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def scattered() -> Any:
    node, cache = helper.make_node, ["N", GROUPS, "C", SIZE]
    nodes = [
        node("TensorScatter", ["past_k", "k", "where"], ["present_k"], axis=2),
        node("TensorScatter", ["past_v", "v", "where"], ["present_v"], axis=2),
        node(
            "Attention", ["q", "present_k", "present_v", "", "", "", "counts"], ["y"], is_causal=1
        ),
    ]
    rows = ["N", GROUPS, "S", SIZE]
    inputs = [("q", FLOAT, ["N", HEADS, "S", SIZE]), ("k", FLOAT, rows), ("v", FLOAT, rows),
              ("past_k", FLOAT, cache), ("past_v", FLOAT, cache), ("where", 7, ["N"]),
              ("counts", 7, ["N"])]  # fmt: skip
    outputs = [("y", FLOAT, ["N", HEADS, "S", SIZE]), ("present_k", FLOAT, cache),
               ("present_v", FLOAT, cache)]  # fmt: skip
    return model_of(nodes, inputs, outputs, 24)


def grouped(**how: Any) -> Any:
    rows = ["query", "key", "value", "past.0.key", "past.0.value", "lengths", "total"]
    outputs = ["y", "present.0.key", "present.0.value"]
    node = helper.make_node("GroupQueryAttention", rows, outputs, domain="com.microsoft",
                            num_heads=HEADS, kv_num_heads=GROUPS, **how)  # fmt: skip
    flat = ["N", "S", GROUPS * SIZE]
    inputs = [("query", FLOAT, ["N", "S", HEADS * SIZE]), ("key", FLOAT, flat),
              ("value", FLOAT, flat), *((it, FLOAT, ["N", GROUPS, "P", SIZE]) for it in rows[3:5]),
              ("lengths", 6, ["N"]), ("total", 6, [])]  # fmt: skip
    made = [("y", FLOAT, ["N", "S", HEADS * SIZE])]
    made += [(it, FLOAT, ["N", GROUPS, "T", SIZE]) for it in outputs[1:]]
    return model_of([node], inputs, made, 21)


def attended(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, before: int, window: int, sink: bool
) -> np.ndarray:
    """In float64, (H, S, D) of one sequence to (G, K, D)."""
    k, v = (np.repeat(it, HEADS // GROUPS, 0).astype(np.float64) for it in (k, v))
    scores = q @ k.swapaxes(1, 2) * SIZE**-0.5
    behind = before + np.arange(q.shape[1])[:, None] - np.arange(k.shape[1])
    scores = np.where((behind >= 0) & (behind < window), scores, -np.inf)
    powers = np.exp(scores)
    return powers / (powers.sum(-1, keepdims=True) + sink) @ v


class Sequences:
    """What came before of each sequence, and what comes next."""

    def __init__(self) -> None:
        self.known = [np.zeros((2, GROUPS, 0, SIZE), np.float32) for _ in range(N)]

    def next(self, rows: int) -> tuple[list[np.ndarray], np.ndarray]:
        """New queries, keys and values, (N, H, S, D), and how many rows were there."""
        before = np.array([it.shape[2] for it in self.known])
        q = RNG.standard_normal((N, HEADS, rows, SIZE), np.float32)
        new = RNG.standard_normal((N, 2, GROUPS, rows, SIZE), np.float32)
        self.known = [np.concatenate(it, 2) for it in zip(self.known, new, strict=True)]
        return [q, new[:, 0], new[:, 1]], before

    def attended(self, q: np.ndarray, window: int = 1 << 30, sink: bool = False) -> np.ndarray:
        found = [
            attended(one, *known, known.shape[2] - q.shape[2], window, sink)
            for one, known in zip(q, self.known, strict=True)
        ]
        return np.stack(found)


def flat(x: np.ndarray) -> np.ndarray:
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def assert_runs_in_place(model: Any) -> None:
    explained = model.explain()
    assert explained.count("placed_rows(") == 2
    assert "changed" not in explained
    assert "call(" not in explained


def test_a_cache_that_rows_are_scattered_to() -> None:
    model = scattered().cached(PLACES, batch=N)
    assert list(model.caches) == ["past_k", "past_v"]
    assert list(model.outputs) == ["y"]
    assert all(it.shape == (N, GROUPS, PLACES, SIZE) for it in model.caches.values())
    for cache in model.caches.values():
        cache[...] = np.nan
    sequences = Sequences()
    sequences.known[1] = RNG.standard_normal((2, GROUPS, 3, SIZE)).astype(np.float32)
    for cache, rows in zip(model.caches.values(), sequences.known[1], strict=True):
        cache[1, :, :3] = rows
    for rows in (5, 1, 1, 2, 1):
        new, before = sequences.next(rows)
        y = model(*new, where=before, counts=before + rows)
        np.testing.assert_allclose(y, sequences.attended(new[0]), rtol=1e-4, atol=1e-5)
    assert_runs_in_place(model)
    kept = [it.copy() for it in model.caches.values()]
    with pytest.raises(onnx.ModelError, match="24 places has none for 1 rows from 24 on"):
        model(*sequences.next(1)[0], where=np.array([3, 24]), counts=np.array([4, 25]))
    for cache, was in zip(model.caches.values(), kept, strict=True):
        assert np.array_equal(cache, was, equal_nan=True)


@pytest.mark.parametrize(
    "how", [{}, {"local_window_size": 3}, {"smooth_softmax": 1}, {"softcap": 1000.0}], ids=str
)
def test_a_cache_of_grouped_queries(how: dict[str, Any]) -> None:
    model = grouped(**how).cached(PLACES, batch=N)
    sequences = Sequences()
    window, sink = how.get("local_window_size", 1 << 30), "smooth_softmax" in how
    for rows in (5, 1, 1, 3, 1):
        new, before = sequences.next(rows)
        lengths = (before + rows - 1).astype(np.int32)
        y = model(*map(flat, new), lengths=lengths, total=np.array(lengths.max() + 1, np.int32))
        due = flat(sequences.attended(new[0], window, sink))
        np.testing.assert_allclose(y, due, rtol=1e-3, atol=1e-4)
    assert_runs_in_place(model)


def test_one_network_serves_all_steps() -> None:
    model = grouped().cached(PLACES, batch=N)
    sequences = Sequences()
    texts = set()
    for _ in range(PLACES):
        new, before = sequences.next(1)
        model(*map(flat, new), lengths=before.astype(np.int32), total=np.array(1, np.int32))
        texts.add(id(model._model._executor.whole.latest))
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("given", "error", "sentence"),
    [
        ({"places": 0}, ValueError, "places is 0, expected an integer of at least 1"),
        ({"places": 2.5}, TypeError, "places is 2.5, expected an integer"),
        ({"pairs": {}}, ValueError, "no input has an output of its name"),
        ({"pairs": {"past_k": "z"}}, ValueError, "expected an input and an output of the model"),
        ({"pairs": {"where": "y"}}, ValueError, "'where' is no array of float32 or bfloat16"),
    ],
)
def test_what_is_no_cache_is_refused(
    given: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        scattered().cached(**{"places": PLACES, **given})


def test_a_cache_is_no_argument() -> None:
    model = scattered().cached(PLACES, batch=N)
    with pytest.raises(TypeError, match="'past_k' is given twice, or is a cache"):
        model(past_k=model.caches["past_k"])
