"""Convolutions as products, on slices and on blocks: all are right, whichever would be chosen."""

from __future__ import annotations

import numpy as np
import pytest

import dlprim
from conv_axes_reference import CASES, FIXED, Case, assert_close, exact, operands
from dlprim.functions.conv.passes import passes_of
from dlprim.functions.conv.products import Products, suits
from dlprim.functions.conv.volumes import Volumes
from dlprim.functions.conv.windows import Window, window
from drawing import RNG

F4 = np.float32
# Of real networks: a first layer of videos, few channels out of many, one filter for each channel.
NETWORKS = [
    Case(1, 3, 16, (4, 20, 20), (3, 7, 7), (1, 2, 2), ((1, 1), (3, 3), (3, 3)), (1, 1, 1)),
    Case(1, 48, 2, (5, 9, 9), (3, 3, 3), (1, 1, 1), ((1, 1),) * 3, (1, 1, 1)),
    Case(2, 24, 24, (5, 12, 7), (3, 3, 3), (1, 1, 1), ((1, 1),) * 3, (1, 1, 1), 24),
]
# Few filters and a stride, so that what it leaves out is computed with its neighbours: of single
# channels, with a tap alone, without padding, and where dilation and stride share a factor.
STRIDED = [
    Case(3, 10, 10, (5, 8, 8), (5, 3, 3), (2, 2, 2), ((2, 2), (1, 1), (1, 1)), (1, 1, 1), 10),
    Case(2, 8, 2, (7, 9, 8), (3, 5, 1), (2, 2, 2), ((1, 1), (2, 2), (0, 0)), (1, 1, 1)),
    Case(2, 37, 1, (7, 12, 9), (7, 3, 3), (2, 2, 2), ((0, 0),) * 3, (1, 1, 1)),
    Case(2, 9, 1, (6, 7, 5), (2, 3, 2), (1, 3, 2), ((1, 0), (2, 2), (0, 1)), (1, 3, 4)),
    Case(1, 5, 3, (3, 4, 17), (3, 1, 3), (1, 1, 2), ((1, 1), (0, 0), (1, 1)), (1, 1, 1)),
]
# So large that images are taken a few at a time.
LARGE = Case(7, 16, 8, (16, 32, 32), (2, 1, 2), (1, 1, 1), ((0, 0),) * 3, (1, 1, 1))
VOLUMES = [it for it in [*FIXED, *CASES] if it.axes == 3 and not it.output_padding and it.N > 0]
SOME = [*NETWORKS, *STRIDED, LARGE, *VOLUMES[::3]]


def window_of(case: Case) -> Window:
    steps = case.stride, case.padding, case.dilation, case.groups
    return window(case.x_shape, case.w_shape, *steps)


def on_slices(case: Case) -> bool:
    """Filters of one channel have no sums over channels there."""
    return not case.groups == case.C == case.K


@pytest.mark.parametrize("case", SOME, ids=str)
def test_both_ways_are_right(case: Case) -> None:
    t, it = operands(case), window_of(case)
    right = exact(case, t)
    sizes = exact(case, {name: np.abs(array) for name, array in t.items()})
    ways: list[Products | Volumes] = [Products(it, it, "float32")]
    if on_slices(case):
        ways.append(Volumes(it, "float32"))
    for way in ways:
        y, dx = np.empty(case.y_shape, F4), np.empty(case.x_shape, F4)
        way.forward(t["x"], t["w"], None, y)
        way.backward_data(t["dy"], t["w"], dx)
        dw, db = way.backward_weights(t["dy"], t["x"])
        assert_close(y, right.y, sizes.y, 0)
        assert_close(dx, right.dx, sizes.dx, 0)
        assert_close(dw, right.dw, sizes.dw, 0)
        of_bias = t["dy"].astype(float).sum((0, 2, 3, 4))
        np.testing.assert_allclose(db, of_bias, atol=1e-4 * np.sqrt(t["dy"].size))


@pytest.mark.parametrize("case", [*NETWORKS, *STRIDED], ids=str)
def test_the_same_bits_for_any_number_of_threads(case: Case) -> None:
    t = operands(case)
    before, found = dlprim.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            dlprim.set_num_threads(threads)
            y = dlprim.conv3d(t["x"], t["w"], t["bias"], **case.keywords)
            gradients = dlprim.conv3d_backward(t["dy"], t["x"], t["w"], **case.keywords)
            found.append([array.tobytes() for array in (y, *gradients)])
    finally:
        dlprim.set_num_threads(before)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("case", STRIDED, ids=str)
def test_strides_leave_out_what_is_computed_between(case: Case) -> None:
    """With a bias; what is no number stays where a filter reads it."""
    t, it = operands(case), window_of(case)
    t["x"][0, 0, -1, -1, -1] = np.nan
    y = np.empty(case.y_shape, F4)
    Products(it, it, "float32").forward(t["x"], t["w"], t["bias"], y)
    right = exact(case, t).y + t["bias"].reshape(-1, 1, 1, 1)
    assert np.array_equal(np.isnan(y), np.isnan(right))
    np.testing.assert_allclose(y, right, rtol=1e-4, atol=1e-4)


def test_no_copy_is_mostly_padding() -> None:
    """A volume of 27 elements between 10**6 zeros on every side."""
    x, w = np.ones((1, 1, 3, 3, 3), F4), np.ones((2, 1, 2, 2, 2), F4)
    it = window(x.shape, w.shape, 10**6, 10**6, 1, 1)
    assert not suits(it)
    assert suits(window(x.shape, w.shape, 1, 1, 1, 1))
    y = np.empty(it.y_shape, F4)
    passes_of(it, "float32").forward(x, w, None, y)
    assert y.shape == (1, 2, 3, 3, 3)
    assert y[0, :, 1, 1, 1].tolist() == [8, 8]
    assert y.sum() == 16


# (images, filters, padding, groups): of one pixel, of few filters, small and odd.
PLAIN = [
    ((2, 24, 9, 7), (40, 24, 1, 1), 0, 1),
    ((3, 17, 1, 1), (5, 17, 1, 1), 0, 1),
    ((2, 30, 6, 5), (4, 15, 1, 1), 0, 2),
    ((2, 8, 11, 13), (3, 8, 3, 3), 1, 1),
    ((1, 6, 20, 20), (2, 6, 5, 4), 2, 1),
    ((2, 3, 3, 3), (1, 3, 2, 2), 40, 1),  # between more zeros than a copy would hold
]


@pytest.mark.parametrize(("x_shape", "w_shape", "padding", "groups"), PLAIN, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_images_as_products(
    x_shape: tuple[int, ...], w_shape: tuple[int, ...], padding: int, groups: int, dtype: str
) -> None:
    """As the primitive on blocks has it, with a bias and without, for any number of threads."""
    x, w = (RNG.standard_normal(shape).astype(F4) for shape in (x_shape, w_shape))
    if dtype == "bfloat16":
        x, w = dlprim.to_bfloat16(x), dlprim.to_bfloat16(w)
    bias = RNG.standard_normal(w_shape[0]).astype(F4)
    for added in (None, bias):
        how = {"padding": padding, "groups": groups}
        on_blocks = dlprim.conv2d(x, w, added, algorithm="direct", **how)
        found = []
        for threads in (1, 3):
            with dlprim.threads(threads):
                found.append(dlprim.conv2d(x, w, added, **how))
        assert found[0].tobytes() == found[1].tobytes()
        close = {"rtol": 1e-5, "atol": 1e-4} if dtype == "float32" else {"rtol": 1e-2, "atol": 0.1}
        np.testing.assert_allclose(found[0].astype(F4), on_blocks.astype(F4), **close)
