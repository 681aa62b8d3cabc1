"""Gradients of conv2d through every activation that it takes, and what these are also called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import conv_reference as reference
import dlprim
from test_conv2d_functions import CASE, F4, laid_out, operands


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("activation", reference.ACTIVATIONS)
def test_gradients_through_activations(activation: str, layout: str, dtype: str) -> None:
    """Of the gradient that a difference quotient has in front of the activation."""
    if dtype == "bfloat16" and activation in ("relu6", "hardsigmoid", "hardswish"):
        pytest.skip("a result that is rounded to where the slope jumps says nothing of it")
    t = operands(CASE, dtype)
    x, dy = laid_out(t["x"], layout), laid_out(t["dy"], layout)
    how: dict[str, Any] = {**CASE.keywords, "layout": layout}
    z = dlprim.conv2d(x, t["w"], **how)
    takes_z = activation in ("gelu", "gelu_tanh", "swish", "hardswish")
    kept = {"z": z} if takes_z else {"y": dlprim.conv2d(x, t["w"], **how, activation=activation)}
    gradients = dlprim.conv2d_backward(dy, x, t["w"], **how, **kept, activation=activation)

    before, step = reference.doubles(z), 1e-5
    function = reference.ACTIVATIONS[activation]
    slope = (function(before + step) - function(before - step)) / (2 * step)
    front = (reference.doubles(dy) * slope).astype(F4)
    if dtype == "bfloat16":
        front = dlprim.to_bfloat16(front)
    expected = dlprim.conv2d_backward(front, x, t["w"], **how)
    for name in ("dx", "dw", "db"):
        found, right = (np.asarray(getattr(it, name), F4) for it in (gradients, expected))
        bound = 3e-2 if dtype == "bfloat16" else 1e-4
        assert np.abs(found - right).max() <= bound * np.abs(right).max(), name


def test_silu_is_swish() -> None:
    t = operands(CASE)
    y = dlprim.conv2d(t["x"], t["w"], **CASE.keywords, activation="silu")
    expected = dlprim.conv2d(t["x"], t["w"], **CASE.keywords, activation="swish")
    np.testing.assert_array_equal(y, expected)
    rows = np.ones((3, 4), F4)
    for call in (dlprim.linear, dlprim.linear_backward):
        operand = {"z": rows} if call is dlprim.linear_backward else {}
        given = (np.ones((3, 2), F4),) * bool(operand) + (rows, np.ones((2, 4), F4))
        if operand:
            operand = {"z": np.ones((3, 2), F4)}
        np.testing.assert_array_equal(
            call(*given, **operand, activation="silu")[0],
            call(*given, **operand, activation="swish")[0],
        )
    assert dlprim.Linear((2, 3), 4, activation="silu").activation == "swish"


def test_gradients_of_images_of_more_pixels_than_a_layer_has_channels() -> None:
    x = np.full((1, 1, 4100, 4100), 0.5, np.float32)
    w = np.ones((1, 1, 1, 1), np.float32)
    gradients = dlprim.conv2d_backward(x, x, w, y=x, activation="sigmoid")
    assert np.all(gradients.dx == 0.125)
