"""Attention and MultiHeadAttention of com.microsoft: masks, biases, a past, packed arrays."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from drawing import RNG

pytestmark = pytest.mark.any_level

pytest.importorskip("onnx.numpy_helper", reason="onnx makes the models that are read here")
one: Any = import_module("one_node")
right: Any = import_module("microsoft_attention")
onnx: Any = import_module("dlprim.onnx")

# Samples, positions, channels and heads: small, of a sentence, and of BERT.
SIZES = {"small": (2, 5, 8, 2), "sentence": (1, 33, 96, 6), "base": (1, 128, 768, 12)}


def f(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def run(op: str, arrays: list[Any], outputs: int = 1, **attributes: Any) -> list[np.ndarray]:
    made = one.Case(op, arrays, attributes, domain=one.MICROSOFT, outputs=outputs)
    like = [np.zeros(0, np.float32)] * outputs
    results: list[np.ndarray] = one.by_dlprim(made, like)
    return results


def close(found: np.ndarray, due: np.ndarray) -> None:
    assert found.shape == due.shape
    np.testing.assert_allclose(found, due, rtol=2e-4, atol=2e-5)


def masked(shape: tuple[int, ...], form: str, keys: int) -> tuple[np.ndarray, Any]:
    """A mask of a form, and whether a key is looked at by a query of a sample."""
    samples, rows = shape
    if form in ("ends", "ends and starts"):
        ends = RNG.integers(1, keys + 1, samples)
        starts = RNG.integers(0, ends) if "starts" in form else np.zeros(samples, int)
        given = np.concatenate([ends, starts]) if "starts" in form else ends
        return given.astype(
            np.int32
        ), lambda n, s: (np.arange(keys) < ends[n]) & (np.arange(keys) >= starts[n])
    if form == "keys":
        mask = RNG.integers(0, 2, (samples, keys)).astype(np.int32)
        return mask, lambda n, s: mask[n] != 0
    mask = RNG.integers(0, 2, (samples, rows, keys)).astype(np.int32)
    return mask, lambda n, s: mask[n, s] != 0


def hidden(is_causal: bool, before: int, keys: int, s: int) -> np.ndarray:
    """Minus infinity for what comes behind a query."""
    is_behind = np.arange(keys) > before + s
    return np.where(is_behind & is_causal, -np.inf, 0.0)


@pytest.mark.parametrize("size", SIZES)
def test_attention_projects_and_masks(size: str) -> None:
    n, s, c, h = SIZES[size]
    x, w, b = f(n, s, c), f(c, 3 * c) / np.float32(np.sqrt(c)), f(3 * c)
    mask, seen = masked((n, s), "ends", s)
    (y,) = run("Attention", [x, w, b, mask], num_heads=h)
    due = right.attend(
        *right.projected(x, w, b, [c] * 3, h), lambda n, h, s: np.where(seen(n, s), 0, -10000)
    )
    close(y, due)


@pytest.mark.parametrize("form", ["ends", "ends and starts", "keys", "queries"])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("before", [0, 3])
def test_attention_of_every_mask(form: str, is_causal: bool, before: int) -> None:
    n, s, c, h = 2, 5, 8, 2
    x, w, b, bias = f(n, s, c), f(c, 24), f(24), f(1, h, s, s + before)
    mask, seen = masked((n, s), form, s + before)
    past = f(2, n, h, before, 4) if before else None
    y, present = run(
        "Attention",
        [x, w, b, mask, past, bias],
        2,
        num_heads=h,
        unidirectional=int(is_causal),
        mask_filter_value=-3.0,
        scale=0.3,
    )
    q, k, v = right.projected(x, w, b, [c] * 3, h)
    if past is not None:
        k, v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)

    def added(n: int, h: int, s: int) -> Any:
        out = hidden(is_causal, before, k.shape[2], s)
        return bias[0, h, s] + np.where(seen(n, s), 0, -3.0) + out

    close(y, right.attend(q, k, v, added, 0.3))
    close(present, np.stack([k, v]))


def test_attention_of_values_of_another_width() -> None:
    x, w = f(2, 3, 8), f(8, 4 + 4 + 6)
    (y,) = run("Attention", [x, w], num_heads=2, qkv_hidden_sizes=[4, 4, 6])
    parts = right.projected(x, w, None, [4, 4, 6], 2)
    close(y, right.attend(*parts, lambda n, h, s: 0.0))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("form", [None, "ends", "keys", "queries"])
def test_cross_attention_with_a_bias(size: str, form: str | None) -> None:
    n, s, c, h = SIZES[size]
    keys = s + 2
    q, k, v, b = f(n, s, c), f(n, keys, c), f(n, keys, c), f(3 * c)
    mask, seen = (None, None) if form is None else masked((n, s), form, keys)
    (y,) = run("MultiHeadAttention", [q, k, v, b, mask], num_heads=h)
    heads = [right.heads_of(it + b[i * c : i * c + c], h) for i, it in enumerate((q, k, v))]
    due = right.attend(
        *heads, lambda n, h, s: 0.0 if seen is None else np.where(seen(n, s), 0, -10000)
    )
    close(y, due)


@pytest.mark.parametrize("is_causal", [False, True])
def test_multi_head_attention_goes_on(is_causal: bool) -> None:
    n, s, c, h, before = 2, 3, 12, 3, 4
    q, k, v, bias = f(n, s, c), f(n, s, c), f(n, s, c), f(n, 1, s, s + before)
    past = [f(n, h, before, 4), f(n, h, before, 4)]
    arrays = [q, k, v, None, None, bias, *past]
    y, keys, values, scores = run(
        "MultiHeadAttention", arrays, 4, num_heads=h, unidirectional=int(is_causal)
    )
    whole = [
        np.concatenate([was, right.heads_of(now, h)], 2)
        for was, now in zip(past, (k, v), strict=True)
    ]

    def added(n: int, h: int, s: int) -> Any:
        return bias[n, 0, s] + hidden(is_causal, before, s_all, s)

    s_all = s + before
    heads = right.heads_of(q, h)
    close(y, right.attend(heads, *whole, added))
    close(keys, whole[0])
    close(values, whole[1])
    if not is_causal:
        close(scores, heads @ whole[0].swapaxes(2, 3) / 2 + bias)


def test_packed_arrays_are_unpacked() -> None:
    n, s, h, d = 2, 5, 3, 4
    q, k, v = (f(n, s, h, d) for _ in range(3))
    flat = [it.reshape(n, s, h * d) for it in (q, k, v)]
    due = right.attend(*(right.heads_of(it, h) for it in flat), lambda n, h, s: 0.0)
    together, pair = np.stack([q, k, v], 3), np.stack([k, v], 3)
    heads = [it.transpose(0, 2, 1, 3) for it in (k, v)]
    for arrays in (flat, [together], [flat[0], pair], [flat[0], *heads]):
        close(run("MultiHeadAttention", arrays, num_heads=h)[0], due)


def test_attention_is_one_step() -> None:
    c = 768
    case = one.Case(
        "Attention",
        [f(1, 64, c), f(c, 3 * c), f(3 * c), np.array([60], np.int32)],
        {"num_heads": 12},
        domain=one.MICROSOFT,
        constants=(1, 2),
    )
    made = one.model(case)
    made.graph.output[0].type.tensor_type.elem_type = 1
    model = onnx.load(made)
    model.run(one.given(case))
    steps = model.explain()
    assert "attention" in steps
    assert "linear" in steps
    assert "call(" not in steps


REFUSED: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "three multiples": (
        "Attention", [np.zeros((1, 2, 8)), np.zeros((8, 24))], {"num_heads": 3}),
    "do_rotary": (
        "Attention", [np.zeros((1, 2, 8)), np.zeros((8, 24))], {"num_heads": 2, "do_rotary": 1}),
    "the mask is of": (
        "Attention",
        [np.zeros((1, 2, 8)), np.zeros((8, 24)), None, np.zeros((1, 3), np.int32)],
        {"num_heads": 2}),
    "without a key": ("MultiHeadAttention", [np.zeros((1, 2, 8))], {"num_heads": 2}),
    "expected both of them": (
        "MultiHeadAttention",
        [*[np.zeros((1, 2, 8))] * 3, None, None, None, np.zeros((1, 2, 2, 4))],
        {"num_heads": 2}),
    "attention_bias is of": (
        "MultiHeadAttention",
        [*[np.zeros((1, 2, 8))] * 3, None, None, np.zeros((1, 2, 2, 4))],
        {"num_heads": 2}),
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_what_does_not_fit_is_refused(words: str) -> None:
    op, arrays, attributes = REFUSED[words]
    floats = [
        it.astype(np.float32) if it is not None and it.dtype == np.float64 else it for it in arrays
    ]
    with pytest.raises(ValueError, match=words):
        run(op, floats, **attributes)
