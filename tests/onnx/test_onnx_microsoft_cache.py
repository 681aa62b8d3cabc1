"""GroupQueryAttention and RotaryEmbedding of com.microsoft: caches, windows, sinks, positions."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pytest

from drawing import RNG

pytestmark = pytest.mark.any_level

pytest.importorskip("onnx.numpy_helper", reason="onnx makes the models that are read here")
one: Any = import_module("one_node")
right: Any = import_module("microsoft_attention")
onnx: Any = import_module("dlprim.onnx")
networks: Any = import_module("dlprim.graph.networks")

HEADS, GROUPS, SIZE = 4, 2, 16


def f(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def tables(half: int, rows: int = 64) -> tuple[np.ndarray, np.ndarray]:
    angles = np.outer(np.arange(rows), 1 / 100 ** (np.arange(half) / half))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


class Step(NamedTuple):
    """New rows of each sample, rows of the past, and how many positions each sample has then."""

    rows: int
    past: int
    lengths: list[int]


STEPS = {
    "prompt": Step(5, 0, [5, 5]),
    "padded prompt": Step(5, 0, [5, 3]),
    "prompt into a buffer": Step(5, 20, [5]),
    "next": Step(1, 6, [7]),
    "next of two": Step(1, 6, [7, 7]),
    "next of different": Step(1, 6, [7, 5]),
    "chunk": Step(3, 6, [9]),
    "chunk of two": Step(3, 6, [9, 8]),
    "buffer": Step(1, 20, [7]),
    "buffers": Step(1, 20, [7, 10]),
}
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rotary": {"do_rotary": 1},
    "interleaved": {"do_rotary": 1, "rotary_interleaved": 1},
    "window": {"local_window_size": 3},
    "softcap": {"softcap": 1.5, "scale": 0.7},
    "smooth": {"smooth_softmax": 1},
    "both": {"do_rotary": 1, "local_window_size": 2, "smooth_softmax": 1},
}


def expected(
    step: Step, way: dict[str, Any], new: list[np.ndarray], past: list[np.ndarray]
) -> tuple[list[np.ndarray], list[list[np.ndarray]]]:
    """Of each sample the results for its new rows, and its keys and values."""
    results, caches = [], []
    turn = tables(SIZE // 2)
    for n, length in enumerate(step.lengths):
        rows = min(step.rows, length)
        before = length - rows
        q, k, v = (it[n : n + 1, :, :rows] for it in new)
        at = np.arange(before, length)[None]
        if way.get("do_rotary"):
            q, k = (right.rotated(it, at, *turn, way.get("rotary_interleaved")) for it in (q, k))
        cache = [
            np.concatenate([was[n : n + 1, :, :before], now], 2)
            for was, now in zip(past, (k, v), strict=True)
        ]
        window = way.get("local_window_size", 1 << 30)

        def added(n: int, h: int, s: int, before: int = before, window: int = window) -> Any:
            distance = before + s - np.arange(before + rows)  # noqa: B023
            return np.where((distance >= 0) & (distance < window), 0, -np.inf)

        sinks = np.zeros(HEADS) if "smooth_softmax" in way else None
        y = right.attend(q, *cache, added, way.get("scale"), way.get("softcap", 0.0), sinks)
        results.append(y[0])
        caches.append([it[0] for it in cache])
    return results, caches


def run(arrays: list[Any], way: dict[str, Any]) -> list[np.ndarray]:
    attributes = {"num_heads": HEADS, "kv_num_heads": GROUPS, **way}
    made = one.Case("GroupQueryAttention", arrays, attributes, domain=one.MICROSOFT, outputs=3)
    results: list[np.ndarray] = one.by_dlprim(made, [arrays[0]] * 3)
    return results


def flat(x: np.ndarray) -> np.ndarray:
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", STEPS)
def test_keys_are_found_where_they_are(name: str, way: str) -> None:
    step, samples = STEPS[name], len(STEPS[name].lengths)
    new = [f(samples, heads, step.rows, SIZE) for heads in (HEADS, GROUPS, GROUPS)]
    past = [f(samples, GROUPS, step.past, SIZE) for _ in range(2)]
    lengths = np.array(step.lengths, np.int32) - 1
    total = np.array(max(step.lengths), np.int32)
    arrays = [*map(flat, new), *past, lengths, total]
    arrays += tables(SIZE // 2) if "do_rotary" in WAYS[way] else []
    y, *present = run(arrays, WAYS[way])
    results, caches = expected(step, WAYS[way], new, past)
    assert present[0].shape[2] == max(step.past, max(step.lengths))
    for n, (result, cache) in enumerate(zip(results, caches, strict=True)):
        np.testing.assert_allclose(y[n, : len(result)], result, rtol=1e-4, atol=1e-5)
        for found, due in zip(present, cache, strict=True):
            np.testing.assert_allclose(found[n, :, : due.shape[1]], due, rtol=1e-5, atol=1e-5)
    if way == "rotary":
        packed = [np.concatenate(arrays[:3], 2), None, None, *arrays[3:]]
        for found, due in zip(run(packed, WAYS[way]), (y, *present), strict=True):
            np.testing.assert_array_equal(found, due)


@pytest.mark.parametrize("lengths", [[7], [7, 5]])
def test_biases_and_sinks_are_added(lengths: list[int]) -> None:
    samples = len(lengths)
    new = [f(samples, heads, 1, SIZE) for heads in (HEADS, GROUPS, GROUPS)]
    past = [f(samples, GROUPS, 6, SIZE) for _ in range(2)]
    bias, sinks, at = f(1, HEADS, 1, 7), f(HEADS), np.array(lengths)[:, None] - 1
    arrays = [*map(flat, new), *past, np.array(lengths, np.int32) - 1, np.array([7], np.int32)]
    y = run([*arrays, *tables(SIZE // 2), at, bias, sinks], {"do_rotary": 1})[0]
    for n, length in enumerate(lengths):
        q, k = (right.rotated(it[n : n + 1], at[n : n + 1], *tables(8), 0) for it in new[:2])
        cache = [
            np.concatenate([was[n : n + 1, :, : length - 1], now], 2)
            for was, now in zip(past, (k, new[2][n : n + 1]), strict=True)
        ]
        added = lambda n, h, s, length=length: bias[0, h, s, :length]  # noqa: E731
        due = right.attend(q, *cache, added, sinks=sinks)
        np.testing.assert_allclose(y[n], due[0], rtol=1e-4, atol=1e-5)


def test_heads_are_normalised_first() -> None:
    new = [f(1, heads, 4, SIZE) for heads in (HEADS, GROUPS, GROUPS)]
    weights = [f(SIZE), f(SIZE)]
    given = [np.array([3], np.int32), np.array(4, np.int32)]
    arrays = [*map(flat, new), None, None, *given, *[None] * 7, *weights]
    y = run(arrays, {"causal": 0})[0]
    q, k = (
        it / np.sqrt((it.astype(float) ** 2).mean(3, keepdims=True) + 1e-6) * weight
        for it, weight in zip(new[:2], weights, strict=True)
    )
    due = right.attend(q, k, new[2], lambda n, h, s: 0.0)
    np.testing.assert_allclose(y, due, rtol=1e-4, atol=1e-5)


def test_a_language_model_of_real_width() -> None:
    """8 heads of keys for 32 of queries, 64 wide, behind a hundred positions."""
    new = [f(1, heads, 1, 64) for heads in (32, 8, 8)]
    past = [f(1, 8, 100, 64) for _ in range(2)]
    arrays = [*map(flat, new), *past, np.array([100], np.int32), np.array(101, np.int32)]
    case = one.Case(
        "GroupQueryAttention",
        [*arrays, *tables(32, 256)],
        {"num_heads": 32, "kv_num_heads": 8, "do_rotary": 1},
        domain=one.MICROSOFT,
        constants=(7, 8),
        outputs=3,
    )
    y = one.by_dlprim(case, [arrays[0]] * 3)[0]
    at = np.array([[100]])
    q, k = (right.rotated(it, at, *tables(32, 256), 0) for it in new[:2])
    cache = [np.concatenate(pair, 2) for pair in zip(past, (k, new[2]), strict=True)]
    due = right.attend(q, *cache, lambda n, h, s: 0.0)
    np.testing.assert_allclose(y, due, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------- a cache that grows


def growing(samples: str | int) -> Any:
    """The cache is as long as a mask says, which has an extent of its own."""
    from onnx import TensorProto, helper, numpy_helper

    node, width = helper.make_node, (HEADS + 2 * GROUPS) * SIZE
    inputs = ["q", "", "", "pk", "pv", "lengths", "total", "c", "s"]
    nodes = [
        node("ReduceSum", ["mask", "one"], ["sums"], keepdims=0),
        node("Sub", ["sums", "one"], ["less"]),
        node("Cast", ["less"], ["lengths"], to=TensorProto.INT32),
        node("Shape", ["mask"], ["shape"]),
        node("Gather", ["shape", "axis"], ["keys"]),
        node("Cast", ["keys"], ["total"], to=TensorProto.INT32),
        node(
            "GroupQueryAttention", inputs, ["y", "k", "v"],
            domain=one.MICROSOFT, num_heads=HEADS, kv_num_heads=GROUPS, do_rotary=1,
        ),
    ]  # fmt: skip
    shapes = {"q": [samples, "rows", width]}
    shapes |= {name: [samples, GROUPS, "past", SIZE] for name in ("pk", "pv")}
    floats = [helper.make_tensor_value_info(name, 1, it) for name, it in shapes.items()]
    mask = helper.make_tensor_value_info("mask", TensorProto.INT64, [samples, "keys"])
    outputs = [helper.make_tensor_value_info(name, 1, None) for name in "ykv"]
    known = {"one": np.array([1]), "axis": np.array(1)}
    known |= dict(zip("cs", tables(SIZE // 2), strict=True))
    arrays = [numpy_helper.from_array(it, name) for name, it in known.items()]
    graph = helper.make_graph(nodes, "growing", [*floats, mask], outputs, arrays)
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid(one.MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("samples", [1, 2])
def test_a_growing_cache_is_compiled_once(samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    recordings = []

    class Counted(networks.Recording):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            recordings.append(self)

    monkeypatch.setattr(networks, "Recording", Counted)
    model = onnx.load(growing("samples"))
    past = [np.zeros((samples, GROUPS, 0, SIZE), np.float32)] * 2
    new: list[list[np.ndarray]] = [[], [], []]
    for step in range(12):
        rows = 4 if step == 0 else 1
        now = [f(samples, heads, rows, SIZE) for heads in (HEADS, GROUPS, GROUPS)]
        keys = past[0].shape[2] + rows
        mask = np.ones((samples, keys), np.int64)
        q = np.concatenate([*map(flat, now)], 2)
        y, *past = model(q, *past, mask)
        at = np.arange(keys - rows, keys)[None].repeat(samples, 0)
        now[:2] = (right.rotated(it, at, *tables(SIZE // 2), 0) for it in now[:2])
        for kept, it in zip(new, now, strict=True):
            kept.append(it)
        whole = [np.concatenate(it, 2) for it in new[1:]]

        def added(n: int, h: int, s: int, keys: int = keys, rows: int = rows) -> Any:
            return np.where(np.arange(keys) <= keys - rows + s, 0, -np.inf)

        np.testing.assert_allclose(
            y, right.attend(now[0], *whole, added), rtol=1e-4, atol=1e-5, err_msg=f"{step}"
        )
    assert len(recordings) <= 2


# ---------------------------------------------------------------- RotaryEmbedding, refusals


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("half", [8, 4])
def test_rotary_embedding(interleaved: int, half: int) -> None:
    """Of all of a head or its first half, with one position or many."""
    x, turn = f(2, 3, 5, 16), tables(half)
    attributes = {"interleaved": interleaved}
    if half == 4:
        attributes |= {"rotary_embedding_dim": 8, "num_heads": 3}
    many = RNG.integers(0, 50, (2, 5))
    for given, at in ((many, many), (np.array([7]), np.arange(7, 12)[None].repeat(2, 0))):
        due = right.rotated(x, at, *turn, interleaved)
        for array, wanted in ((x, due), (flat(x), flat(due))):
            arrays = [array, given, *turn]
            made = one.Case("RotaryEmbedding", arrays, attributes, domain=one.MICROSOFT)
            np.testing.assert_allclose(one.by_dlprim(made)[0], wanted, rtol=1e-5, atol=1e-6)


REFUSED = {
    "expected 5 to 5": {"total": 4},
    "seqlens_k is of": {"lengths": np.array([4, 4], np.int32)},
    "cos_cache has 3 rows": {"tables": tables(8, 3)},
    "cos_cache or sin_cache is left out": {"tables": (None, None)},
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_does_not_fit_is_refused(words: str) -> None:
    given: dict[str, Any] = {"total": 5, "lengths": np.array([4], np.int32), "tables": tables(8)}
    given |= REFUSED[words]
    new = [flat(f(1, heads, 5, SIZE)) for heads in (HEADS, GROUPS, GROUPS)]
    arrays = [*new, None, None, given["lengths"], np.array(given["total"], np.int32)]
    with pytest.raises(ValueError, match=words):
        run([*arrays, *given["tables"]], {"do_rotary": 1})
