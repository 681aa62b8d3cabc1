"""What `nn.fit` makes of parts is what it makes of the whole: batches of a step, and of a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlprim import nn
from dlprim.optim import SGD
from fit_cases import QUIET, bits, data, model

pytestmark = pytest.mark.any_level

Array = NDArray[Any]


def trained(form: Any, size: int, accumulate: int, loss: Any, outputs: int = 2) -> Any:
    """A model, and the losses of its epochs."""
    module = model(outputs)
    sgd = SGD(module.parameters(), 0.05)
    how = {"batch_size": size, "accumulate": accumulate, "shuffle": False, "epochs": 2}
    history = nn.fit(module, form, optimizer=sgd, loss=loss, validation=form, **how, **QUIET)
    return module, history


def weights(samples: int = 90) -> Array:
    return np.random.default_rng(1).random(samples).astype(np.float32) ** 4


def ignored(y: Array) -> Array:
    """Most labels of the first samples, and all of the last ones, count nothing."""
    y = np.where(np.arange(len(y)) % 5 < 3, y, -100)
    y[64:] = -100
    return y


CLASSES = np.array([1.0, 7.0], np.float32)


@pytest.mark.parametrize(
    ("loss", "weighs", "ignores"),
    [
        (nn.CrossEntropyLoss(), True, False),
        (nn.CrossEntropyLoss(reduction="sum"), False, False),
        (nn.CrossEntropyLoss(reduction="sum"), True, True),
        (nn.CrossEntropyLoss(), False, True),
        (nn.CrossEntropyLoss(CLASSES, label_smoothing=0.1), True, True),
        (nn.MSELoss(), True, None),
        (nn.MSELoss(reduction="sum"), False, None),
        (nn.BCEWithLogitsLoss(pos_weight=CLASSES), True, None),
    ],
)
def test_accumulated_batches_are_one_batch(loss: Any, weighs: bool, ignores: bool | None) -> None:
    x, labels = data()
    y = np.eye(2)[labels] if ignores is None else ignored(labels) if ignores else labels
    form = (x, y, weights()) if weighs else (x, y)
    (whole, one), (parts, four) = trained(form, 96, 1, loss), trained(form, 24, 4, loss)
    for mine, its in zip(whole.parameters(), parts.parameters(), strict=True):
        np.testing.assert_allclose(mine.value, its.value, 1e-4, 1e-6)
    for name in one.keys() - {"seconds"}:
        np.testing.assert_allclose(one[name], four[name], 1e-5)


def test_losses_of_a_test_are_weighted_means() -> None:
    """More samples than a pass takes; of a class each counts as much as its weight says."""
    x, labels = data(600)
    weight = np.where(np.arange(600) < 256, 100, 1).astype(np.float32)
    kept = ignored(labels) >= 0
    for loss, y, of_class in (
        (nn.CrossEntropyLoss(), labels, np.ones(2)),
        (nn.CrossEntropyLoss(CLASSES), np.where(kept, labels, -100), CLASSES),
    ):
        module = model()
        sgd = SGD(module.parameters(), 0.0)
        form = (x, y, weight)
        history = nn.fit(module, form, optimizer=sgd, epochs=1, validation=form, loss=loss, **QUIET)
        logits = nn.predict(module, x).astype(np.float64)
        each = np.log(np.exp(logits).sum(1)) - logits[np.arange(600), labels]
        counts = weight * of_class[labels] * (y >= 0)
        expected = (each * counts).sum() / counts.sum()
        np.testing.assert_allclose([history["loss"], history["val_loss"]], expected, 1e-5)
        right = (logits.argmax(1) == y).sum() / (y >= 0).sum()
        np.testing.assert_allclose(history["val_accuracy"], right)


def test_sums_are_sums_of_all() -> None:
    x, y = data()
    module = model()
    history = nn.fit(
        module, (x, y), optimizer=SGD(module.parameters(), 0.0), epochs=1, validation=(x, y),
        loss=nn.CrossEntropyLoss(reduction="sum"), **QUIET,
    )  # fmt: skip
    expected = nn.CrossEntropyLoss(reduction="sum")(nn.predict(module, x), y).loss
    np.testing.assert_allclose([history["loss"], history["val_loss"]], expected, 1e-5)


class Attending(nn.Module):
    """Drops inside of a layer that is traced, and after it."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.drop = nn.Linear(6, 8), nn.Dropout(0.3)
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.3)
        self.out = nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        h = self.drop(self.into(x)).reshape(-1, 2, 8)
        return self.out(self.attention(h).reshape(-1, 8))


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.4), nn.Linear(8, 2))


@pytest.mark.parametrize("make", [dropping, Attending])
def test_a_run_goes_on_whatever_was_drawn_for_its_model(make: Any, tmp_path: Path) -> None:
    """Seeds of dropout are in the checkpoint; a model that was asked before took others."""
    path = tmp_path / "fit.npz"
    x, y = data(64)
    how = {"batch_size": 16, **QUIET}
    nn.seed(0)
    whole = make()
    nn.fit(whole, (x, y), epochs=2, **how)
    nn.seed(0)
    nn.fit(make(), (x, y), epochs=1, checkpoint=path, **how)
    nn.seed(5)
    other = make()
    other(x[:16].astype(np.float32))
    nn.fit(other, (x, y), epochs=2, checkpoint=path, resume=True, **how)
    assert bits(other) == bits(whole)


def squares(result: Array, target: Array) -> Any:
    return np.mean((result - target) ** 2)


def test_losses_in_numpy_are_differentiated() -> None:
    """A function as `nn.Step` takes it, whose gradient nobody wrote."""
    x, labels = data()
    y = np.eye(2, dtype=np.float32)[labels]
    found = []
    for loss in (squares, nn.MSELoss()):
        module, history = trained((x, y), 32, 1, loss)
        found.append((module.state_dict(), history["val_loss"]))
    for name, value in found[0][0].items():
        np.testing.assert_allclose(value, found[1][0][name], 1e-5, 1e-6)
    np.testing.assert_allclose(found[0][1], found[1][1], 1e-6)

    def likelihood(logits: Array, target: Array) -> Any:
        chances = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        return -np.mean(np.log(np.take_along_axis(chances, target[:, None], axis=-1)))

    mine, its = trained((x, labels), 32, 1, likelihood), trained((x, labels), 32, 1, None)
    np.testing.assert_allclose(mine[1]["loss"], its[1]["loss"], 1e-5)
    assert mine[1]["accuracy"] == its[1]["accuracy"]
    with pytest.raises(TypeError, match=r"loss returns a ndarray of 32, expected \(loss, diff\)"):
        trained((x, labels), 32, 1, lambda result, _: result)
    with pytest.raises(TypeError, match="loss is of type str, expected a function"):
        trained((x, labels), 32, 1, "mse")
