"""What a convolution takes beside operands and results: less than the weights and one image of its
operands per thread, for every layer that is measured (bench/shapes)."""

import csv
from itertools import product
from math import prod
from pathlib import Path

import numpy as np
import pytest

import dlprim

SHAPES = Path(__file__).parent.parent / "bench" / "shapes"
PASSES = ("forward", "backward_data", "backward_weights")


def layers():
    """Once each: C, K, H, W, R, S, stride, pad, groups."""
    found = set()
    for path in sorted(SHAPES.glob("*conv*.csv")):
        with path.open() as file:
            for row in csv.DictReader(line for line in file if not line.startswith("#")):
                names = ("C", "K", "H", "W", "R", "S", "stride", "pad", "groups")
                found.add(tuple(int(row.get(name, 1)) for name in names))
    return sorted(found)


def too_much(conv, batch, threads):
    """The passes whose scratch exceeds the bound. Sums of gradients of weights are float32."""
    element = conv.dtype.itemsize
    image = (prod(conv.src_shape) + prod(conv.dst_shape)) // batch * element
    weights = dict.fromkeys(PASSES, prod(conv.weights_shape) * element)
    weights["backward_weights"] = prod(conv.diff_weights_shape) * 4
    scratch = conv.scratch_bytes
    return [which for which in PASSES if scratch[which] > weights[which] + threads * image]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("layout", ["blocked", "NHWC"])
def test_scratch_is_at_most_the_weights_and_an_image_per_thread(dtype, layout):
    beyond = []
    for layer, batch in product(layers(), (1, 8)):
        C, K, H, W, R, S, stride, pad, groups = layer
        conv = dlprim.Conv2d(
            (batch, C, H, W), (K, C // groups, R, S), stride, pad,
            groups=groups, dtype=dtype, layout=layout, algorithm="direct",
        )  # fmt: skip
        for threads in (1, 2):
            with dlprim.threads(threads):
                beyond += [(layer, batch, threads, it) for it in too_much(conv, batch, threads)]
    assert beyond == []


@pytest.mark.parametrize("layout", ["blocked", "NHWC"])
@pytest.mark.parametrize("channels", [(16, 65), (65, 16), (130, 70)])
@pytest.mark.parametrize("stride", [1, 2])
def test_scratch_of_channels_that_no_block_divides(channels, stride, layout):
    C, K = channels
    conv = dlprim.Conv2d((2, C, 20, 20), (K, C, 1, 1), stride, layout=layout)
    with dlprim.threads(1):
        assert too_much(conv, 2, 1) == []


# (x_shape, w_shape, groups): weights larger than an image, in slices of K, of C and of groups; the
# images fit beside a slice at once, or do not. The last are of one block and one long, odd row.
SLICED = [
    ((4, 128, 3, 3), (128, 128, 1, 1), 1),
    ((40, 128, 3, 3), (128, 128, 1, 1), 1),
    ((40, 160, 3, 3), (200, 160, 3, 3), 1),
    ((3, 200, 3, 3), (24, 200, 3, 3), 1),
    ((40, 200, 3, 3), (24, 200, 3, 3), 1),
    ((3, 96, 2, 3), (144, 32, 3, 3), 3),
    ((60, 96, 2, 3), (144, 32, 3, 3), 3),
    ((0, 128, 3, 3), (128, 128, 1, 1), 1),
    ((3, 32, 7, 7), (48, 32, 1, 1), 1),
]


@pytest.mark.large
@pytest.mark.parametrize("layout", ["blocked", "NHWC"])
@pytest.mark.parametrize(("x_shape", "w_shape", "groups"), SLICED)
def test_slices_of_weights_are_the_rounded_sums(x_shape, w_shape, groups, layout):
    random = np.random.default_rng(1)
    conv = dlprim.Conv2d(
        x_shape, w_shape, 1, w_shape[-1] // 2,
        groups=groups, dtype="bfloat16", layout=layout, algorithm="direct",
    )  # fmt: skip
    src, diff_dst = (
        pack(dlprim.to_bfloat16(random.integers(-3, 4, shape).astype(np.float32)))
        for pack, shape in ((conv.pack_src, conv.x_shape), (conv.pack_diff_dst, conv.y_shape))
    )
    # Sums of small integers are exact in float32, whatever their order.
    exact = conv.backward_weights(src, diff_dst)
    for threads in (1, 2):
        with dlprim.threads(threads):
            rounded = conv.backward_weights(src, diff_dst, dtype="bfloat16")
        wanted = dlprim.to_bfloat16(conv.unpack_diff_weights(exact))
        given = conv.unpack_diff_weights(rounded)
        np.testing.assert_array_equal(given.view(np.uint16), wanted.view(np.uint16))
