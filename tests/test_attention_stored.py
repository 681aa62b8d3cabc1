"""attention to a cache: the filled places alone, whatever is in the others, for any lengths."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dlprim
from drawing import RNG
from test_attention import close, masks, operands, reference

F4, BF16 = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)
# Batch, heads, heads of keys, queries, places, sizes of heads and of values.
SHAPES = [
    (1, 1, 1, 1, 1, 1, 1),
    (2, 4, 2, 1, 65, 7, 33),
    (1, 8, 2, 1, 77, 64, 64),
    (3, 3, 1, 1, 1300, 64, 80),
    (1, 8, 2, 4, 600, 128, 128),
    (2, 2, 2, 3, 1111, 40, 33),
    (1, 10, 1, 8, 2000, 16, 16),
    (2, 6, 3, 70, 300, 24, 40),
    (1, 2, 1, 2, 530, 300, 257),
]


def expected(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, fill: Any, mask: Any = None, causal: bool = False,
    window: int | None = None, softcap: float = 0.0,
) -> np.ndarray:  # fmt: skip
    """In float64, one sequence after the other, of the filled places alone."""
    n, h, queries, _ = q.shape
    made = []
    for i, count in enumerate(np.broadcast_to(fill, n)):
        place = np.arange(queries)[:, None] + count - queries
        key = np.arange(count)
        sees = np.full((queries, count), True)
        if causal:
            sees &= (key <= place) & (window is None or key > place - window)
        added = np.where(sees, 0.0, -np.inf)
        if mask is not None:
            it = np.broadcast_to(mask, (n, h, queries, k.shape[2]))[i, :, :, :count]
            added = added + (np.where(it, 0, -np.inf) if it.dtype == bool else it.astype(float))
        one = (it[i : i + 1, :, :count] for it in (k, v))
        added = np.broadcast_to(added, (1, h, queries, count))
        made.append(reference(q[i : i + 1], *one, added, softcap=softcap))
    return np.concatenate(made)


def spoiled(array: np.ndarray, fill: Any) -> np.ndarray:
    """The same with no numbers in all places that are not filled."""
    for rows, count in zip(array, np.broadcast_to(fill, len(array)), strict=True):
        rows[:, count:] = np.nan
    return array


@pytest.mark.every_level
@pytest.mark.parametrize("dtype", [F4, BF16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values(shape: tuple[int, ...], dtype: np.dtype) -> None:
    batch, *_, queries, places, _, _ = shape
    for fill in (places, int(RNG.integers(0, places + 1)), RNG.integers(0, places + 1, batch)):
        q, k, v = operands(shape, dtype)
        k, v = spoiled(k, fill), spoiled(v, fill)
        for asked in ({}, {"causal": True}, {"causal": True, "window": 3},
                      {"causal": True, "window": 600, "softcap": 2.0}):  # fmt: skip
            got = dlprim.attention(q, k, v, fill=fill, **asked)
            close(got, expected(q, k, v, fill, **asked))
    assert queries == q.shape[2]


@pytest.mark.parametrize("dtype", [F4, BF16], ids=str)
@pytest.mark.parametrize("shape", [(2, 4, 2, 1, 650, 64, 64), (2, 4, 2, 5, 70, 24, 17)], ids=str)
def test_masks(shape: tuple[int, ...], dtype: np.dtype) -> None:
    fill = np.array([shape[4] - 9, shape[4] // 2])
    q, k, v = operands(shape, dtype)
    k, v = spoiled(k, fill), spoiled(v, fill)
    for make in masks(shape).values():
        mask = make()
        for causal in (False, True):
            got = dlprim.attention(q, k, v, mask, causal=causal, fill=fill)
            close(got, expected(q, k, v, fill, mask, causal))


@pytest.mark.every_level
def test_float32_queries_meet_bfloat16_keys() -> None:
    q, _, _ = operands((1, 8, 2, 2, 300, 64, 48), F4)
    _, k, v = operands((1, 8, 2, 2, 300, 64, 48), BF16)
    got = dlprim.attention(q, k, v, causal=True, fill=290)
    assert got.dtype == F4
    close(got, expected(q, k, v, 290, causal=True))
    close(dlprim.attention(q, k, v), reference(q, k, v))


def test_a_cache_is_read_where_it_lies_whatever_its_order_of_axes() -> None:
    memory = RNG.standard_normal((2, 100, 3, 2, 32), np.float32)  # layers inside of places
    k, v = (memory[:, :, i].transpose(0, 2, 1, 3) for i in (0, 2))
    q = RNG.standard_normal((2, 4, 1, 32), np.float32)
    before = memory.copy()
    close(dlprim.attention(q, k, v, fill=77), expected(q, k, v, 77))
    assert np.array_equal(memory, before)
    close(dlprim.attention(q[0], k[0], v[0], fill=77), expected(q, k, v, 77)[0])
    many = [np.stack([it, it], 1) for it in (q, k, v)]
    fill = np.array([[77, 5], [9, 100]])
    got = dlprim.attention(*many, fill=fill)
    close(got[0, 1], expected(q, k, v, 5)[0])
    close(got[1, 0], expected(q, k, v, 9)[1])


@pytest.mark.parametrize("dtype", [F4, BF16], ids=str)
def test_same_bits_for_any_number_of_threads(dtype: np.dtype) -> None:
    q, k, v = operands((2, 8, 2, 3, 3000, 64, 64), dtype)
    made = []
    for count in (1, 2, 3):
        with dlprim.threads(count):
            made.append(dlprim.attention(q, k, v, causal=True, fill=np.array([2900, 700])))
    assert all(np.array_equal(made[0], it) for it in made[1:])


def test_one_call_after_the_other_generates_nothing() -> None:
    q, k, v = operands((1, 8, 2, 1, 200, 64, 64), F4)
    dlprim.attention(q, k, v, causal=True, fill=1)
    before = dlprim.kernel_cache_info()["generated"]
    for fill in range(2, 200):
        dlprim.attention(q, k, v, causal=True, fill=fill)
    assert dlprim.kernel_cache_info()["generated"] == before


def test_what_is_no_number_stays_in_its_rows() -> None:
    q, k, v = operands((1, 2, 1, 2, 1300, 16, 16))
    whole = dlprim.attention(q, k, v, fill=1200)
    q[0, 0, 1, 3], q[0, 1, 0, 0] = np.nan, np.inf
    got = dlprim.attention(q, k, v, fill=1200)
    assert np.isnan(got[0, 0, 1]).all()
    assert np.isnan(got[0, 1, 0]).all()
    assert np.array_equal(got[0, 0, 0], whole[0, 0, 0])
    assert np.array_equal(got[0, 1, 1], whole[0, 1, 1])


Q, K = np.ones((2, 2, 3, 4), F4), np.ones((2, 2, 5, 4), F4)
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"fill": 6}, ValueError, "fill is 6, expected numbers from 0 to 5, K"),
    ({"fill": -1}, ValueError, "fill is -1, expected numbers from 0 to 5"),
    ({"fill": 1 << 80}, TypeError, "fill is .*, expected an integer"),
    ({"fill": 2.0}, TypeError, "fill is 2.0, expected an integer or an array of integers"),
    ({"fill": [1, 2, 3]}, ValueError, r"fill is .*, expected a number or one of shape \(2,\)"),
    ({"fill": 2, "past": 1, "causal": True}, ValueError, "past is 1, expected 0: with fill"),
    ({"window": 2}, ValueError, "window is 2 and causal is False, expected True"),
    ({"window": 0, "causal": True}, ValueError, "window is 0, expected an integer of at least 1"),
    ({"q": Q.astype(BF16), "fill": 2}, TypeError, "k has dtype float32, expected bfloat16"),
    ({"q": np.ones((2, 2, 3, 1025), F4), "k": np.ones((2, 2, 5, 1025), F4), "fill": 3},
     ValueError, "heads have more than 1,024 elements"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "error", "sentence"), REFUSED, ids=[it[2] for it in REFUSED])
def test_refusals(wrong: dict[str, Any], error: type[Exception], sentence: str) -> None:
    given = {"q": Q, "k": K, "v": K} | wrong
    with pytest.raises(error, match=sentence):
        dlprim.attention(**given)


def test_a_compiled_function_is_given_what_is_filled() -> None:
    q, k, v = operands((2, 4, 2, 3, 60, 16, 24))

    @dlprim.compile
    def attend(q: Any, k: Any, v: Any, fill: Any) -> Any:
        return dlprim.attention(q, k, v, causal=True, window=20, fill=fill)

    close(attend(q, k, v, np.array([60, 5])), expected(q, k, v, [60, 5], None, True, 20))
    before = dlprim.kernel_cache_info()["generated"]
    for fill in ([1, 2], [33, 60], [0, 9]):
        close(attend(q, k, v, np.array(fill)), expected(q, k, v, fill, None, True, 20))
    assert dlprim.kernel_cache_info()["generated"] == before

    @dlprim.compile
    def looking_back(q: Any, k: Any, v: Any) -> Any:
        return dlprim.attention(q, k, v, causal=True, past=57, window=20)

    close(looking_back(q, k, v), expected(q, k, v, 60, None, True, 20))
