"""Conversion to and from bfloat16: exhaustive one way, at every turn of the rounding the other."""

from __future__ import annotations

import numpy as np
import pytest

import dlprim
from bfloat16 import ALL_BITS, bits_of, random_floats, rounded, special_floats
from guarded import guarded

pytestmark = pytest.mark.every_level


def test_rounding_of_every_kind_of_float() -> None:
    for x in (special_floats(), random_floats(300_001)):
        for threads in (1, 3):
            with dlprim.threads(threads):
                result = dlprim.to_bfloat16(x)
            np.testing.assert_array_equal(bits_of(result), rounded(x))


def test_rounding_agrees_with_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")
    x = special_floats()
    x = x[~np.isnan(x)]  # there ml_dtypes drops the payload
    result = dlprim.to_bfloat16(x)
    assert result.dtype == ml_dtypes.bfloat16
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(bits_of(result), bits_of(x.astype(ml_dtypes.bfloat16)))


@pytest.mark.parametrize("size", [*range(70), 40_001])
def test_conversions_stay_inside_their_arrays(size: int) -> None:
    bits = guarded(size, "end", np.uint16)
    bits[...] = np.resize(ALL_BITS[::-31], size)
    wide = dlprim.to_float32(bits, dtype="bfloat16")
    np.testing.assert_array_equal(wide.view(np.uint32), bits.astype(np.uint32) << 16)
    x = guarded(size)
    x[...] = wide
    np.testing.assert_array_equal(bits_of(dlprim.to_bfloat16(x)), rounded(x))


def test_widening_is_exact_for_every_bfloat16() -> None:
    for threads in (1, 4):
        with dlprim.threads(threads):
            wide = dlprim.to_float32(ALL_BITS, dtype="bfloat16")
        np.testing.assert_array_equal(wide.view(np.uint32), ALL_BITS.astype(np.uint32) << 16)
    quiet = np.isnan(wide) & (ALL_BITS & 0x40 == 0)  # signalling: rounding quiets them
    back = bits_of(dlprim.to_bfloat16(wide))
    np.testing.assert_array_equal(back, np.where(quiet, ALL_BITS | 0x40, ALL_BITS))


def test_conversions_keep_the_shape_and_take_views() -> None:
    x = np.random.default_rng(3).standard_normal((6, 8, 10)).astype(np.float32)
    for view in (x, x.T, x[::2, ::-3], x[0, 0, 0], x[:0]):
        half = dlprim.to_bfloat16(view)
        assert half.shape == view.shape
        np.testing.assert_array_equal(bits_of(half), rounded(np.array(view)))
        np.testing.assert_array_equal(
            dlprim.to_float32(half), (rounded(np.array(view)).astype("u4") << 16).view("f4")
        )


BYTES = np.zeros((4, 6), np.int8)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: dlprim.to_bfloat16(BYTES), TypeError, "x has dtype int8, expected float32"),
        (lambda: dlprim.to_bfloat16([1.0]), TypeError, "x is of type list"),
        (
            lambda: dlprim.to_float32(np.zeros(3, np.float32)),
            TypeError,
            "x has dtype float32, expected bfloat16",
        ),
    ],
)
def test_conversions_refuse(call, error, message) -> None:
    with pytest.raises(error, match=message):
        call()
