"""Winograd convolution: values, accuracy, forms of the weights, the choice of the algorithm."""

from __future__ import annotations

import numpy as np
import pytest

import conv_reference as reference
import dlprim
from conftest import LEVELS, RunPython, runs
from conv_cases import Conv, padded
from conv_checker import VARIANTS, Checked, Variant, check
from tuning_cases import schedules_of

PASSES = ("forward", "backward_data", "backward_weights")
EXTENTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 14, 16, 17, 19, 23, 28, 40)
CHANNELS = (1, 2, 3, 15, 16, 17, 20, 31, 48, 64, 65, 97, 130)
MANY_CHANNELS = (57, 58, 64, 65, 80, 97, 130)  # sums long enough for tiles of 4


def random_winograds(count: int, seed: int, channels: tuple[int, ...]) -> list[Conv]:
    random = np.random.default_rng(seed)
    cases = []
    while len(cases) < count:
        height, width = (int(random.choice(EXTENTS)) for _ in range(2))
        top, bottom, left, right = (int(each) for each in random.integers(0, 3, 4))
        groups = int(random.choice((1, 1, 1, 2, 3)))
        c, k = (int(random.choice(channels)) * groups for _ in range(2))
        n = int(random.choice((0, 1, 1, 2, 3)))
        depthwise = groups > 1 and groups == c == k
        too_small = height + top + bottom < 3 or width + left + right < 3
        if depthwise or too_small or n * height * width * (c + k) > 200_000:
            continue
        pads = ((top, bottom), (left, right))
        cases.append(Conv(n, c, height, width, k, 3, 3, (1, 1), pads, groups=groups))
    return cases


# Alternating, so that any few of them have tiles of both sizes.
RANDOM = [
    case
    for pair in zip(
        random_winograds(100, 5, CHANNELS), random_winograds(100, 6, MANY_CHANNELS), strict=True
    )
    for case in pair
]
LAYER = Conv(3, 64, 28, 28, 96, 3, 3, (1, 1), padded(1, 1))
SMALL = Conv(2, 34, 9, 7, 70, 3, 3, (1, 1), padded(1, 1))

variants = pytest.mark.parametrize(("layout", "dtype"), VARIANTS)
every_pass = pytest.mark.parametrize("which", PASSES)


def winograd(layout: str, dtype: str, number: int) -> Variant:
    """An epilogue that varies with the number."""
    activations = (None, "relu", "relu", "sigmoid" if dtype == "float32" else None)
    activation = activations[number % 4]
    mask = activation == "relu" and number % 3 == 0
    bias, residual, edge = number % 2 == 0, number % 5 < 2, ("begin", "end")[number % 7 % 2]
    return Variant(layout, dtype, bias, residual, activation, mask, edge, "winograd")


# ---------------------------------------------------------------- values


@variants
@pytest.mark.parametrize("number", range(len(RANDOM)))
def test_random_shape(number: int, layout: str, dtype: str) -> None:
    check(RANDOM[number], winograd(layout, dtype, number), seed=number)


@pytest.mark.large
@variants
@every_pass
def test_every_schedule_computes_the_same(layout: str, dtype: str, which: str) -> None:
    variant = winograd(layout, dtype, 0)
    conv = Checked(LAYER, variant, 0).conv
    for schedule in schedules_of(conv, which, 8):
        check(LAYER, variant, schedule={which: schedule})


@pytest.mark.any_level
@pytest.mark.parametrize("level", LEVELS)
def test_level(run_python: RunPython, level: str) -> None:
    if level == dlprim.isa() or not runs(level):
        pytest.skip(f"{level} is the level of the other tests, or not usable here")
    source = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from test_winograd import *; from levels import few\n"
        "for number, case in few(RANDOM[:24], dlprim.isa()):\n"
        "    for layout, dtype in VARIANTS:\n"
        "        check(case, winograd(layout, dtype, number), seed=number)\n"
    )
    run = run_python(source, DLPRIM_MAX_ISA=level, timeout=300)
    assert run.returncode == 0, run.stderr


@variants
def test_same_bits_for_any_number_of_threads(layout: str, dtype: str) -> None:
    for case in (LAYER, SMALL, RANDOM[3], RANDOM[17]):
        checked = Checked(case, winograd(layout, dtype, 1), 0)
        conv = checked.conv
        results = []
        for count in (1, 2, 3, 5, 8):
            with dlprim.threads(count):
                dst = conv.forward(checked.src, checked.weights, residual=None)
                diff_src = conv.backward_data(checked.diff_dst, checked.weights)
                diff_weights = conv.backward_weights(checked.src, checked.diff_dst)
            plain = (
                conv.unpack_dst(dst),
                conv.unpack_diff_src(diff_src),
                conv.unpack_diff_weights(diff_weights),
            )
            results.append([each.tobytes() for each in plain])
        assert all(each == results[0] for each in results)


def test_forms_of_weights_give_the_same() -> None:
    conv = dlprim.Conv2d(SMALL.x_shape, SMALL.w_shape, padding=1, algorithm="winograd")
    random = np.random.default_rng(0)
    src = conv.pack_src(random.standard_normal(SMALL.x_shape, np.float32))
    diff_dst = conv.pack_diff_dst(random.standard_normal(SMALL.y_shape, np.float32))
    w = random.standard_normal(SMALL.w_shape, np.float32)
    packed = {form: conv.pack_weights(w, form=form) for form in ("all", "forward", "direct")}
    assert packed["all"].size > packed["forward"].size > packed["direct"].size
    first = conv.forward(src, packed["all"]), conv.backward_data(diff_dst, packed["all"])
    for form in ("forward", "direct"):
        np.testing.assert_allclose(conv.forward(src, packed[form]), first[0], rtol=0, atol=1e-4)
        diff_src = conv.backward_data(diff_dst, packed[form])
        np.testing.assert_allclose(diff_src, first[1], rtol=0, atol=1e-4)
    with pytest.raises(ValueError, match=r"^form is 'flat', expected one of all, forward, direct"):
        conv.pack_weights(w, form="flat")
    with pytest.raises(ValueError, match=r"^weights has shape"):
        conv.forward(src, packed["all"][:-1])


# ---------------------------------------------------------------- accuracy


in_float32 = pytest.mark.skipif(
    dlprim.isa() == "scalar", reason="the kernel without vectors sums in double precision"
)


@in_float32
def test_high_accuracy_is_at_least_that_of_the_direct_sum() -> None:
    random = np.random.default_rng(1)
    x = random.standard_normal(LAYER.x_shape, np.float32)
    w = random.standard_normal(LAYER.w_shape, np.float32)
    exact = reference.forward(LAYER, x, w).value
    direct = dlprim.conv2d(x, w, padding=1, algorithm="direct")
    high = dlprim.conv2d(x, w, padding=1, algorithm="winograd", accuracy="high")
    assert np.abs(high - exact).max() <= np.abs(direct - exact).max()
    conv = dlprim.Conv2d(x.shape, w.shape, padding=1, algorithm="winograd", accuracy="high")
    assert set(conv.algorithms.values()) == {"winograd2"}


@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1e10, 1e15])
def test_magnitudes(scale: float) -> None:
    """Errors are in proportion; numbers near the ends of float32 have room."""
    random = np.random.default_rng(2)
    x = random.standard_normal(SMALL.x_shape, np.float32) * np.float32(scale)
    w = random.standard_normal(SMALL.w_shape, np.float32)
    y = dlprim.conv2d(x, w, padding=1, algorithm="winograd")
    exact = reference.forward(SMALL, x, w).value
    assert np.abs(y - exact).max() <= 1e-5 * np.abs(exact).max()


def test_all_equal() -> None:
    x, w = np.full(SMALL.x_shape, 7, np.float32), np.full(SMALL.w_shape, 0.5, np.float32)
    y = dlprim.conv2d(x, w, padding=1, algorithm="winograd")
    np.testing.assert_allclose(y, reference.forward(SMALL, x, w).value, rtol=1e-6)


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_nan_spreads_within_its_tiles(special: float) -> None:
    case = Conv(2, 20, 24, 24, 33, 3, 3, (1, 1), padded(1, 1))
    random = np.random.default_rng(4)
    x = random.standard_normal(case.x_shape, np.float32)
    w = random.standard_normal(case.w_shape, np.float32)
    clean = dlprim.conv2d(x, w, padding=1, algorithm="winograd")
    x[1, 7, 10, 13] = special
    y = dlprim.conv2d(x, w, padding=1, algorithm="winograd")
    touched = ~np.isfinite(y).all((0, 1))
    assert touched[9:12, 12:15].all()  # what the direct sum would touch
    rows, columns = np.nonzero(touched)
    assert rows.min() >= 4
    assert rows.max() < 16
    assert columns.min() >= 8
    assert columns.max() < 20
    np.testing.assert_array_equal(y[0], clean[0])
    np.testing.assert_array_equal(y[:, :, ~touched], clean[:, :, ~touched])
