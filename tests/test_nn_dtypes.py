"""What comes in as float32 or bfloat16 is converted at the entry; its gradient has its dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn
from dlprim.arguments.floats import bfloat16_dtype
from drawing import RNG

pytest.importorskip(
    "ml_dtypes", reason="it has the type of bfloat16 arrays"
)  # without which bfloat16 is known by the model alone
BFLOAT16 = bfloat16_dtype()
DTYPES = {"float32": np.dtype(np.float32), "bfloat16": BFLOAT16}


def block(name: str = "") -> nn.ConvBatchNorm:
    conv = nn.Conv2d(8, 8, 3, padding=1)
    return nn.ConvBatchNorm(conv, nn.BatchNorm2d(8), (f"conv{name}", f"bn{name}"))


def chain() -> nn.Module:
    return nn.Sequential(
        {"conv": nn.Conv2d(8, 4, 3), "pool": nn.MaxPool2d(2), "flat": nn.Flatten()}
    )


ON_IMAGES: dict[str, Callable[[], nn.Module]] = {
    "Conv2d": lambda: nn.Conv2d(8, 12, 3, padding=1, bias=True),
    "groups": lambda: nn.Conv2d(8, 12, 3, padding=1, groups=4),
    "BatchNorm2d": lambda: nn.BatchNorm2d(8),
    "ConvBatchNorm": block,
    "Residual": lambda: nn.Residual([block("1"), block("2")]),
    "MaxPool2d": lambda: nn.MaxPool2d(2),
    "AvgPool2d": lambda: nn.AvgPool2d(2),
    "GlobalAvgPool2d": nn.GlobalAvgPool2d,
    "AdaptiveAvgPool2d": lambda: nn.AdaptiveAvgPool2d((4, 3)),
    "Upsample": lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
    "ReflectionPad2d": lambda: nn.ReflectionPad2d((1, 2, 0, 3)),
    "Concat": lambda: nn.Concat(nn.Conv2d(8, 12, 1), nn.ReLU()),
    "ReLU": nn.ReLU,
    "Dropout": lambda: nn.Dropout(0.5, seed=1),
    "Flatten": nn.Flatten,
    "Sequential": chain,
}
ON_ARRAYS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "Linear": (lambda: nn.Linear(6, 4, activation="gelu"), (5, 6)),
    "lstm": (lambda: nn.Recurrent("lstm", 6, 4, 2), (3, 2, 6)),
    "gru": (lambda: nn.Recurrent("gru", 6, 4), (3, 2, 6)),
    "ReLU": (nn.ReLU, (5, 6)),
    "Dropout": (lambda: nn.Dropout(0.5, seed=1), (5, 6)),
    "Flatten": (nn.Flatten, (5, 2, 3)),
    "ReplicationPad2d": (lambda: nn.ReplicationPad2d((1, 2, 0, 3)), (2, 3, 4)),
    "Concat": (lambda: nn.Concat(nn.Linear(6, 4), nn.ReLU(), dim=-1), (5, 6)),
    "GroupNorm": (lambda: nn.GroupNorm(4, 8), (2, 8, 6, 6)),
    "LayerNorm": (lambda: nn.LayerNorm(6), (5, 6)),
    "Conv1d": (lambda: nn.Conv1d(8, 4, 3), (2, 8, 6)),
}


def converted(value: Any, dtype: Any) -> Any:
    if value.dtype == dtype:
        return value.copy()
    return dlprim.to_bfloat16(value) if dtype == BFLOAT16 else dlprim.to_float32(value)


def require_conversion(make: Callable[[], nn.Module], x: Any, dtype: str, given: str) -> None:
    """Of x, which is float32."""
    own, outside = DTYPES[dtype], DTYPES[given]
    x = converted(converted(x, BFLOAT16), outside)  # the same values in both
    nn.seed(1)
    ours = make()
    nn.seed(1)
    theirs = make()
    for model in (ours, theirs):
        model.use(nn.Context(dtype))
    for training in (False, True):
        mine = ours.forward(x, training=training)
        expected = theirs.forward(converted(x, own), training=training)
        assert mine.dtype == own
        np.testing.assert_array_equal(mine, expected)
    dy = converted(mine, outside)
    dx = ours.backward(dy)
    expected = theirs.backward(converted(dy, own))
    assert dx.dtype == outside
    assert expected.dtype == own
    # Gradients are made in float32, and rounded where they leave as bfloat16.
    np.testing.assert_array_equal(converted(dx, BFLOAT16), converted(expected, BFLOAT16))


@pytest.mark.parametrize(("dtype", "given"), [("bfloat16", "float32"), ("float32", "bfloat16")])
@pytest.mark.parametrize("name", ON_IMAGES)
def test_images_of_the_other_dtype(name: str, dtype: str, given: str) -> None:
    require_conversion(ON_IMAGES[name], RNG.standard_normal((2, 8, 6, 6), np.float32), dtype, given)


@pytest.mark.parametrize(("dtype", "given"), [("bfloat16", "float32"), ("float32", "bfloat16")])
@pytest.mark.parametrize("name", ON_ARRAYS)
def test_arrays_of_the_other_dtype(name: str, dtype: str, given: str) -> None:
    make, shape = ON_ARRAYS[name]
    x = RNG.standard_normal(shape, np.float32)
    require_conversion(make, x, dtype, given)


@pytest.mark.parametrize("name", ["Linear", "lstm", "ReLU", "Conv1d"])
def test_other_dtypes_are_refused(name: str) -> None:
    make, shape = ON_ARRAYS[name]
    model = make()
    model.use(nn.Context("bfloat16"))
    with pytest.raises(TypeError, match="float64"):
        model.forward(np.ones(shape))


def test_integers_pass() -> None:
    model = nn.Sequential({"words": nn.Embedding(5, 4), "fc": nn.Linear(4, 3)})
    model.use(nn.Context("bfloat16"))
    y = model.forward(np.arange(5))
    assert y.dtype == BFLOAT16
    assert model.backward(np.ones(y.shape, np.float32)) is None


def test_results_in_a_nest_and_gradients_by_several_inputs() -> None:
    class Both(nn.Module):
        def forward(self, x: Any, more: Any) -> Any:
            product = x * more["scale"]
            return product, [product, x > 0]

    model = Both()
    model.use(nn.Context("bfloat16"))
    x = converted(RNG.standard_normal((3, 4), np.float32), BFLOAT16)
    scale = np.full((3, 4), 2, np.float32)
    y, (again, positive) = model(x, {"scale": scale})
    assert (y.dtype, again.dtype, positive.dtype) == (BFLOAT16, BFLOAT16, bool)
    ones = np.ones((3, 4), np.float32)
    dx, rest = model.backward((ones, [ones, None]))
    assert (dx.dtype, rest["scale"].dtype) == (BFLOAT16, np.float32)
    np.testing.assert_array_equal(dx, np.full((3, 4), 4, BFLOAT16))
    np.testing.assert_array_equal(rest["scale"], 2 * x.astype(np.float32))
