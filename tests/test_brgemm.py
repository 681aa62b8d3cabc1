"""The kernel's contract at every ISA level: results, memory, special values, batches."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

import cases
import dlprim
from checker import Request, check
from reference import assert_close, brgemm

pytestmark = pytest.mark.any_level

EXTENTS = st.one_of(st.sampled_from((1, 15, 16, 17, 31, 37)), st.integers(1, 70))
REQUESTS = st.builds(
    Request,
    m=EXTENTS,
    n=EXTENTS,
    k=EXTENTS,
    batch=st.integers(0, 4),
    trans_a=st.booleans(),
    beta=st.sampled_from((0, 1)),
    addressing=st.sampled_from(("stride", "memory", "offset", "address")),
    slack=st.tuples(*[st.sampled_from((0, 0, 1, 7, 16, 1000))] * 3),
    bias=st.booleans(),
    activation=st.sampled_from((None, "relu")),
    edge=st.sampled_from(("end", "begin")),
    integers=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)


def shape_of(case: cases.Brgemm) -> str:
    return "x".join(map(str, case))


# ---------------------------------------------------------------- shapes and variants


@pytest.mark.parametrize("case", cases.BRGEMM, ids=shape_of)
def test_shape(case: cases.Brgemm, isa: str) -> None:
    check(Request(**case._asdict()), isa)


@pytest.mark.parametrize("variant", cases.VARIANTS)
@pytest.mark.parametrize("case", cases.SMALL, ids=shape_of)
def test_variant(case: cases.Brgemm, variant: str, isa: str) -> None:
    for integers in (False, True):
        check(Request(**case._asdict(), **cases.VARIANTS[variant], integers=integers), isa)


@settings(max_examples=200)
@given(wanted=REQUESTS)
def test_random_request(isa: str, wanted: Request) -> None:
    check(wanted, isa)


# ---------------------------------------------------------------- the batch


def operands(
    random: np.random.Generator, batch: int, m: int, n: int, k: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    a = random.standard_normal((batch, m, k), np.float32)
    b = random.standard_normal((batch, k, n), np.float32)
    return a, b, np.full((m, n), np.nan, np.float32)


def test_batch_runs_backwards_through_a_negative_stride(
    isa: str, random: np.random.Generator
) -> None:
    a, b, c = operands(random, 4, 5, 20, 6)
    dlprim.Brgemm(5, 20, 6, isa=isa)(a[::-1], b, c)
    assert_close(c, brgemm(a[::-1], b))


def test_one_matrix_serves_the_whole_batch(isa: str, random: np.random.Generator) -> None:
    a, b, c = operands(random, 4, 5, 20, 6)
    kernel = dlprim.Brgemm(5, 20, 6, isa=isa)
    repeated = np.broadcast_to(b[2], b.shape)
    kernel(a, repeated, c)
    assert_close(c, brgemm(a, repeated))
    c.fill(np.nan)
    kernel(a, b[2], c, batch=4, stride_b=0)
    assert_close(c, brgemm(a, repeated))


def test_overlapping_matrices_of_one_operand(isa: str, random: np.random.Generator) -> None:
    """As in a convolution, where neighbouring windows of the input overlap."""
    memory = random.standard_normal(40, np.float32)
    b = random.standard_normal((6, 4, 18), np.float32)
    c = np.full((3, 18), np.nan, np.float32)
    dlprim.Brgemm(3, 18, 4, lda=5, isa=isa)(memory, b, c, batch=6, stride_a=4)
    assert_close(c, brgemm(as_strided(memory, (6, 3, 4), (4, 20, 4)), b))


def test_offsets_may_repeat_and_come_in_any_order(isa: str, random: np.random.Generator) -> None:
    a, b, c = operands(random, 3, 5, 20, 6)
    order = np.array([2, 0, 0, 1, 2])
    kernel = dlprim.Brgemm(5, 20, 6, addressing="offset", isa=isa)
    offsets = {"offsets_a": order * a[0].nbytes, "offsets_b": order[::-1] * b[0].nbytes}
    kernel(a, b, c, **offsets)
    assert_close(c, brgemm(a[order], b[order[::-1]]))
    kernel(a, b, c, batch=2, **offsets)
    assert_close(c, brgemm(a[order[:2]], b[order[:2:-1]]))


def test_explicit_batch_uses_only_the_first_matrices(isa: str, random: np.random.Generator) -> None:
    a, b, c = operands(random, 4, 5, 20, 6)
    for batch in (0, 1, 3):
        dlprim.Brgemm(5, 20, 6, isa=isa)(a, b, c, batch=batch)
        assert_close(c, brgemm(a[:batch], b[:batch]))


def test_empty_batch_is_the_epilogue_alone(isa: str) -> None:
    bias = np.array([-3, -1, 1, 3], np.float32)
    nothing = np.empty((0, 2, 5), np.float32), np.empty((0, 5, 4), np.float32)
    c = np.full((2, 4), 2, np.float32)
    dlprim.Brgemm(2, 4, 5, beta=1, bias=True, activation="relu", isa=isa)(*nothing, c, bias=bias)
    np.testing.assert_array_equal(c, [[0, 1, 3, 5]] * 2)
    c.fill(np.nan)
    dlprim.Brgemm(2, 4, 5, isa=isa)(*nothing, c)
    np.testing.assert_array_equal(c, 0)


def test_result_may_show_its_whole_rows(isa: str, random: np.random.Generator) -> None:
    """C is m x n even when the array that holds it has ldc columns."""
    a, b, _ = operands(random, 2, 5, 20, 6)
    c = np.full((5, 25), 7, np.float32)
    dlprim.Brgemm(5, 20, 6, ldc=25, isa=isa)(a, b, c)
    assert_close(c[:, :20], brgemm(a, b))
    np.testing.assert_array_equal(c[:, 20:], 7)


def test_same_bits_from_many_threads(isa: str, random: np.random.Generator) -> None:
    a, b, expected = operands(random, 8, 33, 65, 17)
    kernel = dlprim.Brgemm(33, 65, 17, isa=isa)
    kernel(a, b, expected)

    def run(_: int) -> np.ndarray:
        c = np.full((33, 65), np.nan, np.float32)
        kernel(a, b, c)
        return c

    with ThreadPoolExecutor(4) as pool:
        for c in pool.map(run, range(40)):
            np.testing.assert_array_equal(c.view(np.uint32), expected.view(np.uint32))


# ---------------------------------------------------------------- special values

SPECIAL = [
    *[
        (place, value)
        for place in ("a", "b", "bias", "c")
        for value in (math.nan, math.inf, -math.inf)
    ],
    ("a", 3e38),  # overflows to infinity
    ("b", 3e38),
]


@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize(("place", "value"), SPECIAL)
@pytest.mark.parametrize("n", [16, 19, 70])
@pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered:RuntimeWarning")
def test_special_value_spreads_as_in_ieee_arithmetic(
    isa: str, random: np.random.Generator, n: int, place: str, value: float, activation: str | None
) -> None:
    a, b, c = operands(random, 2, 9, n, 7)
    c[...] = random.standard_normal(c.shape)
    bias = random.standard_normal(n, np.float32)
    # In the products of the special value with these, zero makes NaN of an infinity.
    a[1, :, 4] = [0, 2, *[-2] * 7]
    b[1, 4, :] = [0, 2, *[-2] * (n - 2)]
    where = {"a": (1, 3, 4), "b": (1, 4, n - 1), "bias": (n - 1,), "c": (0, 1)}
    {"a": a, "b": b, "bias": bias, "c": c}[place][where[place]] = value
    expected = brgemm(a, b, c, bias, activation).value.astype(np.float32)
    assert activation == "relu" or not np.isfinite(expected).all()
    dlprim.Brgemm(9, n, 7, beta=1, bias=True, activation=activation, isa=isa)(a, b, c, bias=bias)
    np.testing.assert_allclose(c, expected, rtol=1e-5, atol=1e-5)  # NaN and infinity where expected


def test_infinities_of_both_signs_cancel_to_nan_and_relu_keeps_it(isa: str) -> None:
    a = np.array([[[math.inf, 1], [1, 1], [-math.inf, 1]]], np.float32)
    b = np.array([[[1, -1], [-math.inf, 1]]], np.float32)
    for activation, last in ((None, -math.inf), ("relu", 0)):
        c = np.empty((3, 2), np.float32)
        dlprim.Brgemm(3, 2, 2, activation=activation, isa=isa)(a, b, c)
        below = last if activation else -math.inf
        np.testing.assert_array_equal(
            c, np.array([[math.nan, last], [below, 0], [below, math.inf]], np.float32)
        )


def test_denormal_numbers_are_not_flushed(isa: str) -> None:
    tiny = np.float32(1e-40)
    a = np.full((1, 3, 1), tiny, np.float32)
    b = np.ones((1, 1, 20), np.float32)
    c = np.empty((3, 20), np.float32)
    dlprim.Brgemm(3, 20, 1, isa=isa)(a, b, c)
    np.testing.assert_array_equal(c, tiny)
