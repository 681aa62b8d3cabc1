"""How `nn.fit` ends, and that a run that goes on has the bits of one that was never stopped."""

from __future__ import annotations

import os
import signal
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn
from dlprim.optim import SGD, AdamW
from dlprim.optim.schedules import CosineAnnealingLR, OneCycleLR
from dlprim.train import CheckpointError
from fit_cases import QUIET, Given, bits, data, model

pytestmark = pytest.mark.any_level


def test_patience_takes_the_best_epoch() -> None:
    x, y = data()
    module = model()
    kept: list[bytes] = []
    history = nn.fit(
        module, (x[:20], y[:20]), validation=(x[20:], 1 - y[20:]), epochs=50, patience=3,
        optimizer=SGD(module.parameters(), 0.5), callbacks=[lambda _, it: kept.append(bits(it))],
        **QUIET,
    )  # fmt: skip
    assert history.best is not None
    best = int(np.argmin(history["val_loss"]))
    assert history.epochs == best + 4 < 50
    assert history.best["epoch"] == best + 1
    assert bits(module) == kept[best]


def test_callbacks_add_to_records_and_end_the_training(tmp_path: Path) -> None:
    def half(record: dict[str, Any], module: nn.Module) -> Any:
        record["norm"] = np.linalg.norm(module.parameters()[0].value)
        return np.equal(record["epoch"], 2)

    kept = {"checkpoint": tmp_path / "fit.npz", "resume": True}
    history = nn.fit(model(), data(), epochs=5, callbacks=[half], **kept, **QUIET)
    assert history.epochs == len(history["norm"]) == 2
    more = nn.fit(model(), data(), epochs=3, **kept, **QUIET)
    assert (more["norm"], more.epochs) == (history["norm"], 3)


def test_whatever_callbacks_add_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What JSON has no form for as a str: the training does not end by it."""

    def add(record: dict[str, Any], _: nn.Module) -> None:
        record["when"] = datetime(2026, 1, 2)
        record["more"] = {"array": np.arange(3), "days": [np.datetime64("2026-01-02"), None]}

    how: dict[str, Any] = {"checkpoint": tmp_path / "fit.npz", "resume": True, "patience": 5}
    first = nn.fit(model(), data(), epochs=1, callbacks=[add], **how)
    assert "when 2026-01-02 00:00:00" in capsys.readouterr().out
    assert repr(first).startswith("<History: 1 epoch, loss 0.")
    assert first["when"] == [datetime(2026, 1, 2)]
    again: Any = nn.fit(model(), data(), epochs=2, callbacks=[add], **how, **QUIET)
    assert again["when"] == ["2026-01-02 00:00:00", datetime(2026, 1, 2)]
    assert again["more"][0]["days"] == ["2026-01-02", None]
    np.testing.assert_array_equal(again["more"][0]["array"], np.arange(3))


def test_ctrl_c_ends_after_the_step(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "fit.npz"

    def run(epochs: int, stops: bool, **more: Any) -> tuple[nn.Module, nn.History]:
        module = model(dropout=0.2)
        calls = [0]

        def loss(dst: Any, y: Any) -> Any:
            calls[0] += 1
            if stops and calls[0] == 5:
                os.kill(os.getpid(), signal.SIGINT)
            return dlprim.softmax_cross_entropy(dst, y)

        optimizer = AdamW(module.parameters(), 0.01)
        schedule = CosineAnnealingLR(optimizer, 12)
        more = {"loss": loss, "optimizer": optimizer, "schedule": schedule, **more}
        return module, nn.fit(module, data(), epochs=epochs, validation=0.2, patience=9, **more)

    before = signal.getsignal(signal.SIGINT)
    module, history = run(4, True, checkpoint=path)
    assert signal.getsignal(signal.SIGINT) is before
    assert history.interrupted
    assert "interrupted" in repr(history)
    assert "interrupted: the model is as after step" in capsys.readouterr().out
    assert history.epochs == 1
    resumed, whole = run(4, False, checkpoint=path, resume=True, **QUIET), run(4, False, **QUIET)
    assert bits(resumed[0]) == bits(whole[0]) != bits(module)
    assert resumed[1]["val_loss"] == whole[1]["val_loss"]
    assert resumed[1]["loss"] == whole[1]["loss"]
    assert resumed[1]["accuracy"] == whole[1]["accuracy"]
    again = run(4, False, checkpoint=path, resume=True, **QUIET)  # which is over
    assert bits(again[0]) == bits(whole[0])


def test_checkpoints_of_given_batches_and_more_epochs(tmp_path: Path) -> None:
    path = tmp_path / "fit.npz"
    whole, parts = model(), model()
    nn.fit(whole, Given(), epochs=3, accumulate=2, **QUIET)
    nn.fit(parts, Given(), epochs=1, accumulate=2, checkpoint=path, **QUIET)
    history = nn.fit(
        fresh := model(), Given(), epochs=3, accumulate=2, checkpoint=path, resume=True, **QUIET
    )
    assert bits(fresh) == bits(whole) != bits(parts)
    assert history.epochs == 3


def test_other_checkpoints_are_refused(tmp_path: Path) -> None:
    path, (x, y) = tmp_path / "fit.npz", data()
    nn.fit(model(), (x, y), epochs=1, checkpoint=path, **QUIET)
    wrong: list[tuple[Any, Any, dict[str, Any], str]] = [
        (model(), (x, y), {}, "is of an earlier run: expected resume=True"),
        (model(), (x, 1 - y), {"resume": True}, "is of a run with other data"),
        (model(), (x, y), {"resume": True, "batch_size": 16}, "with batch_size 32, not 16"),
        (model(3), (x, y), {"resume": True}, "does not fit the model and its optimiser"),
    ]
    for module, form, how, said in wrong:
        with pytest.raises(CheckpointError, match=said):
            nn.fit(module, form, epochs=2, checkpoint=path, **how, **QUIET)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(CheckpointError, match="is damaged or no checkpoint"):
        nn.fit(model(), (x, y), checkpoint=path, resume=True, **QUIET)


def test_a_checkpoint_that_cannot_be_written_ends_no_training(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "fit.npz"
    with pytest.raises(CheckpointError, match=r"fit.npz cannot be written"):
        nn.fit(model(), data(), checkpoint=path, **QUIET)
    path.parent.mkdir()

    def spoil(record: dict[str, float], module: nn.Module) -> None:
        if record["epoch"] == 2:
            path.unlink()
            path.parent.rmdir()

    with pytest.warns(RuntimeWarning, match=r"no checkpoint after step \d+: .*fit.npz cannot be"):
        history = nn.fit(model(), data(), epochs=2, callbacks=[spoil], checkpoint=path, **QUIET)
    assert history.epochs == 2


def test_divergence_is_said() -> None:
    module = model()
    module.parameters()[0].value[0, 0] = np.nan
    with pytest.raises(ArithmeticError, match=r"training loss is nan \(first in .* layer '0'"):
        nn.fit(module, data(), **QUIET)


def test_states_that_are_carried_on_are_kept(tmp_path: Path) -> None:
    """Batches that follow each other in time, (T, N, C), come from outside."""
    x = np.random.default_rng(0).standard_normal((6, 5, 4, 3), dtype=np.float32)
    batches = [(it, it.sum(axis=2, keepdims=True)) for it in x]

    def run(epochs: int, dtype: str, **more: Any) -> bytes:
        nn.seed(0)
        lstm = nn.LSTM(3, 8)
        lstm.carry = True
        module = nn.Sequential(lstm, nn.Linear(8, 1))
        module.use(nn.Context(dtype))
        nn.fit(module, batches, epochs=epochs, validation=batches[:1], **more, **QUIET)
        return bits(module)

    for dtype in ("float32", "bfloat16"):
        path = tmp_path / f"{dtype}.npz"
        run(1, dtype, checkpoint=path)
        assert run(2, dtype, checkpoint=path, resume=True) == run(2, dtype)


def test_runs_with_other_settings_are_refused(tmp_path: Path) -> None:
    """One setting after the other differs from the run whose checkpoint is there."""
    x, y = data()
    usual: dict[str, Any] = {
        "optimizer": lambda it: AdamW(
            [{"params": it[:2], "weight_decay": 0.1}, {"params": it[2:]}], 0.01
        ),
        "schedule": lambda it: CosineAnnealingLR(it, 12),
        "loss": nn.CrossEntropyLoss(np.array([1, 2], np.float32)),
        "clip_norm": 1.0,
        "patience": 5,
        "validation": 0.2,
    }

    def run(path: Path, **other: Any) -> None:
        how, module = usual | other, model()
        optimizer = how["optimizer"](module.parameters())
        how["schedule"] = how["schedule"] and how["schedule"](optimizer)
        how["optimizer"] = optimizer
        nn.fit(module, (x, y), checkpoint=path, resume=True, **how, **QUIET)

    path = tmp_path / "fit.npz"
    run(path, epochs=1)
    wrong: list[tuple[str, Any, str]] = [
        ("optimizer", lambda it: SGD(it, 0.01), "optimizer AdamW, not SGD"),
        ("optimizer", lambda it: AdamW(it, 0.01), "weight_decay 0.1, not 0.01"),
        (
            "optimizer",
            lambda it: AdamW([{"params": it[:2], "weight_decay": 0.1}, {"params": it[2:]}], 0.02),
            r"schedule CosineAnnealingLR\(T_max=12, .*0.01.*, not CosineAnnealingLR\(.*0.02",
        ),
        ("schedule", lambda it: CosineAnnealingLR(it, 9), "T_max=12, .*, not .*T_max=9"),
        ("schedule", None, "schedule CosineAnnealingLR.*, not None"),
        ("loss", None, "loss CrossEntropyLoss.weight=.*, not CrossEntropyLoss"),
        ("loss", nn.CrossEntropyLoss(np.array([1, 3], np.float32)), "loss CrossEntropyLoss"),
        ("loss", dlprim.softmax_cross_entropy, "loss CrossEntropyLoss.*, not a function"),
        ("clip_norm", 2.0, "clip_norm 1.0, not 2.0"),
        ("clip_norm", None, "clip_norm 1.0, not None"),
        ("patience", 6, "patience 5, not 6"),
        ("validation", (x[:9], y[:9]), "other data, other data for validation"),
        ("validation", None, "other data for validation"),
    ]
    for name, value, said in wrong:
        with pytest.raises(CheckpointError, match=f"is of a run with .*{said}"):
            run(path, epochs=2, **{name: value})
    run(path, epochs=2)


@pytest.mark.parametrize("has_schedule", [True, False])
def test_the_optimiser_that_is_still_there_goes_on(tmp_path: Path, has_schedule: bool) -> None:
    """In a notebook its rate is what the schedule or a callback made of it."""
    path, module = tmp_path / "fit.npz", model()
    optimizer = SGD(module.parameters(), 0.1, momentum=0.9)
    schedule = OneCycleLR(optimizer, 0.1, 100) if has_schedule else None

    def slower(record: dict[str, Any], _: nn.Module) -> None:
        if not has_schedule:
            optimizer.lr = 0.1 / (record["epoch"] + 1)

    for epochs in (1, 2, 3):
        how: dict[str, Any] = {"schedule": schedule, "callbacks": [slower], **QUIET}
        nn.fit(
            module, data(), optimizer=optimizer, epochs=epochs, checkpoint=path, resume=True, **how
        )
    assert optimizer.lr != 0.1
