"""Results that leave a model are the caller's: dropped ones go, and kept ones stay as they are."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

from dlprim import nn

X = np.random.default_rng(0).standard_normal((2, 3, 16, 16), np.float32)


def images() -> nn.Module:
    return nn.Sequential({"conv": nn.Conv2d(3, 8, 3)})


def features() -> nn.Module:
    return nn.Sequential({"conv": nn.Conv2d(3, 8, 3), "flat": nn.Flatten()})


def same() -> nn.Module:
    return nn.Sequential({"drop": nn.Dropout(), "flat": nn.Flatten(), "same": nn.Identity()})


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("make", [images, features, same])
def test_results_and_gradients_that_are_kept_stay(make: Any, training: bool) -> None:
    model = make()
    kept, expected = [], []
    for scale in (1, 2, 3):
        x = scale * X
        found = [model.forward(x, training=training)]
        if training:
            found.append(model.backward(found[0] - 1))
        kept.append(found)
        expected.append([it.copy() for it in found])
    for one, other in zip(kept, expected, strict=True):
        for array, due in zip(one, other, strict=True):
            np.testing.assert_array_equal(array, due)
    part = kept[0][0][1:]
    before = part.copy()
    del kept, one, array
    model.forward(4 * X, training=training)
    np.testing.assert_array_equal(part, before)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("make", [images, features, same])
def test_results_and_gradients_share_memory_with_nothing(make: Any, training: bool) -> None:
    model = make()
    x, dy = X.copy(), make().eval()(X)
    y = model.forward(x, training=training)
    arrays = [x, y, *(it.held for it in model.parameters())]
    if training:
        given = dy.copy()
        arrays += [dy, model.backward(dy), *(it.gradient for it in model.parameters())]
        np.testing.assert_array_equal(dy, given)
    for place, one in enumerate(arrays):
        for other in arrays[:place]:
            assert not np.shares_memory(one, other)
    inferred = model.forward(X, training=False)
    before = inferred.copy()
    y[...] = inferred[...] = np.nan
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(model.forward(X, training=False), before)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("make", [images, features, same])
def test_results_and_gradients_that_are_dropped_go(make: Any, training: bool) -> None:
    model = make()
    y = model.forward(X, training=training)
    seen = [weakref.ref(y)]
    if training:
        dy = np.ones_like(y)
        dx = model.backward(dy)
        seen += [weakref.ref(it) for it in (dy, dx)]
        del dy, dx
    del y
    assert [it() for it in seen] == [None] * len(seen)
