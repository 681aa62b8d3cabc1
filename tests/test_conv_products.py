"""Convolutions of volumes as products and on slices: both are right, whichever would be chosen."""

from __future__ import annotations

import numpy as np
import pytest

import dlprim
from conv_axes_reference import CASES, FIXED, Case, assert_close, exact, operands
from dlprim.functions.conv.passes import passes_of
from dlprim.functions.conv.products import Products, suits
from dlprim.functions.conv.volumes import Volumes
from dlprim.functions.conv.windows import Window, window

F4 = np.float32
# Of real networks: a first layer of videos, few channels out of many, one filter for each channel.
NETWORKS = [
    Case(1, 3, 16, (4, 20, 20), (3, 7, 7), (1, 2, 2), ((1, 1), (3, 3), (3, 3)), (1, 1, 1)),
    Case(1, 48, 2, (5, 9, 9), (3, 3, 3), (1, 1, 1), ((1, 1),) * 3, (1, 1, 1)),
    Case(2, 24, 24, (5, 12, 7), (3, 3, 3), (1, 1, 1), ((1, 1),) * 3, (1, 1, 1), 24),
]
# So large that images are taken a few at a time.
LARGE = Case(7, 16, 8, (16, 32, 32), (2, 1, 2), (1, 1, 1), ((0, 0),) * 3, (1, 1, 1))
VOLUMES = [it for it in [*FIXED, *CASES] if it.axes == 3 and not it.output_padding and it.N > 0]
SOME = [*NETWORKS, LARGE, *VOLUMES[::3]]


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


@pytest.mark.parametrize("case", NETWORKS, ids=str)
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
