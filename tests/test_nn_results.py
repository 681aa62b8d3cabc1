"""Results that leave a model are the caller's: dropped ones go, and kept ones stay as they are."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from dlprim import nn

X = np.random.default_rng(0).standard_normal((2, 3, 16, 16), np.float32)


def images() -> nn.Sequential:
    return nn.Sequential({"pack": nn.Pack(), "conv": nn.Conv2d(3, 8, 3)})


def features() -> nn.Sequential:
    return nn.Sequential({"pack": nn.Pack(), "conv": nn.Conv2d(3, 8, 3), "flat": nn.Flatten()})


def array(y: Any) -> Any:
    return y.array if isinstance(y, nn.Images) else y


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("make", [images, features])
def test_results_that_are_dropped_take_no_memory(make: Any, training: bool) -> None:
    model = make()
    buffers = model.context.buffers
    taken = []
    for _ in range(6):
        y = model.forward(X, training)
        if training:
            dy = copy.deepcopy(y)
            model.backward(dy)
            del dy
        del y
        taken.append(buffers.bytes)
    assert len(set(taken[1:])) == 1
    assert buffers.in_use == 0


@pytest.mark.parametrize("make", [images, features])
def test_results_that_are_kept_stay(make: Any) -> None:
    model = make().eval()
    kept = [model(scale * X) for scale in (1, 2, 3)]
    expected = [array(make_copy(model)(scale * X)).copy() for scale in (1, 2, 3)]
    for y, other in zip(kept, expected, strict=True):
        np.testing.assert_array_equal(array(y), other)
    part = array(kept[0])[1:]
    before = part.copy()
    del kept
    model(4 * X)
    np.testing.assert_array_equal(part, before)


def make_copy(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model)


def test_results_that_are_given_back_are_used_again() -> None:
    model = features().eval()
    buffers = model.context.buffers
    y = model(X)
    taken = buffers.bytes
    for _ in range(3):
        buffers.give(y)
        y = model(X)
        assert buffers.bytes == taken
    held = y
    del y
    assert buffers.bytes == taken
    del held
    assert buffers.bytes < taken
    assert buffers.in_use == 0


def test_gradients_that_are_dropped_take_no_memory() -> None:
    conv = nn.Conv2d(3, 8, 3)
    pack = nn.Pack()
    taken = []
    for _ in range(5):
        x = pack.forward(X, False)
        y = conv(x)
        dx = conv.backward(nn.Images(np.ones_like(y.array), y.shape))
        del y, dx, x
        taken.append((conv.context.buffers.bytes, pack.context.buffers.bytes))
    assert len(set(taken[1:])) == 1
