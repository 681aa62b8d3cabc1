"""Conv2d: values of every pass, epilogues, the same bits on any thread count and ISA levels."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import conv_reference as reference
import dlprim
import dlprim._core as core
from conftest import LEVELS, RunPython, runs
from conv_cases import FIXED, Conv, padded, random_convs
from conv_checker import VARIANTS, Checked, Variant, check, drawn_variant
from tuning_cases import schedules_of

RANDOM = random_convs(300, seed=1)
SMALL = Conv(2, 34, 9, 7, 70, 3, 3, (2, 1), ((1, 0), (1, 2)), groups=2)

variants = pytest.mark.parametrize(("layout", "dtype"), VARIANTS)


# ---------------------------------------------------------------- values


@pytest.mark.every_level
@variants
@pytest.mark.parametrize("case", FIXED, ids=str)
def test_shape(case: Conv, layout: str, dtype: str) -> None:
    check(case, drawn_variant(layout, dtype, FIXED.index(case)))


@variants
@pytest.mark.parametrize("number", range(len(RANDOM)))
def test_random_shape(number: int, layout: str, dtype: str) -> None:
    check(RANDOM[number], drawn_variant(layout, dtype, number), seed=number)


@variants
@pytest.mark.parametrize("edge", ["begin", "end"])
@pytest.mark.parametrize("activation", [None, "relu", *reference.ACTIVATIONS])
@pytest.mark.parametrize("residual", [False, True])
def test_epilogue(
    layout: str, dtype: str, edge: str, activation: str | None, residual: bool
) -> None:
    for bias in (False, True):
        variant = Variant(layout, dtype, bias, residual, activation, activation == "relu", edge)
        check(SMALL, variant)


@variants
@pytest.mark.parametrize("case", [case for case in FIXED if case.C > 60], ids=str)
def test_every_schedule_computes_the_same(case: Conv, layout: str, dtype: str) -> None:
    """Those that the cost model would consider, each with every pass."""
    variant = Variant(layout, dtype, bias=True, residual=True, activation="relu")
    conv = Checked(case, variant, 0).conv
    for which in conv.schedules:
        for schedule in schedules_of(conv, which, 5):
            check(case, variant, schedule={which: schedule})


@pytest.mark.any_level
@pytest.mark.parametrize("level", LEVELS)
def test_level(run_python: RunPython, level: str) -> None:
    """In a process of its own each: a convolution takes the highest level that it is allowed."""
    if level == dlprim.isa() or not runs(level):
        pytest.skip(f"{level} is the level of the other tests, or not usable here")
    source = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import conv_checker, dlprim\n"
        "conv_checker.check_on_this_level(20, seed=2)\n"
        "print(dlprim.isa())"
    )
    run = run_python(source, DLPRIM_MAX_ISA=level, timeout=300)
    assert run.returncode == 0, run.stderr
    assert (run.stdout, run.stderr) == (f"{level}\n", "")


@variants
def test_gradients_are_those_of_the_forward_pass(layout: str, dtype: str) -> None:
    """``<dy, conv(x, w)> = <dx, x> = <dw, w>``, exactly: the numbers are small integers."""
    random = np.random.default_rng(3)
    for case in random_convs(40, seed=3):
        conv = dlprim.Conv2d(
            case.x_shape, case.w_shape, **case.keywords, layout=layout, dtype=dtype
        )
        x, w, dy = (
            random.integers(-1, 2, shape).astype(np.float32)
            for shape in (case.x_shape, case.w_shape, case.y_shape)
        )
        plain = [dlprim.to_bfloat16(each) if dtype == "bfloat16" else each for each in (x, w, dy)]
        src, weights = conv.pack_src(plain[0]), conv.pack_weights(plain[1])
        diff_dst = conv.pack_diff_dst(plain[2])
        y = conv.unpack_dst(conv.forward(src, weights))
        dx = conv.unpack_diff_src(conv.backward_data(diff_dst, weights))
        dw = conv.unpack_diff_weights(conv.backward_weights(src, diff_dst))
        exact = (reference.forward(case, x, w).value * dy).sum()
        for gradient, operand in ((y, dy), (dx, x), (dw, w)):
            assert (reference.doubles(gradient) * operand).sum() == exact


@variants
def test_nan_and_infinity_reach_what_they_are_part_of(layout: str, dtype: str) -> None:
    """And nothing else: not the neighbours in a block, not what padding stands for."""
    case = Conv(1, 20, 9, 11, 70, 3, 3, (2, 1), padded(1, 1))
    checked = Checked(case, Variant(layout, dtype), 0)
    conv = checked.conv
    for special in (np.nan, np.inf):
        x, dy = checked.x.copy(), checked.dy.copy()
        x[0, 3, 4, 10] = dy[0, 69, 2, 0] = special
        with np.errstate(invalid="ignore"):
            expected = (
                reference.forward(case, x, checked.w),
                reference.backward_data(case, dy, checked.w),
                reference.backward_weights(case, x, checked.dy),
            )
        src, diff_dst = conv.pack_src(x), conv.pack_diff_dst(dy)
        actual = (
            conv.unpack_dst(conv.forward(src, checked.weights)),
            conv.unpack_diff_src(conv.backward_data(diff_dst, checked.weights)),
            conv.unpack_diff_weights(conv.backward_weights(src, checked.diff_dst)),
        )
        for mine, exact in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(
                np.isfinite(reference.doubles(mine)), np.isfinite(exact.value)
            )


@pytest.mark.parametrize("special", [np.nan, np.inf])
@pytest.mark.parametrize("shape", [(2, 3), (4, 32), (32, 32)])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_weight_that_is_no_number_and_padding(
    layout: str, shape: tuple[int, int], special: float
) -> None:
    """Direct sums leave padding out; a product of copies with padding has NaN there instead.

    The stride is 2, for which there is no Winograd.
    """
    filters, channels = shape
    x = np.ones((1, channels, 9, 9), np.float32)
    w = np.ones((filters, channels, 3, 3), np.float32)
    w[1, 0, 0, 0] = special
    x = x if layout == "NCHW" else np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    for algorithm in ("direct", "auto"):
        y = dlprim.conv2d(x, w, stride=2, padding=1, layout=layout, algorithm=algorithm)
        y = y if layout == "NCHW" else y.transpose(0, 3, 1, 2)
        np.testing.assert_array_equal(y[0, 1, 1:, 1:], np.full((4, 4), special))
        border = np.concatenate([y[0, 1, 0], y[0, 1, 1:, 0]])
        assert np.isfinite(border).all() or (algorithm == "auto" and np.isnan(border).all())
        assert np.isfinite(np.delete(y, 1, axis=1)).all()


@variants
def test_nan_passes_relu_and_its_gradient(layout: str, dtype: str) -> None:
    conv = dlprim.Conv2d((1, 1, 1, 4), (1, 1, 1, 1), layout=layout, dtype=dtype, activation="relu")
    x = np.array([np.nan, -1, 0, 2], np.float32).reshape(1, 1, 1, 4)
    dy = np.array([3, np.nan, np.nan, 5], np.float32).reshape(1, 1, 1, 4)
    w = np.ones((1, 1, 1, 1), np.float32)
    if dtype == "bfloat16":
        x, dy, w = (dlprim.to_bfloat16(each) for each in (x, dy, w))
    mask = np.empty(conv.relu_mask_shape, np.uint8)
    dst = conv.forward(conv.pack_src(x), conv.pack_weights(w), relu_mask=mask)
    y = reference.doubles(conv.unpack_dst(dst))
    np.testing.assert_array_equal(y.ravel(), [np.nan, 0, 0, 2])
    for source in ({"dst": dst}, {"relu_mask": mask}):
        db = np.empty(1, np.float32)
        diff = conv.backward_relu(conv.pack_diff_dst(dy), **source, diff_bias=db)
        masked = reference.doubles(conv.unpack_dst(diff))
        np.testing.assert_array_equal(masked.ravel(), [3, 0, 0, 5])
        assert db[0] == 8


@variants
def test_new_results_are_zero_behind_the_last_channel(layout: str, dtype: str) -> None:
    case = Conv(1, 65, 4, 4, 130, 3, 3, padding=padded(1, 1))
    checked = Checked(case, Variant(layout, dtype, activation="relu"), 0)
    conv = checked.conv
    dst = conv.forward(checked.src, checked.weights)
    diff_dst = conv.backward_relu(checked.diff_dst, dst)
    diff_src = conv.backward_data(diff_dst, checked.weights)
    for packed, channels in ((dst, case.K), (diff_dst, case.K), (diff_src, case.C)):
        assert not checked.behind(packed, channels).any()
        assert packed.ctypes.data % 64 == 0


# ---------------------------------------------------------------- the same bits


def all_passes(checked: Checked) -> list[bytes]:
    conv = checked.conv
    dst = conv.forward(checked.src, checked.weights, np.ones(checked.case.K, np.float32))
    db = np.empty(checked.case.K, np.float32)
    diff_dst = conv.backward_relu(checked.diff_dst, dst, diff_bias=db)
    diff_src = conv.backward_data(diff_dst, checked.weights)
    diff_weights = conv.backward_weights(checked.src, diff_dst)
    results = (conv.unpack_dst(dst), conv.unpack_diff_src(diff_src), diff_weights, db)
    return [each.tobytes() for each in results]


SEVERAL_TASKS = [
    Conv(5, 64, 9, 9, 70, 3, 3, (1, 1), padded(1, 1)),
    Conv(1, 130, 9, 31, 65, 3, 3, (2, 2), padded(1, 1)),
    Conv(3, 256, 7, 7, 64, 1, 1),
    Conv(2, 96, 15, 15, 96, 3, 3, (1, 1), padded(1, 1), groups=96),
    Conv(4, 3, 40, 40, 32, 7, 7, (2, 2), padded(3, 3)),
    Conv(5, 64, 27, 32, 96, 1, 1, (2, 2)),
    Conv(2, 520, 17, 16, 260, 1, 1, (2, 2)),
]


@variants
@pytest.mark.parametrize("case", SEVERAL_TASKS, ids=str)
def test_same_bits_for_any_number_of_threads(case: Conv, layout: str, dtype: str) -> None:
    variant = Variant(layout, dtype, bias=True, activation="relu")
    with dlprim.threads(1):
        expected = all_passes(Checked(case, variant, 0))
    for threads in range(1, 9):
        with dlprim.threads(threads):
            checked = Checked(case, variant, 0)
            assert [all_passes(checked), all_passes(checked)] == [expected, expected]


# Sums in copies for parts of the minibatch, sums in place, Winograd's.
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "case",
    [Conv(16, 70, 7, 7, 70, 1, 1), Conv(2, 300, 7, 7, 200, 1, 1), Conv(4, 70, 14, 14, 90, 3, 3)],
    ids=str,
)
def test_weights_gradient_is_zero_where_blocks_hold_no_channels(case: Conv, dtype: str) -> None:
    checked = Checked(case, Variant(dtype=dtype, algorithm="auto"), 0)
    conv = checked.conv
    packed = np.full(conv.diff_weights_shape, np.nan, np.float32)
    conv.backward_weights(checked.src, checked.diff_dst, out=packed)
    channels = case.K * case.C * case.R * case.S
    assert packed.size > channels
    assert np.count_nonzero(packed) == channels


@variants
@pytest.mark.parametrize(("channels", "groups"), [(70, 1), (3, 1), (64, 64)])
def test_a_column_of_pixels_runs_as_a_row(
    channels: int, groups: int, layout: str, dtype: str
) -> None:
    """They lie alike: the same bits of all passes, and the same tiles."""
    tall = Conv(2, channels, 50, 1, 64, 5, 1, (2, 1), ((1, 2), (0, 0)), (2, 1), groups)
    wide = Conv(2, channels, 1, 50, 64, 1, 5, (1, 2), ((0, 0), (1, 2)), (1, 2), groups)
    first, second = (Checked(it, Variant(layout, dtype, bias=True), 0) for it in (tall, wide))
    if groups == 1:
        assert first.conv.schedules == second.conv.schedules
    for name in ("src", "weights", "diff_dst"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()
    for one, other in zip(all_passes(first), all_passes(second), strict=True):
        assert one == other


@pytest.mark.any_level
def test_a_column_of_few_filters_keeps_many_threads() -> None:
    """As a row it would be one task for each vector of filters."""
    conv = dlprim.Conv2d((1, 16, 20000, 1), (16, 16, 5, 1), padding=(2, 0))
    src = np.zeros(conv.src_shape, np.float32)
    weights = conv.pack_weights(np.zeros((16, 16, 5, 1), np.float32))
    alone, shared, *_ = core.priced(lambda: conv.forward(src, weights), 16)
    assert shared < alone / 8


def test_python_threads_share_one_convolution() -> None:
    checked = Checked(SEVERAL_TASKS[0], Variant(bias=True, activation="relu"), 0)
    expected = all_passes(checked)
    with ThreadPoolExecutor(8) as pool:
        assert all(each == expected for each in pool.map(lambda _: all_passes(checked), range(16)))


# ---------------------------------------------------------------- peers


@variants
@pytest.mark.parametrize("case", random_convs(10, seed=4), ids=str)
def test_agrees_with_torch(case: Conv, layout: str, dtype: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    checked = Checked(case, Variant(layout, dtype), 0)
    x, w, dy = (
        torch.from_numpy(reference.doubles(each)) for each in (checked.x, checked.w, checked.dy)
    )
    (top, bottom), (left, right) = case.padding
    image = torch.nn.functional.pad(x, (left, right, top, bottom)).requires_grad_()
    w.requires_grad_()
    y = torch.nn.functional.conv2d(
        image, w, stride=case.stride, dilation=case.dilation, groups=case.groups
    )
    y.backward(dy)
    conv = checked.conv
    dst = conv.forward(checked.src, checked.weights)
    dx = conv.unpack_diff_src(conv.backward_data(checked.diff_dst, checked.weights))
    dw = conv.unpack_diff_weights(conv.backward_weights(checked.src, checked.diff_dst))
    theirs = image.grad[:, :, top : top + case.H, left : left + case.W]
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == "float32" else {"rtol": 1e-2, "atol": 1e-2}
    np.testing.assert_allclose(reference.doubles(conv.unpack_dst(dst)), y.detach(), **close)
    np.testing.assert_allclose(reference.doubles(dx), theirs, **close)
    np.testing.assert_allclose(reference.doubles(dw), w.grad, **close)
