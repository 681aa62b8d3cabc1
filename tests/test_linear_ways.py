"""The ways that linear and linear_backward take by shape: values, memory, rounding, threads."""

from __future__ import annotations

import numpy as np
import pytest

import dlprim
from cases import Linear
from guarded import guarded
from reference import linear, linear_backward
from test_linear import F4, check, in_order, shape_of, tensors

# Even and ragged sizes that take all kinds of ways: sums along rows, factors in place and packed,
# the transposed product.
WAYS = [
    Linear(7, 300, 9),
    Linear(8, 64, 9),
    Linear(9, 65, 8),
    Linear(300, 17, 7),
    Linear(32, 257, 300),
    Linear(33, 256, 256),
    Linear(33, 300, 270),
    Linear(192, 33, 193),
    Linear(193, 40, 200),
    Linear(192, 300, 260),
    Linear(193, 300, 260),
    Linear(1100, 300, 20),
]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("shape", WAYS, ids=shape_of)
def test_ways(shape: Linear, with_bias: bool, activation: str | None, order: str) -> None:
    check(shape, with_bias, activation, order=order)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", WAYS, ids=shape_of)
def test_ways_give_the_same_bits_for_any_number_of_threads(shape: Linear, order: str) -> None:
    t = tensors(shape)
    w = in_order(t["w"], order)

    def results() -> list[np.ndarray]:
        return [
            dlprim.linear(t["x"], w, t["bias"], activation="relu"),
            *dlprim.linear_backward(t["dy"], t["x"], w),
        ]

    with dlprim.threads(1):
        serial = results()
    with dlprim.threads(3):
        for one, other in zip(serial, results(), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(
    "shape", [*WAYS, Linear(3000, 300, 1), Linear(5000, 1, 300), Linear(8, 3, 4)], ids=shape_of
)
def test_bfloat16_ways(shape: Linear, with_bias: bool, activation: str | None, order: str) -> None:
    t = tensors(shape)
    half = {name: dlprim.to_bfloat16(value) for name, value in t.items()}
    wide = {name: dlprim.to_float32(value) for name, value in half.items()}
    w = np.asfortranarray(half["w"]) if order == "F" else half["w"]
    bias = wide["bias"] if with_bias else None
    bits = guarded(shape.N * shape.K, dtype=np.uint16).view(half["x"].dtype)
    out = bits.reshape(shape.N, shape.K)
    y = dlprim.linear(half["x"], w, bias, activation=activation, out=out)
    exact = linear(wide["x"], wide["w"], bias, activation).value
    np.testing.assert_allclose(dlprim.to_float32(y), exact, rtol=2**-8, atol=1e-4 * shape.C**0.5)
    dx, dw, _ = dlprim.linear_backward(half["dy"], half["x"], w)
    expected = linear_backward(wide["dy"], wide["x"], wide["w"], None)
    for result, sums, terms in ((dx, expected[0], shape.K), (dw, expected[1], shape.N)):
        np.testing.assert_allclose(
            dlprim.to_float32(result), sums.value, rtol=2**-8, atol=1e-4 * terms**0.5
        )


def test_a_bfloat16_sum_in_fortran_order_is_rounded_once() -> None:
    x = dlprim.to_bfloat16(np.ones((8, 3), F4))
    w = dlprim.to_bfloat16(np.tile(np.array([1000, 2, 1], F4), (4, 1)))
    y = dlprim.linear(x, np.asfortranarray(w), np.full(4, -1000, F4))
    np.testing.assert_array_equal(dlprim.to_float32(y), np.full((8, 4), 3, F4))


@pytest.mark.parametrize("channels", [1, 2, 3, 16, 300])
def test_one_bfloat16_sum_is_rounded_once(channels: int) -> None:
    x, w = np.zeros((1, channels), F4), np.zeros((1, channels), F4)
    x[0, :2], w[0, :2] = [256, 1][:channels], 1
    y = dlprim.linear(*map(dlprim.to_bfloat16, (x, w)), np.full(1, -256, F4))
    np.testing.assert_array_equal(dlprim.to_float32(y), [[min(channels, 2) - 1]])


def test_empty_operands_inside_out_are_no_overlap() -> None:
    memory = np.zeros(6, F4)
    x = np.ndarray((2, 0), F4, buffer=memory, offset=8)
    y = dlprim.linear(x, np.zeros((3, 0), F4), np.ones(3, F4), out=memory.reshape(2, 3))
    assert y.base is memory
    assert (memory == 1).all()


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("extents", [(100, 77), (33, 1000), (3000, 3), (1, 5000)], ids=str)
def test_matrices_in_any_order_have_the_same_sums(extents: tuple[int, int], kind: str) -> None:
    rows, columns = extents
    # Integers, so that sums are exact in any order.
    rng = np.random.default_rng(0)
    values = rng.integers(-8, 9, (2 * rows, 3 * columns)).astype(F4)
    if kind == "bfloat16":
        values = dlprim.to_bfloat16(values)
    views = [np.asfortranarray(values), values[:, ::3], values[::2, ::3], values.T, values[::-1].T]
    for view in views:
        w = rng.integers(-8, 9, (2, view.shape[1])).astype(F4)
        if kind == "bfloat16":
            w = dlprim.to_bfloat16(w)
        expected, found = dlprim.linear(np.array(view, order="C"), w), dlprim.linear(view, w)
        if kind == "bfloat16":
            expected, found = dlprim.to_float32(expected), dlprim.to_float32(found)
        np.testing.assert_array_equal(found, expected)


def test_rows_farther_apart_than_programs_reach() -> None:
    apart = (1 << 29) + 64  # elements, 2 GiB: memory that is never touched takes none
    memory = np.zeros(3 * apart + 64, F4)
    x = np.lib.stride_tricks.as_strided(memory, (4, 64), (4 * apart, 4))
    x[:] = np.arange(4, dtype=F4)[:, None]
    for outputs in (2, 20):
        y = dlprim.linear(x, np.ones((outputs, 64), F4))
        np.testing.assert_array_equal(
            y, np.repeat(64 * np.arange(4, dtype=F4)[:, None], outputs, 1)
        )
