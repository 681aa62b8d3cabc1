"""Which algorithm a convolution takes, and what it refuses: names, schedules, weights."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dlprim
from conftest import RunPython
from conv_cases import Conv, padded
from dlprim.lang.definitions import contraction
from dlprim.tuning.moves import normal

PASSES = ("forward", "backward_data", "backward_weights")
SMALL = Conv(2, 34, 9, 7, 70, 3, 3, (1, 1), padded(1, 1))


@pytest.fixture
def automatic() -> Iterator[None]:
    yield
    dlprim.set_conv_algorithm("auto")


def test_weights_transformed_for_other_tiles_are_refused() -> None:
    shapes = [((1, 128, 5, 5), 2), ((1, 128, 8, 8), 0)]
    one, other = (
        dlprim.Conv2d(shape, (128, 128, 3, 3), padding=pad, algorithm="winograd", accuracy=accuracy)
        for (shape, pad), accuracy in zip(shapes, (None, "high"), strict=True)
    )
    assert one.algorithms != other.algorithms
    w = np.ones((128, 128, 3, 3), np.float32)
    with pytest.raises(ValueError, match=r"^weights has shape"):
        other.forward(other.pack_src(np.ones(other.x_shape, np.float32)), one.pack_weights(w))
    auto = [dlprim.Conv2d(shape, (128, 128, 3, 3), padding=pad) for shape, pad in shapes]
    if auto[0].algorithms != auto[1].algorithms:  # of one length, perhaps, but of another form
        src = auto[1].pack_src(np.ones(auto[1].x_shape, np.float32))
        with pytest.raises(ValueError, match=r"^weights (has shape|is packed as)"):
            auto[1].forward(src, auto[0].pack_weights(w))


def test_accuracy_is_refused_by_name() -> None:
    x, w = np.ones((1, 3, 5, 5), np.float32), np.ones((4, 3, 3, 3), np.float32)
    with pytest.raises(ValueError, match=r"^accuracy is \[1\], expected None or 'high'"):
        dlprim.conv2d(x, w, accuracy=[1])


def test_auto_takes_what_is_faster_by_estimate() -> None:
    large = dlprim.Conv2d((8, 256, 28, 28), (256, 256, 3, 3), padding=1)
    assert large.algorithms == dict.fromkeys(PASSES, "winograd4")
    assert "of the direct time by estimate" in str(large)
    pointwise = dlprim.Conv2d((8, 64, 14, 14), (64, 64, 1, 1))
    assert pointwise.algorithms == dict.fromkeys(PASSES, "direct")
    assert "direct: the filter is 1x1, expected 3x3" in str(pointwise)
    first = dlprim.Conv2d((8, 3, 28, 28), (8, 3, 3, 3))
    assert first.algorithms["forward"] == "direct"
    assert "direct: sums of 27 terms" in str(first)
    assert "Winograd would take" in str(first)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"w_shape": (8, 8, 5, 5)}, "the filter is 5x5, expected 3x3"),
        ({"stride": 2}, "the stride is 2x2, expected 1"),
        ({"dilation": 2}, "the dilation is 2x2, expected 1"),
        ({"w_shape": (8, 1, 3, 3), "groups": 8}, "it is depthwise"),
        ({"dtype": "bfloat16", "activation": "gelu"}, "the activation of a bfloat16 result"),
        ({"x_shape": (1, 40000, 9, 9), "w_shape": (8, 40000, 3, 3)}, "a block of tiles takes more"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(change: dict, reason: str) -> None:
    arguments = {"x_shape": (1, 8, 9, 9), "w_shape": (8, 8, 3, 3), **change}
    with pytest.raises(ValueError, match=f"^algorithm is 'winograd', which cannot .*{reason}"):
        dlprim.Conv2d(**arguments, algorithm="winograd")
    assert set(dlprim.Conv2d(**arguments).algorithms.values()) == {"direct"}


def test_too_large_images_are_refused_before_anything_is_made_for_them() -> None:
    with pytest.raises(ValueError, match=r"^neighbouring pixels .* expected at most 2\^24 of each"):
        dlprim.Conv2d((1, 64, 2**25, 1), (64, 64, 3, 3), padding=1)


def test_set_conv_algorithm(automatic: None) -> None:
    shapes = (8, 64, 28, 28), (64, 64, 3, 3)
    assert dlprim.get_conv_algorithm() == "auto"
    dlprim.set_conv_algorithm("direct")
    assert set(dlprim.Conv2d(*shapes).algorithms.values()) == {"direct"}
    named = dlprim.Conv2d(*shapes, algorithm="winograd")
    assert set(named.algorithms.values()) == {"winograd4"}
    dlprim.set_conv_algorithm("winograd")
    assert set(dlprim.Conv2d((1, 3, 5, 5), (1, 3, 3, 3)).algorithms.values()) != {"direct"}
    assert set(dlprim.Conv2d((1, 3, 5, 5), (1, 3, 1, 1)).algorithms.values()) == {"direct"}
    with pytest.raises(ValueError, match=r"^algorithm is 'fft', expected one of auto, direct, "):
        dlprim.set_conv_algorithm("fft")


def test_environment_variable(run_python: RunPython) -> None:
    source = (
        "import dlprim; print(dlprim.Conv2d((8, 64, 28, 28), (64, 64, 3, 3)).algorithms['forward'])"
    )
    assert run_python(source, DLPRIM_CONV_ALGORITHM="direct").stdout == "direct\n"
    assert run_python(source, DLPRIM_CONV_ALGORITHM="").stdout == "winograd4\n"
    run = run_python(source, DLPRIM_CONV_ALGORITHM="fast")
    assert "DLPRIM_CONV_ALGORITHM is 'fast', expected one of auto, direct, winograd" in run.stderr


def test_levels_of_a_single_iteration_may_stand_anywhere() -> None:
    conv = dlprim.Conv2d(SMALL.x_shape, SMALL.w_shape, padding=1, algorithm="winograd")
    for which, schedule in conv.schedules.items():
        conv._core.set_schedule(which, normal(schedule, conv._core.loops(which)))


def test_tune_knows_its_schedules(tmp_path: Path) -> None:
    conv = dlprim.Conv2d(SMALL.x_shape, SMALL.w_shape, padding=1, algorithm="winograd")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gains = dlprim.tune(conv, 1.5, path=tmp_path, progress=None)
    assert set(gains) == set(PASSES)
    assert set(conv.algorithms.values()) == {"winograd4", "winograd2"}


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ({"forward": "G N H k w"}, "expected the levels of k behind"),
        ({"forward": "G n h w K"}, "shares both blocks of tiles and channels"),
        ({"forward": "g4 n h w k"}, "takes several groups at once"),
        ({"backward_weights": "n H w"}, "shares loop h"),
        ({"backward_weights": "n h"}, "for the loop 'w'"),
    ],
)
def test_schedules_that_do_not_fit_are_refused(schedule: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dlprim.Conv2d(
            (2, 64, 9, 9),
            (64, 16, 3, 3),
            groups=4,
            algorithm="winograd",
            schedule=schedule,
        )


def test_formulas_follow_it_from_the_next_call_on(automatic: None) -> None:
    formula = "y(n,k,p,q) +=! x(n,c,p+r,q+s) * w(k,c,r,s)"
    x, w = np.ones((1, 64, 58, 58), np.float32), np.ones((64, 64, 3, 3), np.float32)
    definition = contraction(formula)
    for _ in range(2):
        dlprim.contract(formula, x, w)
    before = definition.latest
    assert before is not None
    dlprim.set_conv_algorithm("direct")
    dlprim.contract(formula, x, w)
    assert definition.latest is not before
    assert definition.latest is not None
    assert "Winograd" not in str(definition.latest.schedule)
    assert before.call((x, w)) is not None
    assert before.call_if_current((x, w), None) is None
    dlprim.set_conv_algorithm("auto")
    dlprim.contract(formula, x, w)
    assert definition.latest.call_if_current((x, w), None) is not None
    assert definition.latest.schedule == before.schedule
