"""Exactly the calls that stay inside their arrays are accepted, and overlap means shared elements.

Refusing too much is a fault as well: convolutions pass overlapping windows, recurrent networks
pass slices of one large array as operand and result.
"""

from __future__ import annotations

import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

import dlprim
from guarded import guarded
from reference import assert_close, brgemm

pytestmark = pytest.mark.any_level

M, N, K, LDA = 3, 20, 4, 6
SPAN = 4 * ((M - 1) * LDA + K)


def windows(memory: np.ndarray, offsets: list[int]) -> np.ndarray:
    return np.array([as_strided(memory[at // 4 :], (M, K), (4 * LDA, 4)) for at in offsets])


def inside(memory: np.ndarray, offsets: list[int]) -> bool:
    return all(at % 4 == 0 and 0 <= at <= memory.nbytes - SPAN for at in offsets)


def run(kernel: dlprim.Brgemm, memory: np.ndarray, offsets: list[int], **keywords: object) -> None:
    """Accepted and right, or refused: as `inside` says."""
    random = np.random.default_rng(0)
    memory[...] = random.standard_normal(memory.shape)
    b = random.standard_normal((len(offsets), K, N), np.float32)
    c = np.full((M, N), np.nan, np.float32)
    if not inside(memory, offsets):
        with pytest.raises(ValueError, match="a matrix of a"):
            kernel(memory, b, c, **keywords)
        assert np.isnan(c).all()
        return
    kernel(memory, b, c, **keywords)
    if offsets:
        assert_close(c, brgemm(windows(memory, offsets), b))
    else:
        np.testing.assert_array_equal(c, 0)


@given(
    size=st.integers(0, 60),
    stride=st.integers(-80, 80),
    batch=st.integers(0, 5),
    aligned=st.booleans(),
)
def test_strides(isa: str, size: int, stride: int, batch: int, aligned: bool) -> None:
    stride *= 4 if aligned else 1
    kernel = dlprim.Brgemm(M, N, K, lda=LDA, isa=isa)
    offsets = [i * stride for i in range(batch)]
    run(kernel, guarded(size), offsets, batch=batch, stride_a=stride)


@given(
    size=st.integers(0, 60),
    offsets=st.lists(st.integers(-4, 60).map(lambda at: 4 * at) | st.integers(0, 240), max_size=4),
)
def test_offsets(isa: str, size: int, offsets: list[int]) -> None:
    kernel = dlprim.Brgemm(M, N, K, lda=LDA, addressing="offset", isa=isa)
    table = guarded(len(offsets), dtype=np.int64)
    table[...] = offsets
    in_b = np.arange(len(offsets)) * 4 * K * N
    run(kernel, guarded(size), offsets, offsets_a=table, offsets_b=in_b)


def test_slices_of_one_array_may_be_operand_and_result(
    isa: str, random: np.random.Generator
) -> None:
    """Interleaved rows share no element."""
    memory = random.standard_normal((M, 2 * N), np.float32)
    expected = brgemm(memory[None, :, N : N + K], np.ones((1, K, N)))
    kernel = dlprim.Brgemm(M, N, K, lda=2 * N, ldc=2 * N, isa=isa)
    kernel(memory[:, N : N + K], np.ones((K, N), np.float32), memory[:, :N])
    assert_close(memory[:, :N], expected)


def test_neighbours_in_memory_do_not_overlap(isa: str, random: np.random.Generator) -> None:
    memory = random.standard_normal(M * K + M * N + K * N + N, np.float32)
    a, c, b, bias = np.split(memory, np.cumsum([M * K, M * N, K * N]))
    kernel = dlprim.Brgemm(M, N, K, bias=True, isa=isa)
    expected = brgemm(a.reshape(1, M, K), b.reshape(1, K, N), bias=bias)
    kernel(a, b, c.reshape(M, N), bias=bias)
    assert_close(c.reshape(M, N), expected)


def test_operands_may_be_the_same_array_and_read_only(
    isa: str, random: np.random.Generator
) -> None:
    a = random.standard_normal((2, 9, 9), np.float32)
    a.setflags(write=False)
    c = np.empty((9, 9), np.float32)
    dlprim.Brgemm(9, 9, 9, isa=isa)(a, a, c)
    assert_close(c, brgemm(a, a))


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("k", [3, 31, 32, 33, 64, 448, 500])
def test_largest_leading_dimension(isa: str, k: int, trans_a: bool) -> None:
    """Steps along k are then 64 MiB: more than 2^31 bytes within what is unrolled."""
    ld = 2**24
    nbytes = 4 * ((k - 1) * ld + 64)
    reserve = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    try:
        memory = mmap.mmap(-1, nbytes, flags=reserve)
    except OSError as error:
        pytest.skip(f"the system does not lend {nbytes} bytes of addresses: {error}")
    wide = as_strided(np.frombuffer(memory, np.float32), (k, 64), (4 * ld, 4))
    wide[...] = np.arange(64)
    narrow = np.ones((k, 1), np.float32)
    c = np.empty((64, 1) if trans_a else (1, 64), np.float32)
    if trans_a:
        dlprim.Brgemm(64, 1, k, lda=ld, trans_a=True, isa=isa)(wide, narrow, c)
    else:
        dlprim.Brgemm(1, 64, k, ldb=ld, isa=isa)(narrow.T, wide, c)
    np.testing.assert_array_equal(c.ravel(), k * np.arange(64))
