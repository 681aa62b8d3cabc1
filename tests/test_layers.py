"""Element-wise layers, dropout, embedding and softmax cross-entropy against float64."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import dlprim
from guarded import guarded

pytestmark = pytest.mark.every_level

DTYPES = ["float32", "bfloat16"]
SIZES = [0, 1, 15, 16, 17, 63, 64, 65, 131, 40000]


def as_dtype(x: NDArray, dtype: str) -> NDArray:
    x = np.ascontiguousarray(x, np.float32)
    return dlprim.to_bfloat16(x) if dtype == "bfloat16" else x


def wide(x: NDArray) -> NDArray:
    return x if x.dtype == np.float32 else dlprim.to_float32(x)


def normal(shape, dtype="float32", seed=0) -> NDArray:
    return as_dtype(np.random.default_rng(seed).standard_normal(shape), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_elementwise(size, dtype):
    x, y = normal(size, dtype), normal(size, dtype, 1)
    total = wide(as_dtype(wide(x) + wide(y), dtype))
    np.testing.assert_array_equal(wide(dlprim.relu(x)), np.maximum(wide(x), 0))
    np.testing.assert_array_equal(wide(dlprim.add(x, y)), total)
    np.testing.assert_array_equal(wide(dlprim.add(x, y, activation="relu")), np.maximum(total, 0))
    passed = np.where(wide(y) > 0, wide(x), 0)
    np.testing.assert_array_equal(wide(dlprim.relu_backward(x, y)), passed)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("edge", ["begin", "end"])
def test_elementwise_between_forbidden_pages(dtype, edge):
    for size in (1, 7, 33, 100):
        x = normal(size, dtype)
        arrays = [guarded(size, edge, x.dtype) for _ in range(3)]
        arrays[0][:], arrays[1][:] = x, x
        doubled = dlprim.add(*arrays[:2], out=arrays[2])
        np.testing.assert_array_equal(wide(doubled), 2 * wide(x))
        dlprim.dropout(arrays[0], 0.5, seed=1, out=arrays[2])


def test_relu_keeps_nan_and_works_in_place():
    x = np.array([[-1, np.nan], [np.inf, -np.inf]], np.float32)
    assert dlprim.relu(x, out=x) is x
    np.testing.assert_array_equal(x, [[0, np.nan], [np.inf, 0]])
    passed = dlprim.relu_backward(np.ones_like(x), x)
    np.testing.assert_array_equal(passed, [[0, 1], [1, 0]])


def test_wrong_operands_are_refused():
    x = normal((4, 6))
    with pytest.raises(TypeError, match=r"^x has dtype float64"):
        dlprim.relu(x.astype(np.float64))
    with pytest.raises(ValueError, match="other has shape"):
        dlprim.add(x, x[:2])
    flat = np.zeros(20, np.float32)
    with pytest.raises(ValueError, match="shares memory"):
        dlprim.relu(flat[:16], out=flat[4:])
    with pytest.raises(ValueError, match="p is 2"):
        dlprim.dropout(x, 2, seed=0)
    with pytest.raises(ValueError, match="seed is -1"):
        dlprim.dropout(x, 0.5, seed=-1)


def philox(counter: NDArray, offset: int, seed: int) -> NDArray:
    """Philox 4x32-10 from its definition; (4, counters)."""
    word = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    zeros = np.zeros_like(counter)
    c = [counter & word, counter >> half, zeros + (offset & 0xFFFFFFFF), zeros + (offset >> 32)]
    keys = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        x, y = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        k = [np.uint64(key) for key in keys]
        c = [y >> half ^ c[1] ^ k[0], y & word, x >> half ^ c[3] ^ k[1], x & word]
        keys = [keys[0] + 0x9E3779B9 & 0xFFFFFFFF, keys[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return np.stack(c)


def test_philox_gives_the_known_answers_of_its_authors():
    # From the test vectors that accompany the paper.
    assert [hex(v) for v in philox(np.zeros(1, np.uint64), 0, 0)[:, 0]] == [
        "0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8",
    ]  # fmt: skip
    ones = philox(np.full(1, 2**64 - 1, np.uint64), 2**64 - 1, 2**64 - 1)[:, 0]
    assert [hex(v) for v in ones] == ["0x408f276d", "0x41c83b0e", "0xa20bc7c6", "0x6d5451fd"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 63, 64, 129, 40001])
def test_dropout_follows_its_generator(size, dtype):
    p, seed, offset = 0.3, 2**63 + 12345, 2**40 + 7
    element = np.arange(size, dtype=np.uint64)
    words = philox(element // 64 * 16 + element % 16, offset, seed)
    words = words[(element % 64 // 16).astype(int), np.arange(size)]
    x = normal(size, dtype)
    exact = np.where(words >= round(p * 2**32), wide(x) * np.float32(1 / (1 - p)), 0)
    got = dlprim.dropout(x, p, seed=seed, offset=offset)
    np.testing.assert_array_equal(wide(got), wide(as_dtype(exact, dtype)))
    with dlprim.threads(3):
        assert dlprim.dropout(x, p, seed=seed, offset=offset).tobytes() == got.tobytes()


def test_dropout_keeps_what_it_should():
    x = np.ones(200_000, np.float32)
    kept = (dlprim.dropout(x, 0.25, seed=3) > 0).mean()
    assert abs(kept - 0.75) < 0.005
    np.testing.assert_array_equal(dlprim.dropout(x, 0, seed=3), x)
    assert not dlprim.dropout(x, 1, seed=3).any()
    assert (
        dlprim.dropout(x, 0.5, seed=3, offset=1) != dlprim.dropout(x, 0.5, seed=3, offset=2)
    ).any()


def softmax_oracle(x: NDArray, targets: NDArray, ignored: int) -> tuple[float, NDArray]:
    x = x.astype(np.float64)
    counts = targets != ignored
    safe = np.where(counts, targets, 0)
    rows = np.arange(len(x))
    shifted = x - x.max(1, keepdims=True)
    powers = np.exp(shifted)
    losses = np.log(powers.sum(1)) - shifted[rows, safe]
    gradient = powers / powers.sum(1, keepdims=True)
    gradient[rows, safe] -= 1
    number = counts.sum()
    return float(losses[counts].sum() / number), gradient * counts[:, None] / number


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "classes"), [(1, 1), (5, 3), (7, 17), (64, 1000), (3, 40001)])
def test_softmax_cross_entropy(rows, classes, dtype):
    x = as_dtype(normal((rows, classes)) * 5, dtype)
    targets = np.random.default_rng(1).integers(0, classes, rows)
    if rows > 3:
        targets[1] = -100
    loss, gradient = dlprim.softmax_cross_entropy(x, targets)
    exact, exact_gradient = softmax_oracle(wide(x), targets, -100)
    assert loss == pytest.approx(exact, rel=1e-5, abs=1e-6)
    tolerance = 3e-6 if dtype == "float32" else 4e-3
    np.testing.assert_allclose(wide(gradient), exact_gradient, tolerance, 1e-7)
    assert dlprim.softmax_cross_entropy(x, targets, gradient=False) == (loss, None)
    with dlprim.threads(2):
        again = dlprim.softmax_cross_entropy(x, targets, out=np.empty_like(x))
    assert again[0] == loss
    assert again[1].tobytes() == gradient.tobytes()


def test_softmax_cross_entropy_in_place_and_at_the_extremes():
    x = np.array([[1e4, -1e4, 0], [-np.inf, 0, 0], [np.nan, 0, 0]], np.float32)
    targets = np.array([0, 1, 9])
    loss, gradient = dlprim.softmax_cross_entropy(x, targets, ignore_index=9, out=x)
    assert gradient is x
    assert loss == pytest.approx(np.log(2) / 2)
    np.testing.assert_allclose(x, [[0, 0, 0], [0, -0.25, 0.25], [0, 0, 0]], atol=1e-7)
    bad = np.array([[np.nan, 0]], np.float32)
    loss, gradient = dlprim.softmax_cross_entropy(bad, np.array([1]))
    assert np.isnan(loss)
    assert np.isnan(gradient).all()
    assert np.isnan(
        dlprim.softmax_cross_entropy(np.ones((2, 3), np.float32), [-100] * np.ones(2, int))[0]
    )


def test_softmax_cross_entropy_refuses():
    x = normal((2, 3))
    with pytest.raises(ValueError, match="targets holds 3"):
        dlprim.softmax_cross_entropy(x, np.array([0, 3]))
    with pytest.raises(ValueError, match="targets has shape"):
        dlprim.softmax_cross_entropy(x, np.array([0]))
    with pytest.raises(TypeError, match="targets has dtype float64"):
        dlprim.softmax_cross_entropy(x, np.array([0.0, 1.0]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "rows", "width"), [((4, 5), 11, 17), ((3000,), 7, 64), ((0,), 3, 2)]
)
def test_embedding(shape, rows, width, dtype):
    weights = normal((rows, width), dtype)
    indices = np.random.default_rng(2).integers(0, rows, shape)
    dst = dlprim.embedding(indices, weights)
    assert dst.dtype == weights.dtype
    np.testing.assert_array_equal(wide(dst), wide(weights)[indices])
    diff_dst = normal((*shape, width), dtype, 3)
    exact = np.zeros((rows, width))
    np.add.at(exact, indices, wide(diff_dst).astype(np.float64))
    got = dlprim.embedding_backward(diff_dst, indices, rows)
    np.testing.assert_allclose(got, exact, 1e-5, 2e-5)
    with dlprim.threads(3):
        again = dlprim.embedding_backward(diff_dst, indices, rows, out=np.ones_like(got))
    assert again.tobytes() == got.tobytes()


def test_embedding_refuses():
    weights = normal((4, 2))
    with pytest.raises(ValueError, match="indices holds -1"):
        dlprim.embedding(np.array([0, -1]), weights)
    with pytest.raises(ValueError, match=r"^dy has shape"):
        dlprim.embedding_backward(weights, np.array([0]), 4)
    with pytest.raises(ValueError, match="indices holds 4"):
        dlprim.embedding_backward(weights, np.array([0, 1, 2, 4]), 4)
