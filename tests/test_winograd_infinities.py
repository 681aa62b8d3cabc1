"""What Winograd's algorithm does to infinities and huge values, and what help() says of it."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import dlprim
from dlprim.primitives.conv import Conv2d

SHAPE, FILTERS = (2, 64, 28, 28), (64, 64, 3, 3)
PIXEL = (1, 5, 13, 14)


def operands() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    return random.standard_normal(SHAPE, np.float32), random.random(FILTERS, np.float32) + 0.5


@pytest.mark.parametrize("function", [dlprim.conv2d, dlprim.Conv2d])
def test_documentation_says_so(function: object) -> None:
    text = " ".join((inspect.getdoc(function) or "").split())
    assert "one infinity or NaN" in text
    assert "becomes NaN over whole tiles" in text
    assert "1e36" in text
    assert '"auto"' in text
    assert '``algorithm="direct"``' in text
    assert 'set_conv_algorithm("direct")' in text


def test_direct_keeps_one_infinity_to_the_results_that_read_it() -> None:
    x, w = operands()
    clean = dlprim.conv2d(x, w, padding=1, algorithm="direct")
    x[PIXEL] = np.inf
    y = dlprim.conv2d(x, w, padding=1, algorithm="direct")
    n, _, row, column = PIXEL
    read = np.zeros(y.shape, bool)
    read[n, :, row - 1 : row + 2, column - 1 : column + 2] = True
    assert (y[read] == np.inf).all()
    assert y[~read].tobytes() == clean[~read].tobytes()


@pytest.mark.skipif(dlprim.isa() == "scalar", reason="without vectors there is no Winograd")
def test_winograd_spreads_it_over_tiles_as_documented() -> None:
    x, w = operands()
    x[PIXEL] = np.inf
    y = dlprim.conv2d(x, w, padding=1, algorithm="winograd")
    spoilt = ~np.isfinite(y)
    n, _, row, column = PIXEL
    assert not spoilt[np.arange(len(y)) != n].any()
    rows, columns = np.nonzero(spoilt[n, 0])
    assert np.isnan(y[n, 0, rows, columns]).all()
    assert len(rows) > 9
    assert np.ptp(rows) < 8
    assert np.ptp(columns) < 8
    assert (abs(rows - row) < 8).all()
    assert (abs(columns - column) < 8).all()


@pytest.mark.skipif(dlprim.isa() == "scalar", reason="without vectors there is no Winograd")
def test_huge_finite_inputs_overflow_in_winograd_alone() -> None:
    x, w = operands()
    x, w = np.copysign(np.float32(1e38), x), w * np.float32(1e-3)
    assert np.isfinite(dlprim.conv2d(x, w, padding=1, algorithm="direct")).all()
    assert not np.isfinite(dlprim.conv2d(x, w, padding=1, algorithm="winograd")).all()


def test_the_process_can_choose_the_direct_algorithm() -> None:
    before = dlprim.get_conv_algorithm()
    try:
        dlprim.set_conv_algorithm("direct")
        assert set(Conv2d(SHAPE, FILTERS, padding=1).algorithms.values()) == {"direct"}
    finally:
        dlprim.set_conv_algorithm(before)
