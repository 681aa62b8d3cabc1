"""attention_backward: gradients against float64, layouts, masks, refusals, the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dlprim
from test_attention import BF16, EXTENTS, F4, SHAPES, masks, operands

Expected = tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]


def reference(
    dy: Any, q: Any, k: Any, v: Any, mask: Any = None, scale: float | None = None,
    causal: bool = False, softcap: float = 0, past: int = 0,
) -> Expected:  # fmt: skip
    """In float64, from the formula, and the same of the sizes of all terms."""
    together = q.shape[-3] // k.shape[-3]
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    dy, q, k, v = (it.astype(np.float64) for it in (dy, q, k, v))
    k, v = (np.repeat(it, together, axis=-3) for it in (k, v))
    scores = q @ np.swapaxes(k, -1, -2) * scale
    slope = np.full_like(scores, scale)
    if softcap:
        slope *= 1 - np.tanh(scores / softcap) ** 2
        scores = softcap * np.tanh(scores / softcap)
    if mask is not None:
        said = mask.dtype == bool
        scores = np.where(mask, scores, -np.inf) if said else scores + mask.astype(np.float64)
    if causal:
        i, j = np.arange(scores.shape[-2])[:, None], np.arange(scores.shape[-1])
        scores = np.where(j <= i + past, scores, -np.inf)
    highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    powers = np.exp(scores - np.where(highest == -np.inf, 0, highest))
    sums = powers.sum(axis=-1, keepdims=True)
    weights = powers / np.where(sums == 0, 1, sums)
    by_weights = dy @ np.swapaxes(v, -1, -2)
    total = (weights * by_weights).sum(axis=-1, keepdims=True)
    total_size = (weights * np.abs(by_weights)).sum(axis=-1, keepdims=True)
    sizes = abs(scale) * weights * (np.abs(by_weights) + total_size)

    def summed(by_products: np.ndarray, q: Any, k: Any, dy: Any) -> tuple[np.ndarray, ...]:
        by_keys = (np.swapaxes(by_products, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ dy)
        shared = (*k.shape[:-3], k.shape[-3] // together, together)
        return by_products @ k, *(it.reshape(*shared, *it.shape[-2:]).sum(-3) for it in by_keys)

    found = summed(slope * weights * (by_weights - total), q, k, dy)
    return found, summed(sizes, abs(q), abs(k), abs(dy))


def close(got: tuple[np.ndarray, ...], expected: Expected, bound: float | None = None) -> None:
    """Within a part of what was added up."""
    for ours, right, size in zip(got, *expected, strict=True):
        assert ours.shape == right.shape
        part = bound or (1e-5 if ours.dtype == F4 else 2e-2)
        assert np.all(np.abs(ours.astype(np.float64) - right) <= part * size + 1e-30)


def gradient_operands(shape: tuple[int, ...], dtype: Any = F4) -> tuple[np.ndarray, ...]:
    """dy, q, k, v: all with heads inside of positions, next to a page nobody may touch."""
    q, k, v = operands(shape, dtype)
    batch, heads, _, queries, _, _, values = shape
    (dy, _, _) = operands((batch, heads, heads, queries, 1, values, 1), dtype, seed=9)
    return dy, q, k, v


@pytest.mark.parametrize("dtype", [F4, BF16], ids=str)
@pytest.mark.parametrize("shape", [*SHAPES, (1, 2, 1, 70, 2200, 33, 17)], ids=str)
def test_values(shape: tuple[int, ...], dtype: np.dtype) -> None:
    arrays = gradient_operands(shape, dtype)
    backward = dlprim.attention_backward
    for place, make in enumerate(masks(shape).values()):
        asked = {"mask": make(), "causal": place % 2 == 1}
        close(backward(*arrays, **asked), reference(*arrays, **asked))
    for asked in ({"scale": -0.3}, {"softcap": 1.5}, {"causal": True, "past": 2120},
                  {"causal": True, "past": 40},
                  {"causal": True, "softcap": 3.0, "scale": 2.0}):  # fmt: skip
        close(backward(*arrays, **asked), reference(*arrays, **asked))


@given(
    EXTENTS | st.integers(1, 300), EXTENTS | st.integers(1, 300), EXTENTS, EXTENTS,
    st.sampled_from([(1, 1), (2, 1), (3, 3), (6, 2)]), st.booleans(), st.sampled_from([F4, BF16]),
)  # fmt: skip
def test_any_shape(
    queries: int, keys: int, size: int, values: int, heads: tuple[int, int], causal: bool,
    dtype: np.dtype,
) -> None:  # fmt: skip
    arrays = gradient_operands((2, *heads, queries, keys, size, values), dtype)
    close(dlprim.attention_backward(*arrays, causal=causal), reference(*arrays, causal=causal))


@pytest.mark.parametrize("dtype", [F4, BF16], ids=str)
@pytest.mark.parametrize(
    "shape",
    [
        (3, 3, 1, 130, 1100, 32, 48),
        (1, 1, 1, 200, 70, 16, 16),
        (1, 2, 1, 70, 2300, 24, 24),
        (1, 4, 1, 3, 40, 8, 8),
    ],
)
def test_same_bits_for_any_number_of_threads(shape: tuple[int, ...], dtype: np.dtype) -> None:
    arrays = gradient_operands(shape, dtype)
    made = []
    for count in (1, 2, 3, 4, 7):
        with dlprim.threads(count):
            made.append(dlprim.attention_backward(*arrays, causal=True, past=2200))
    for other in made[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(made[0], other, strict=True))


@pytest.mark.parametrize("dtype", [F4, BF16], ids=str)
def test_layouts_are_read_in_place(dtype: np.dtype) -> None:
    arrays = gradient_operands((2, 3, 3, 20, 30, 16, 24), dtype)
    expected = dlprim.attention_backward(*(np.ascontiguousarray(it) for it in arrays))
    assert all(it.flags.c_contiguous for it in expected)
    for other in (arrays, [np.asfortranarray(it) for it in arrays]):  # which are copied
        got = dlprim.attention_backward(*other)
        assert all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))
    q, k, v = (it[..., :16, :16] for it in arrays[1:])
    fused = np.stack([it.transpose(0, 2, 1, 3) for it in (q, k[:, :, :16], v[:, :, :16])], 2)
    parts = [fused[:, :, i].transpose(0, 2, 1, 3) for i in range(3)]
    dy = arrays[0][:, :, :16, :16]
    close(dlprim.attention_backward(dy, *parts), reference(dy, *parts))


def test_axes_in_front_may_be_more_or_fewer() -> None:
    arrays = gradient_operands((1, 2, 2, 9, 11, 8, 4))
    expected = dlprim.attention_backward(*arrays)
    for place in ((0,), (0, 1)):
        got = dlprim.attention_backward(*(it[place] for it in arrays))
        assert all(np.array_equal(a, b[place]) for a, b in zip(got, expected, strict=True))
    many = [np.stack([it, it])[:, None] for it in arrays]
    mask = np.arange(11) < 5
    got = dlprim.attention_backward(*many, mask)
    once = dlprim.attention_backward(*arrays, mask)
    for a, b in zip(got, once, strict=True):
        assert a.shape == (2, 1, *b.shape)
        assert np.array_equal(a[1, 0], b)


@pytest.mark.parametrize("dtype", [F4, BF16], ids=str)
@pytest.mark.parametrize("keys", [40, 2100])
def test_queries_that_see_no_key(keys: int, dtype: np.dtype) -> None:
    dy, q, k, v = gradient_operands((1, 2, 2, 70, keys, 16, 16), dtype)
    sees = np.random.default_rng(0).random((70, keys)) < 0.5
    sees[5], sees[69], sees[:, 3] = False, False, False
    sees[6, :600], sees[7, 30:] = False, False  # of some blocks of keys none
    for mask in (sees, np.where(sees, 0, -np.inf).astype(F4)):
        dq, dk, dv = dlprim.attention_backward(dy, q, k, v, mask)
        assert not dq[:, :, [5, 69]].any()
        assert not dk[:, :, 3].any()
        assert not dv[:, :, 3].any()
        close((dq, dk, dv), reference(dy, q, k, v, mask))
    hidden = np.zeros((70, keys), bool)
    assert not any(it.any() for it in dlprim.attention_backward(dy, q, k, v, hidden))


@pytest.mark.parametrize("keys", [40, 2100])
def test_what_is_no_number_stays_in_its_rows(keys: int) -> None:
    dy, q, k, v = gradient_operands((1, 1, 1, 20, keys, 16, 16))
    expected = dlprim.attention_backward(dy, q, k, v)
    q[0, 0, 3, 2], dy[0, 0, 4, 0] = np.nan, np.inf
    dq, dk, dv = dlprim.attention_backward(dy, q, k, v)
    assert np.isnan(dq[0, 0, 3:5]).all()
    rest = [i for i in range(20) if i not in (3, 4)]
    assert np.array_equal(dq[0, 0, rest], expected.dq[0, 0, rest])
    assert np.isnan(dk).all()
    assert not np.isfinite(dv[..., 0]).any()


def test_large_scores_do_not_overflow() -> None:
    dy, q, k, v = gradient_operands((1, 1, 1, 20, 700, 16, 16))
    q *= 100
    got = dlprim.attention_backward(dy, q, k, v, scale=1.0)
    close(got, reference(dy, q, k, v, scale=1.0), 1e-2)


def test_extents_of_nothing() -> None:
    for shape in ((0, 2, 2, 3, 4, 5, 6), (1, 0, 1, 3, 4, 5, 6), (1, 2, 2, 0, 4, 5, 6),
                  (1, 2, 2, 3, 0, 5, 6), (1, 2, 2, 3, 4, 5, 0)):  # fmt: skip
        batch, heads, kv_heads, queries, keys, size, values = shape
        dy, q, k, v = (np.ones(it, F4) for it in (
            (batch, heads, queries, values), (batch, heads, queries, size),
            (batch, kv_heads, keys, size), (batch, kv_heads, keys, values)))  # fmt: skip
        for front in (False, True):
            arrays = [it[None, None] if front else it for it in (dy, q, k, v)]
            got = dlprim.attention_backward(*arrays)
            for ours, like in zip(got, arrays[1:], strict=True):
                assert ours.shape == like.shape
                assert not ours.any()


Q, K = np.ones((1, 2, 3, 4), F4), np.ones((1, 2, 5, 4), F4)
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"dy": Q[..., :3]}, ValueError, r"dy has shape .*\(H and Q from q, Dv from v\)"),
    ({"dy": Q.astype(BF16)}, TypeError, "dy has dtype bfloat16, expected float32 as q has"),
    ({"dy": Q.astype(np.float64)}, TypeError, "dy has dtype float64"),
    ({"k": K[..., :3]}, ValueError, r"k has shape .* \(D from q\)"),
    ({"mask": np.ones((3, 4), F4)}, ValueError, r"mask is .*, expected what broadcasts to"),
    ({"softcap": -1.0}, ValueError, "softcap is -1.0"),
    ({"q": Q[..., :0], "k": K[..., :0]}, ValueError, "q has shape .*, expected heads of 1 to"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "error", "sentence"), REFUSED, ids=[it[2] for it in REFUSED])
def test_refusals(wrong: dict[str, Any], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        dlprim.attention_backward(**({"dy": Q, "q": Q, "k": K, "v": K} | wrong))
