"""Errors of Winograd convolution in units of those of the direct sum, both against float64."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import conv_reference as reference
import dlprim
from conv_cases import Conv, padded

pytestmark = pytest.mark.skipif(
    dlprim.isa() == "scalar", reason="the kernel without vectors sums in double precision"
)

PASSES = ("forward", "backward_data", "backward_weights")
# Of the largest direct error. AVX2's direct kernels add short rows in two chains and are the more
# accurate for it.
MOST = 3.0 if dlprim.isa().startswith("avx2") else 2.0
DRAWS = 5  # whose medians are compared: the largest of many errors scatters


class Images(NamedTuple):
    batch: int
    channels: int
    size: int

    def __str__(self) -> str:
        return f"{self.batch}x{self.channels}x{self.size}"

    @property
    def case(self) -> Conv:
        n, c, size = self
        return Conv(n, c, size, size, 64, 3, 3, (1, 1), padded(1, 1))


# Around the lengths of a sum where another tile is taken, for the pass that says so, and beyond.
LONG_AND_SHORT = [
    *[("forward", Images(4, channels, 14)) for channels in (4, 16, 32, 56, 57, 64, 128, 512)],
    ("forward", Images(1, 64, 56)),
    ("forward", Images(8, 256, 7)),
    ("backward_data", Images(4, 64, 14)),
    ("backward_data", Images(1, 96, 28)),
    *[("backward_weights", Images(n, 96, 7)) for n in (1, 2, 5, 6, 8, 16)],
    *[("backward_weights", Images(1, 64, size)) for size in (4, 6, 8, 12, 15, 16, 28, 56)],
]


def largest_errors(which: str, case: Conv, random: np.random.Generator, offset: float) -> list:
    """Of the direct algorithm and of Winograd."""

    def drawn(shape: tuple[int, ...], mean: float) -> NDArray:
        return random.standard_normal(shape, np.float32) + np.float32(mean)

    x, w = drawn(case.x_shape, offset), drawn(case.w_shape, 0)
    # Backward-data reads gradients as forward reads images.
    dy = drawn(case.y_shape, offset if which == "backward_data" else 0)
    operands = {"forward": (x, w), "backward_data": (dy, w), "backward_weights": (x, dy)}[which]
    exact = getattr(reference, which)(case, *operands).value
    errors = []
    for algorithm in ("direct", "winograd"):
        conv = dlprim.Conv2d(case.x_shape, case.w_shape, padding=1, algorithm=algorithm)
        if which == "forward":
            result = conv.unpack_dst(conv.forward(conv.pack_src(x), conv.pack_weights(w)))
        elif which == "backward_data":
            diff_src = conv.backward_data(conv.pack_diff_dst(dy), conv.pack_weights(w))
            result = conv.unpack_diff_src(diff_src)
        else:
            diff_weights = conv.backward_weights(conv.pack_src(x), conv.pack_diff_dst(dy))
            result = conv.unpack_diff_weights(diff_weights)
        errors.append(np.abs(result - exact).max())
    return errors


@pytest.mark.parametrize("offset", [0.0, 3.0, 100.0])
@pytest.mark.parametrize(("which", "images"), LONG_AND_SHORT, ids=str)
def test_error_is_a_small_multiple_of_that_of_the_direct_sum_in_the_median(
    which: str, images: Images, offset: float
) -> None:
    random = np.random.default_rng(images.channels + images.size)
    draws = np.array([largest_errors(which, images.case, random, offset) for _ in range(DRAWS)])
    direct, winograd = np.median(draws, axis=0)
    assert winograd <= MOST * direct


def test_short_sums_take_smaller_tiles() -> None:
    def algorithms(batch: int, channels: int, size: int, algorithm: str) -> dict[str, str]:
        x_shape, w_shape = (batch, channels, size, size), (channels, channels, 3, 3)
        return dlprim.Conv2d(x_shape, w_shape, padding=1, algorithm=algorithm).algorithms

    assert algorithms(1, 512, 7, "winograd") == {
        "forward": "winograd4",
        "backward_data": "winograd4",
        "backward_weights": "winograd2",
    }
    assert set(algorithms(8, 512, 7, "winograd").values()) == {"winograd4"}
    assert algorithms(8, 32, 14, "winograd")["forward"] == "winograd2"
    assert set(algorithms(1, 3, 5, "auto").values()) == {"direct"}
    assert set(algorithms(1, 3, 5, "winograd").values()) == {"winograd2"}
    assert "sums of 25 terms" in str(dlprim.Conv2d((1, 64, 5, 5), (64, 64, 3, 3), padding=1))
