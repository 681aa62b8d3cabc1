"""attention: values against float64, layouts in place, masks, refusals, the same bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dlprim
from guarded import guarded

F4, BF16 = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)
EXTENTS = st.sampled_from((1, 2, 7, 16, 17, 33, 64, 65))
# Batch, heads, heads of keys, queries, keys, sizes of heads and of values.
SHAPES = [
    (1, 1, 1, 1, 1, 1, 1),
    (2, 4, 2, 33, 65, 7, 33),
    (1, 3, 3, 128, 128, 96, 96),
    (1, 8, 2, 1, 77, 64, 64),
    (2, 3, 3, 1, 1300, 64, 80),
    (1, 6, 2, 1, 520, 128, 128),
    (2, 2, 2, 3, 513, 40, 33),
    (1, 1, 1, 4, 4000, 8, 8),
    (1, 2, 1, 130, 600, 33, 17),
    (2, 2, 2, 65, 1300, 64, 65),
]


def reference(
    q: Any, k: Any, v: Any, mask: Any = None, scale: float | None = None, causal: bool = False,
    softcap: float = 0, past: int = 0,
) -> np.ndarray:  # fmt: skip
    """In float64, from the formula."""
    heads, kv_heads = q.shape[-3], k.shape[-3]
    q, k, v = (it.astype(np.float64) for it in (q, k, v))
    k, v = (np.repeat(it, heads // kv_heads, axis=-3) for it in (k, v))
    scores = q @ np.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    if mask is not None and mask.dtype == bool:
        scores = np.where(mask, scores, -np.inf)
    elif mask is not None:
        scores = scores + mask.astype(np.float64)
    if causal:
        i, j = np.arange(scores.shape[-2])[:, None], np.arange(scores.shape[-1])
        scores = np.where(j <= i + past, scores, -np.inf)
    highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    powers = np.exp(scores - np.where(highest == -np.inf, 0, highest))
    sums = powers.sum(axis=-1, keepdims=True)
    result: np.ndarray = powers / np.where(sums == 0, 1, sums) @ v
    return result


def close(got: np.ndarray, expected: np.ndarray) -> None:
    bound = 3e-6 if got.dtype == F4 else 2e-2
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=bound, atol=bound)


def operands(shape: tuple[int, ...], dtype: Any = F4, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Heads inside of positions, as projections leave them, next to a page nobody may touch."""
    random = np.random.default_rng(seed)
    batch, heads, kv_heads, queries, keys, size, values = shape
    made = []
    for extents in ((batch, queries, heads, size), (batch, keys, kv_heads, size),
                    (batch, keys, kv_heads, values)):  # fmt: skip
        array = guarded(math.prod(extents), dtype=np.dtype(dtype)).reshape(extents)
        array[...] = random.standard_normal(extents).astype(dtype)
        made.append(array.transpose(0, 2, 1, 3))
    return tuple(made)


def repeated(shape: tuple[int, ...]) -> list[np.ndarray]:
    """Keys or values whose rows are one, overlap, or are farther apart than a kernel takes."""
    *_, rows, size = shape
    made = []
    for step in (0, 3, (1 << 24) + 16):
        array = np.zeros((rows - 1) * step + size, F4)
        view = np.lib.stride_tricks.as_strided(array, shape, (0, 0, 4 * step, 4))
        view[...] = np.random.default_rng(4).standard_normal(view[0, 0].shape)
        made.append(view)
    return made


def masks(shape: tuple[int, ...]) -> dict[str, Callable[[], np.ndarray | None]]:
    random = np.random.default_rng(1)
    batch, heads, _, queries, keys, _, _ = shape
    return {
        "none": lambda: None,
        "bool": lambda: random.random((queries, keys)) < 0.7,
        "padding": lambda: random.random((batch, 1, 1, keys)) < 0.7,
        "added": lambda: random.standard_normal((batch, heads, queries, keys)).astype(F4),
        "bfloat16": lambda: random.standard_normal((heads, 1, keys)).astype(BF16),
        "rows": lambda: random.standard_normal((queries, 1)).astype(F4),
        "one": lambda: np.float32(2) + np.zeros((), F4),
        "strided": lambda: (random.random((queries, 2 * keys)) < 0.7)[:, ::2],
    }


@pytest.mark.parametrize("queries", [1, 4, 5])
def test_keys_and_values_that_repeat_or_are_far_apart(queries: int) -> None:
    q, k, v = operands((2, 3, 3, queries, 3, 16, 20))
    for other in repeated(k.shape):
        close(dlprim.attention(q, other, v), reference(q, other, v))
    for other in repeated(v.shape):
        close(dlprim.attention(q, k, other), reference(q, k, other))


@pytest.mark.parametrize("dtype", [F4, BF16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values(shape: tuple[int, ...], dtype: np.dtype) -> None:
    q, k, v = operands(shape, dtype)
    for make in masks(shape).values():
        mask = make()
        close(dlprim.attention(q, k, v, mask), reference(q, k, v, mask))
        close(dlprim.attention(q, k, v, mask, causal=True), reference(q, k, v, mask, causal=True))
    for asked in ({"scale": -0.3}, {"softcap": 1.5}, {"causal": True, "past": 40},
                  {"causal": True, "softcap": 3.0, "scale": 2.0}):  # fmt: skip
        close(dlprim.attention(q, k, v, **asked), reference(q, k, v, **asked))


@given(EXTENTS, EXTENTS, EXTENTS, EXTENTS, st.booleans(), st.sampled_from([F4, BF16]))
def test_any_shape(
    queries: int, keys: int, size: int, values: int, causal: bool, dtype: np.dtype
) -> None:
    q, k, v = operands((2, 2, 1, queries, keys, size, values), dtype)
    close(dlprim.attention(q, k, v, causal=causal), reference(q, k, v, causal=causal))


@pytest.mark.parametrize("dtype", [F4, BF16], ids=str)
@pytest.mark.parametrize(
    "shape", [(3, 3, 1, 130, 1100, 32, 48), (1, 1, 1, 200, 70, 16, 16), (1, 1, 1, 2, 4000, 64, 64)]
)
def test_same_bits_for_any_number_of_threads(shape: tuple[int, ...], dtype: np.dtype) -> None:
    q, k, v = operands(shape, dtype)
    made = []
    for count in (1, 2, 3):
        with dlprim.threads(count):
            made.append(dlprim.attention(q, k, v, causal=True))
    assert all(np.array_equal(made[0], it) for it in made[1:])


@pytest.mark.parametrize("dtype", [F4, BF16], ids=str)
def test_layouts_are_read_and_written_in_place(dtype: np.dtype) -> None:
    q, k, v = operands((2, 3, 3, 20, 30, 16, 24), dtype)
    expected = dlprim.attention(*(np.ascontiguousarray(it) for it in (q, k, v)))
    assert np.array_equal(dlprim.attention(q, k, v), expected)
    memory = guarded(2 * 20 * 3 * 24, dtype=dtype)
    out = memory.reshape(2, 20, 3, 24).transpose(0, 2, 1, 3)
    assert dlprim.attention(q, k, v, out=out) is out
    assert np.array_equal(out, expected)
    backwards = [it[:, :, ::-1] for it in (k, v)]  # copied: the order of keys is another
    close(dlprim.attention(q, *backwards), reference(q, k, v))
    fused = np.concatenate([it.transpose(0, 2, 1, 3) for it in (q, q, q)], -1)
    parts = [fused[..., i : i + 16].transpose(0, 2, 1, 3) for i in (0, 16, 32)]
    close(dlprim.attention(*parts), reference(q, q, q))


def test_axes_in_front_may_be_more_or_fewer() -> None:
    q, k, v = operands((1, 2, 2, 9, 11, 8, 4))
    expected = dlprim.attention(q, k, v)
    assert np.array_equal(dlprim.attention(q[0], k[0], v[0]), expected[0])
    assert np.array_equal(dlprim.attention(q[0, 1], k[0, 1], v[0, 1]), expected[0, 1])
    many = [np.stack([it, it])[:, None] for it in (q, k, v)]
    mask = np.arange(11) < 5
    got = dlprim.attention(*many, mask)
    assert got.shape == (2, 1, *expected.shape)
    assert np.array_equal(got[1, 0], dlprim.attention(q, k, v, mask))


def test_bits_of_bfloat16() -> None:
    q, k, v = operands((1, 2, 2, 9, 11, 8, 8), BF16)
    bits = [it.view(np.uint16) for it in (q, k, v)]
    got = dlprim.attention(*bits, dtype="bfloat16")
    assert got.dtype == np.uint16
    assert np.array_equal(got.view(BF16), dlprim.attention(q, k, v))
    with pytest.raises(TypeError, match="q has dtype uint16"):
        dlprim.attention(*bits)


@pytest.mark.parametrize("dtype", [F4, BF16], ids=str)
@pytest.mark.parametrize("keys", [40, 1300])
def test_queries_that_see_no_key_give_zeros(keys: int, dtype: np.dtype) -> None:
    q, k, v = operands((1, 2, 2, 70, keys, 16, 16), dtype)
    sees = np.random.default_rng(0).random((70, keys)) < 0.5
    sees[5], sees[69] = False, False
    sees[6, :600], sees[7, 30:] = False, False  # of some blocks of keys none
    added = np.where(sees, 0, -np.inf).astype(F4)
    for mask in (sees, added):
        got = dlprim.attention(q, k, v, mask)
        assert not got[:, :, [5, 69]].any()
        close(got, reference(q, k, v, mask))


def test_the_lowest_number_added_to_a_whole_row_changes_nothing() -> None:
    q, k, v = operands((1, 1, 1, 4, 40, 16, 16))
    mask = np.full((4, 40), np.finfo(F4).min)
    means = v.mean(axis=2, keepdims=True)
    close(dlprim.attention(q, k, v, mask), np.broadcast_to(means, (1, 1, 4, 16)))


@pytest.mark.parametrize("keys", [40, 1300])
def test_what_is_no_number_stays_in_its_rows(keys: int) -> None:
    q, k, v = operands((1, 1, 1, 20, keys, 16, 16))
    expected = dlprim.attention(q, k, v)
    q[0, 0, 3, 2], q[0, 0, 4, 0] = np.nan, np.inf
    got = dlprim.attention(q, k, v)
    assert np.isnan(got[0, 0, 3]).all()
    assert np.isnan(got[0, 0, 4]).all()
    rest = [i for i in range(20) if i not in (3, 4)]
    assert np.array_equal(got[0, 0, rest], expected[0, 0, rest])
    payload = np.array([0x7FC00123], np.uint32).view(F4)
    q[0, 0, 3, 2] = payload[0]
    assert np.isnan(dlprim.attention(q, k, v)[0, 0, 3]).all()
    hidden = np.arange(keys) != 2
    k[0, 0, 2] = np.nan  # of a key that nobody sees
    q[0, 0, 3:5] = 0
    assert np.isfinite(dlprim.attention(q, k, v, hidden)).all()


def test_large_scores_do_not_overflow() -> None:
    q, k, v = operands((1, 1, 1, 20, 700, 16, 16))
    q *= 100
    close(dlprim.attention(q, k, v, scale=1.0), reference(q, k, v, scale=1.0))


def test_extents_of_nothing() -> None:
    for shape in ((0, 2, 2, 3, 4, 5, 6), (1, 0, 1, 3, 4, 5, 6), (1, 2, 2, 0, 4, 5, 6),
                  (1, 2, 2, 3, 0, 5, 6), (1, 2, 2, 3, 4, 5, 0)):  # fmt: skip
        q, k, v = (np.ones(it, F4) for it in (
            (shape[0], shape[1], shape[3], shape[5]), (shape[0], shape[2], shape[4], shape[5]),
            (shape[0], shape[2], shape[4], shape[6])))  # fmt: skip
        got = dlprim.attention(q, k, v, out=np.ones((*q.shape[:-1], shape[6]), F4))
        assert got.shape == (*q.shape[:-1], shape[6])
        assert not got.any()


Q, K = np.ones((1, 2, 3, 4), F4), np.ones((1, 2, 5, 4), F4)
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"q": np.ones(4, F4)}, ValueError, r"q has shape \(4,\), expected \(\.\.\., H, Q, D\)"),
    ({"k": K[..., :3]}, ValueError, r"k has shape .* \(D from q\)"),
    ({"k": K[0]}, ValueError, "k has shape .*, expected as many axes as q"),
    ({"k": np.ones((1, 3, 5, 4), F4)}, ValueError, "k has 3 heads, expected a divisor of the 2"),
    ({"v": K[:, :, 1:]}, ValueError, r"v has shape .*heads and K from k"),
    ({"v": K.astype(BF16)}, TypeError, "v has dtype bfloat16, expected float32 as k has"),
    ({"q": np.ones((1, 2, 3, 4))}, TypeError, "q has dtype float64"),
    ({"mask": np.ones((3, 4), F4)}, ValueError, r"mask is .*, expected what broadcasts to"),
    ({"mask": np.ones((3, 5), np.int8)}, TypeError, "mask has dtype int8"),
    ({"scale": np.nan}, ValueError, "scale is nan, expected a finite number"),
    ({"softcap": -1.0}, ValueError, "softcap is -1.0"),
    ({"past": -1}, ValueError, "past is -1"),
    ({"causal": 1}, TypeError, "causal is 1, expected True or False"),
    ({"out": np.ones((1, 2, 3, 5), F4)}, ValueError, "out has shape"),
    ({"out": Q}, ValueError, "out shares memory with q"),
    ({"out": np.ones((1, 2, 4, 3), F4).swapaxes(2, 3)}, ValueError, "out has strides"),
    ({"out": np.broadcast_to(F4.type(0), (1, 2, 3, 4))}, ValueError, "out has strides"),
    ({"q": Q[..., :0], "k": K[..., :0]}, ValueError, "q has shape .*, expected heads of 1 to"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "error", "sentence"), REFUSED, ids=[it[2] for it in REFUSED])
def test_refusals(wrong: dict[str, Any], error: type[Exception], sentence: str) -> None:
    given = {"q": Q, "k": K, "v": K} | wrong
    with pytest.raises(error, match=sentence):
        dlprim.attention(**given)
