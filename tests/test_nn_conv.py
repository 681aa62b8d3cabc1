"""`nn.Conv2d` with every geometry that `dlprim.conv2d` takes, and with relu, beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn
from drawing import RNG

X = RNG.standard_normal((2, 6, 11, 9), np.float32)

GEOMETRIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "rectangle": {"kernel": (1, 4)},
    "column": {"kernel": [5, 1], "padding": (2, 0)},
    "strides": {"stride": (2, 3), "padding": (1, 0)},
    "dilation": {"dilation": 2, "padding": 2},
    "dilations": {"dilation": (1, 3), "padding": (0, 3)},
    "same": {"padding": "same"},
    "same, even": {"kernel": (2, 4), "padding": "same", "dilation": (1, 2)},
    "uneven": {"padding": ((0, 2), (1, 0)), "stride": 2},
    "groups": {"groups": 3, "padding": 1},
    "depthwise": {"groups": 6, "K": 6, "dilation": 2},
}


def made(settings: dict[str, Any], activation: str | None, context: nn.Context) -> nn.Conv2d:
    given = {"K": 12, "kernel": 3} | settings
    conv = nn.Conv2d(6, given.pop("K"), given.pop("kernel"), **given, activation=activation)
    conv.use(context, "conv")
    return conv


def close(ours: Any, exact: Any, dtype: str) -> None:
    wide = ours if ours.dtype == np.float32 else dlprim.to_float32(ours)
    bound = (2e-5 if dtype == "float32" else 3e-2) * max(np.abs(exact).max(), 1)
    assert np.abs(wide - exact).max() < bound


@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_every_geometry(name: str, dtype: str, activation: str | None) -> None:
    nn.seed(1)
    context = nn.Context(dtype)
    conv = made(GEOMETRIES[name], activation, context)
    model = nn.Sequential({"conv": conv, "flat": nn.Flatten()})
    model.use(context)
    w, b = conv.weight.value, conv.bias.value  # type: ignore[union-attr]
    how = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1} | GEOMETRIES[name]
    how.pop("K", None)
    how.pop("kernel", None)
    exact = dlprim.conv2d(X, w, b, **how, activation=activation)
    for _ in range(2):
        close(model.eval()(X).reshape(exact.shape), exact, dtype)
    y = model.train()(X).reshape(exact.shape)
    close(y, exact, dtype)
    dy = RNG.standard_normal(exact.shape, np.float32)
    gate = 1 if activation is None else (np.asarray(y, np.float32) > 0).astype(np.float32)
    dx, dw, db = dlprim.conv2d_backward(dy * gate, X, w, **how)
    close(model.backward(dy.reshape(2, -1)), dx, dtype)
    close(conv.weight.gradient, dw, dtype)
    close(conv.bias.gradient, db, dtype)  # type: ignore[union-attr]


def test_an_activation_between_convolution_and_normalisation_is_refused() -> None:
    conv = nn.Conv2d(3, 4, 1, activation="relu")
    with pytest.raises(ValueError, match="conv has activation='relu', expected None"):
        nn.ConvBatchNorm(conv, nn.BatchNorm2d(4), ("conv", "bn"))


def test_relu_without_a_bias() -> None:
    conv = nn.Conv2d(6, 8, 3, bias=False, activation="relu")
    y = conv(X)
    inferred = conv.eval()(X)
    np.testing.assert_array_equal(y, inferred)
    assert (y >= 0).all()
    conv.backward(np.ones_like(y))
    expected = dlprim.conv2d_backward((y > 0).astype(np.float32), X, conv.weight.value)[1]
    close(conv.weight.gradient, expected, "float32")
