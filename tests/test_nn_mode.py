"""`train` and `eval` set the mode, a call follows it, ``training`` overrides it."""

from __future__ import annotations

import numpy as np
import pytest

from dlprim import nn
from dlprim.train.models import LanguageModel

pytestmark = pytest.mark.any_level

ROWS = np.random.default_rng(0).standard_normal((4, 6), np.float32)


def dropping() -> nn.Sequential:
    layers = {"fc": nn.Linear(6, 6), "inner": nn.Sequential({"drop": nn.Dropout(0.5, seed=1)})}
    return nn.Sequential(layers)


def test_a_call_follows_the_mode() -> None:
    model = dropping()
    assert (model(ROWS) == 0).any()
    assert model.eval() is model
    assert not any(it.training for it in model.modules())
    inferred = model(ROWS)
    assert (inferred != 0).all()
    np.testing.assert_array_equal(model.forward(ROWS), inferred)
    with pytest.raises(RuntimeError, match="follows no training forward"):
        dropping().eval().backward(inferred)
    assert (model.forward(ROWS, training=True) == 0).any()
    assert model.train() is model
    assert all(it.training for it in model.modules())
    assert (model(ROWS) == 0).any()
    np.testing.assert_array_equal(model.forward(ROWS, training=False), inferred)


def test_each_layer_is_in_its_own_mode() -> None:
    model = dropping()
    model.children()["inner"].eval()
    y = model(ROWS)
    assert (y != 0).all()
    model.backward(y)
    model.eval()
    model.children()["inner"].train()
    assert (model(ROWS) == 0).any()
    with pytest.raises(RuntimeError, match="follows no training forward"):
        model.backward(y)
    assert (model.forward(ROWS, training=False) != 0).all()
    assert not (model.train()(ROWS) != 0).all()


def test_normalisation_follows_the_mode_of_its_block() -> None:
    block = nn.ConvBatchNorm(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), ("conv", "bn"))
    model = nn.Sequential({"block": block, "flat": nn.Flatten()})
    x = np.random.default_rng(1).standard_normal((2, 3, 4, 4), np.float32)
    y = model.eval()(x)
    assert not block.norm.batches
    np.testing.assert_array_equal(model.forward(x, training=False), y)
    model.backward(model.forward(x, training=True))
    assert block.norm.batches == 1


def test_a_model_of_ones_own_is_called_in_its_mode() -> None:
    model = LanguageModel("gru", 7, 5, 1)
    x = np.arange(6).reshape(3, 2)
    model.backward(model(x))
    model.eval()(x)
    with pytest.raises(RuntimeError, match="follows no training forward"):
        model.backward(model(x))
