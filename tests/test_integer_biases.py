"""What integer sums begin with: refused where they could leave int32, and only there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlprim

pytestmark = pytest.mark.any_level

MOST = 2**31 - 1
LIMITS = {"uint8": (0, 255), "int8": (-128, 127)}


def layer(kind: str, dtype: str, dst_dtype: str = "float32") -> tuple[Any, Any, Any]:
    """A primitive, its plain weights and their packed form."""
    random = np.random.default_rng(3)
    how = {"dtype": dtype, "dst_dtype": dst_dtype}
    if kind == "linear":
        made: Any = dlprim.Linear((5, 33), 20, **how)
        w = random.integers(-127, 128, (20, 33))
    else:
        groups = 1 if kind == "conv" else 20
        made = dlprim.Conv2d((2, 20, 6, 6), (20, 20 // groups, 3, 3), groups=groups, **how)
        w = random.integers(-127, 128, (20, 20 // groups, 3, 3))
    weights = w.astype(np.int8)
    return made, weights, made.pack_weights(weights)


def called(made: Any, packed: Any, dtype: str, int_bias: Any, byte: int) -> Any:
    x = np.full(made.x_shape, byte, dtype)
    scale = None if made.dst_dtype == np.int32 else 1.0
    return made.forward(made.pack_src(x), packed, scale=scale, int_bias=int_bias)


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("kind", ["linear", "conv", "depthwise"])
def test_the_largest_that_fits_is_taken_and_one_more_is_refused(kind: str, dtype: str) -> None:
    made, w, packed = layer(kind, dtype)
    low, high = LIMITS[dtype]
    wide = w.reshape(20, -1).astype(np.int64)
    above, below = np.maximum(wide, 0).sum(1), np.minimum(wide, 0).sum(1)
    for end, limit in (
        (MOST - (high * above + low * below), 1),
        (-MOST - 1 - (low * above + high * below), -1),
    ):
        fits = np.clip(end, -MOST - 1, MOST).astype(np.int32)
        called(made, packed, dtype, fits, high)
        channel = int(np.flatnonzero(fits == end)[7])
        beyond = fits.copy()
        beyond[channel] += limit
        with pytest.raises(ValueError, match=rf"sums of channel {channel} go from .* to .*int32"):
            called(made, packed, dtype, beyond, high)
    with pytest.raises(ValueError, match="int_bias"):
        called(made, packed, dtype, fits[:3], high)


def test_sums_near_the_ends_are_exact() -> None:
    made, w, packed = layer("linear", "uint8")
    reach = 255 * np.maximum(w, 0).sum(1, dtype=np.int64)
    begin = (MOST - reach).astype(np.int32)
    found = called(made, packed, "uint8", begin, 200)
    sums = begin + 200 * w.sum(1, dtype=np.int64)
    np.testing.assert_array_equal(made.unpack_dst(found)[0], sums.astype(np.float32))


def test_an_int32_result_is_modulo_two_to_the_32() -> None:
    made, w, packed = layer("linear", "uint8", "int32")
    begin = np.full(20, MOST, np.int32)
    found = made.unpack_dst(called(made, packed, "uint8", begin, 255))[0]
    sums = MOST + 255 * w.sum(1, dtype=np.int64)
    np.testing.assert_array_equal(found, sums.astype(np.uint32).view(np.int32))
