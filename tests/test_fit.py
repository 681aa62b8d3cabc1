"""`nn.fit` and `nn.predict`: the loop by hand gives the same bits, and so does a resumed one."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dlprim
from dlprim import nn
from dlprim.optim import SGD, AdamW, clip_grad_norm
from dlprim.optim.schedules import CosineAnnealingLR
from fit_cases import QUIET, Given, bits, data, model

pytestmark = pytest.mark.any_level

# ---------------------------------------------------------------- the loop


def test_a_loop_by_hand_gives_the_same_bits() -> None:
    x, y = data()
    ours, theirs = model(), model()
    optimizer = AdamW(ours.parameters(), 0.05)
    schedule = CosineAnnealingLR(optimizer, 9)
    history = nn.fit(
        ours, (x, y), optimizer=optimizer, schedule=schedule, clip_norm=0.1, epochs=3,
        shuffle=False, **QUIET,
    )  # fmt: skip
    by_hand = AdamW(theirs.parameters(), 0.05)
    rates, losses = CosineAnnealingLR(by_hand, 9), []
    for _ in range(3):
        sums = 0.0
        for begin in range(0, 90, 32):
            labels = y[begin : begin + 32]
            dst = theirs(x[begin : begin + 32].astype(np.float32))
            loss, diff = dlprim.softmax_cross_entropy(dst, labels)
            theirs.backward(diff)
            clip_grad_norm(theirs.parameters(), 0.1)
            by_hand.step()
            rates.step()
            sums += loss * len(labels)
        losses.append(sums / 90)
    assert bits(ours) == bits(theirs)
    assert history["loss"] == losses
    assert history["lr"][-1] == 0
    assert history["epoch"] == [1, 2, 3]


def test_it_learns_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = data(400)
    module = model()
    module.eval()
    history = nn.fit(module, (x, y), epochs=30, validation=0.2, optimizer=None)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 30
    assert lines[-1].startswith("epoch 30/30  loss 0.")
    assert "val accuracy 9" in lines[-1]
    assert history["val_accuracy"][-1] > 0.9
    assert history["val_loss"][-1] < history["val_loss"][0]
    assert not module.training
    found = nn.predict(module, x, batch_size=64)
    assert (found.argmax(axis=1) == y).mean() > 0.9
    assert set(history) == {
        *("epoch", "loss", "accuracy", "val_loss", "val_accuracy", "lr", "seconds"),
    }
    assert "30 epochs, loss 0." in repr(history)
    with pytest.raises(KeyError, match="f1 is in no record, expected one of epoch, loss"):
        history["f1"]
    assert pickle.loads(pickle.dumps(history))["loss"] == history["loss"]


def test_threads_and_repetition_do_not_matter() -> None:
    found = set()
    for threads in (1, 2, 1):
        module = model(dropout=0.3)
        with dlprim.threads(threads):
            nn.fit(module, data(), epochs=2, seed=3, **QUIET)
        found.add(bits(module))
    assert len(found) == 2 - 1


def test_accumulated_batches_are_one_batch() -> None:
    one, other = model(), model()
    for module, how in ((one, (8, 4)), (other, (32, 1))):
        optimizer = SGD(module.parameters(), 0.1, momentum=0.9)
        nn.fit(module, data(), optimizer=optimizer, batch_size=how[0], accumulate=how[1], **QUIET)
    for mine, its in zip(one.parameters(), other.parameters(), strict=True):
        np.testing.assert_allclose(mine.value, its.value, 1e-4, 1e-6)


def test_all_forms_of_data_are_alike() -> None:
    x, y = data()
    arrays: list[Any] = [(x, y), {"x": x, "y": y}]
    # Arrays are tested in one batch: last bits depend on how many samples are in it.
    forms: list[Any] = [*zip(arrays, arrays, strict=True)]
    forms += [(Given(), Given(90)), (list(Given()), list(Given(90)))]
    found = []
    for form, held_out in forms:
        module = model()
        history = nn.fit(module, form, epochs=2, shuffle=False, validation=held_out, **QUIET)
        found.append((bits(module), history["loss"], history["accuracy"], history["val_loss"]))
    assert found[1:] == found[:-1]
    alone = model()
    nn.fit(alone, iter(Given()), epochs=1, **QUIET)
    with pytest.raises(ValueError, match="a generator can be gone through only once"):
        nn.fit(alone, iter(Given()), epochs=2, **QUIET)


def test_weights_count_samples() -> None:
    """A weight of 2 is a sample twice, one of 0 none."""
    x, y = data(40)
    counts = np.random.default_rng(1).integers(0, 3, 40)
    for outputs, targets in ((2, y), (1, x[:, :1].astype(np.float32))):
        weighted, repeated = model(outputs), model(outputs)
        for module, form in (
            (weighted, (x, targets, counts.astype(np.float32))),
            (repeated, (np.repeat(x, counts, axis=0), np.repeat(targets, counts, axis=0))),
        ):
            sgd = SGD(module.parameters(), 0.1)
            nn.fit(module, form, optimizer=sgd, batch_size=200, epochs=3, **QUIET)
        for mine, its in zip(weighted.parameters(), repeated.parameters(), strict=True):
            np.testing.assert_allclose(mine.value, its.value, 1e-4, 1e-6)
    with pytest.raises(ValueError, match="data has weights, which needs a loss of"):
        nn.fit(model(), (x, y, counts), loss=dlprim.softmax_cross_entropy, **QUIET)


def test_floats_are_fitted_by_squares_and_losses_can_be_ones_own() -> None:
    x, _ = data()
    y = x[:, :2] * 0.5

    def magnitudes(result: NDArray[Any], target: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        difference = result - target
        return float(np.abs(difference).mean()), np.sign(difference) / np.float32(difference.size)

    for loss in (None, magnitudes):
        module = model(2)
        sgd = SGD(module.parameters(), 0.1, momentum=0.9)
        history = nn.fit(module, (x, y), loss=loss, optimizer=sgd, epochs=20, **QUIET)
        assert history["loss"][-1] < history["loss"][0] / 3
        assert "accuracy" not in history


def test_bfloat16_models_are_fitted() -> None:
    pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")
    x, y = data()
    for targets in (y, x[:, :2]):
        module = model()
        module.use(nn.Context("bfloat16"))
        sgd = SGD(module.parameters(), 0.1, momentum=0.9)
        history = nn.fit(module, (x, targets), optimizer=sgd, epochs=8, **QUIET)
        assert history["loss"][-1] < 0.7 * history["loss"][0]


# ---------------------------------------------------------------- what is refused, what is drawn


def test_wrong_data_are_refused() -> None:
    x, y = data()
    wrong: list[tuple[Any, type[Exception], str]] = [
        (x, TypeError, "data is of type ndarray, expected arrays"),
        ((x,), TypeError, "data is a tuple of 1, expected"),
        ((x, y[:5]), ValueError, r"data has \[5, 90\] samples"),
        ({"x": x}, ValueError, r"data has the names \['x'\], expected x, y"),
        ((x, y.astype(str)), TypeError, "dlprim.train.Classifier takes"),
        ((x, y, y[:4]), ValueError, r"weight of data has shape \(4,\), expected \(90,\)"),
        ((x[:0], y[:0]), ValueError, "data holds no samples"),
        ([x, y], TypeError, "batch 0 is a ndarray, expected arrays"),
        (3, TypeError, "data is of type int"),
    ]
    for form, error, said in wrong:
        with pytest.raises(error, match=said):
            nn.fit(model(), form, **QUIET)
    for how, error, said in (
        ({"epochs": 0}, ValueError, "epochs is 0"),
        ({"validation": 1.5}, ValueError, r"validation is 1.5, expected a share in \(0, 1\)"),
        ({"validation": np.float32(1.5)}, ValueError, r"expected a share in \(0, 1\)"),
        ({"validation": 1e-6}, ValueError, "which leaves 0 of 90 samples"),
        ({"accumulate": 0}, ValueError, "accumulate is 0"),
        ({"patience": -1}, ValueError, "patience is -1"),
    ):
        with pytest.raises(error, match=said):
            nn.fit(model(), (x, y), **how, **QUIET)
    for optimizer, error, said in (
        (SGD(model().parameters(), 0.1), ValueError, "optimizer has no parameter of the model"),
        (SGD, TypeError, "optimizer is of type type, expected one of"),
    ):
        with pytest.raises(error, match=said):
            nn.fit(model(), (x, y), optimizer=optimizer, **QUIET)
    with pytest.raises(TypeError, match="model is of type str, expected a"):
        nn.fit("model", (x, y), **QUIET)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a share of the samples, but data gives batches"):
        nn.fit(model(), Given(), validation=0.5, **QUIET)
    with pytest.raises(TypeError, match="model is of type int, expected a"):
        nn.predict(3, x)  # type: ignore[arg-type]


def test_predictions_of_batches_and_of_none() -> None:
    module, (x, _) = model(), data()
    expected = module.forward(x.astype(np.float32), training=False)
    for size in (7, 90, 1000):
        np.testing.assert_allclose(nn.predict(module, x, batch_size=size), expected, 1e-5, 1e-6)
    assert nn.predict(module, x[:0]).shape == (0, 2)
    assert module.training


class Several(nn.Module):
    """Gives what it is told to, nested."""

    def __init__(self, nest: Any) -> None:
        super().__init__()
        self.one, self.other, self.nest = nn.Linear(6, 2), nn.Linear(6, 3), nest

    def forward(self, x: Any) -> Any:
        return self.nest(self.one(x), self.other(x))


@pytest.mark.parametrize("size", [7, 90])
def test_predictions_of_several_results_are_nested_as_those_are(size: int) -> None:
    x, _ = data()
    nests: list[Any] = [
        lambda one, other: (one, other),
        lambda one, other: [one, other],
        lambda one, other: {"one": one, "more": (other, one)},
    ]
    for nest in nests:
        nn.seed(0)
        module = Several(nest)
        one, other = (nn.predict(it, x) for it in (module.one, module.other))
        expected, found = nest(one, other), nn.predict(module, x, batch_size=size)
        assert type(found) is type(expected)
        pairs = (
            [(found["one"], one), (found["more"][0], other)]
            if isinstance(found, dict)
            else ([*zip(found, expected, strict=True)])
        )
        for mine, its in pairs:
            np.testing.assert_allclose(mine, its, 1e-5, 1e-6)
    number = Several(lambda one, _: np.sum(one))
    with pytest.raises(ValueError, match="model gives a number for each batch"):
        nn.predict(number, x, batch_size=7)


def test_layers_that_are_frozen_stay_so() -> None:
    """Their statistics are those of a model that somebody trained before."""
    x, y = data(65)
    module = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(0.2), nn.Linear(4, 2))
    norm: Any = module[1]
    modes: list[tuple[bool, bool]] = []

    def look(record: dict[str, Any], it: nn.Module) -> None:
        modes.append((it.training, norm.training))
        if record["epoch"] == 2:
            module.eval()  # and forgets it

    for is_frozen in (True, False):
        module.train()
        norm.train(not is_frozen)
        modes.clear()
        before = norm.running_mean.copy()
        nn.fit(module, (x, y), epochs=3, batch_size=65, callbacks=[look], **QUIET)
        assert np.array_equal(norm.running_mean, before) is is_frozen
        assert modes == [(True, not is_frozen)] * 3
        assert (module.training, norm.training) == (True, not is_frozen)
    module.eval()
    modes.clear()
    before = norm.running_mean.copy()
    nn.fit(module, (x, y), epochs=1, batch_size=65, callbacks=[look], **QUIET)
    assert modes == [(False, False)]
    assert not np.array_equal(norm.running_mean, before)
    assert not module.training


def test_callbacks_freeze_layers_for_the_rest_of_a_training() -> None:
    module = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    norm: Any = module[1]
    means = []

    def freeze(record: dict[str, Any], _: nn.Module) -> None:
        norm.eval()
        means.append(norm.running_mean.copy())

    nn.fit(module, data(), epochs=3, batch_size=90, callbacks=[freeze], **QUIET)
    np.testing.assert_array_equal(means[0], means[2])
    assert norm.training


def test_a_batch_of_one_says_where_it_comes_from() -> None:
    x, y = data(65)
    module = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    with pytest.raises(ValueError, match="expected more than one value") as caught:
        nn.fit(module, (x, y), epochs=1, **QUIET)
    assert "the last of 65 at batch_size 32" in caught.value.__notes__[0]


def test_integers_that_are_no_labels_are_refused() -> None:
    x, _ = data()
    with pytest.raises(ValueError, match=r"y holds \d+, .* pass floats, y.astype"):
        nn.fit(model(1), (x, np.arange(90)), **QUIET)


def test_history_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="it draws")
    record: dict[str, Any] = {"epoch": 1, "loss": 2.0, "val_loss": 3.0, "accuracy": 0.5, "lr": 0.1}
    history = nn.History([record | {"said": "what a callback adds"}])
    figure = history.plot(tmp_path / "curves.svg")
    assert "val loss" in (tmp_path / "curves.svg").read_text()
    assert [len(axes.lines) for axes in figure.axes] == [2, 1]


def test_drawing_without_matplotlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="drawing needs matplotlib: pip install matplotlib"):
        nn.History([{"epoch": 1, "loss": 2.0}]).plot()
