"""Ctrl-C and SIGTERM in any step: what is resumed ends with the records of a run without either."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from dlprim.train import checkpoint, main
from dlprim.train.loop import Trainer

pytestmark = [
    pytest.mark.any_level,
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("sklearn") is None, reason="the digits data set is part of scikit-learn"
    ),
]

MLP = ("--hidden", "16", "--epochs", "3", "--steps", "4")
CNN = ("--model", "cnn", "--hidden", "8", "--batch-size", "8", *MLP[2:])
GRU = ("--model", "gru", "--hidden", "16", "--length", "8", *MLP[2:])
BFLOAT16 = ("--dtype", "bfloat16")
SAID = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


def results(path: Path) -> list[dict[str, Any]]:
    """The records without times and memory."""
    measured = ("seconds", "samples_per_s", "scaling", "environment")
    return [
        {k: v for k, v in record.items() if k not in measured and not k.endswith(("_s", "_bytes"))}
        for record in map(json.loads, path.read_text().splitlines())
    ]


def signal_in(patch: pytest.MonkeyPatch, step: int, number: int = signal.SIGINT) -> None:
    """The signal comes in the middle of that step, counted from 1."""
    original = Trainer._update

    def update(self: Trainer) -> None:
        if self.step + 1 == step:
            os.kill(os.getpid(), number)
        original(self)

    patch.setattr(Trainer, "_update", update)


def stopped_and_resumed(
    flags: tuple[str, ...], steps: tuple[int, ...], folder: Path, patch: pytest.MonkeyPatch
) -> list[dict[str, Any]]:
    kept = ("--checkpoint", str(folder / "kept"))
    resume: tuple[str, ...] = ()
    for step in steps:
        with patch.context() as context:
            signal_in(context, step)
            assert main([*flags, *kept, *resume]) == 130
        assert checkpoint.read(folder / "kept" / checkpoint.FILE)[0]["step"] == step
        resume = ("--resume",)
    path = folder / "resumed.jsonl"
    assert main([*flags, *kept, *resume, "--json", str(path)]) == 0
    return results(path)


@pytest.mark.parametrize("steps", [(4,), (8,), (12,), (3, 4, 8, 12)], ids=str)
def test_stop_at_an_epochs_end_loses_nothing(
    steps: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([*MLP, "--json", str(tmp_path / "whole.jsonl")]) == 0
    found = stopped_and_resumed(MLP, steps, tmp_path, monkeypatch)
    assert found == results(tmp_path / "whole.jsonl")
    assert [it["epoch"] for it in found[:-1]] == [1, 2, 3]


def test_stop_in_the_only_epochs_last_step_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = (*MLP, "--epochs", "1")
    assert main([*flags, "--json", str(tmp_path / "whole.jsonl")]) == 0
    found = stopped_and_resumed(flags, (4,), tmp_path, monkeypatch)
    assert found == results(tmp_path / "whole.jsonl")


@pytest.mark.parametrize("flags", [CNN, GRU], ids=["cnn", "gru"])
def test_bfloat16_runs_are_resumed_bit_for_bit(
    flags: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")
    flags += BFLOAT16
    assert main([*flags, "--json", str(tmp_path / "whole.jsonl")]) == 0
    found = stopped_and_resumed(flags, (2, 7, 8), tmp_path, monkeypatch)
    assert found == results(tmp_path / "whole.jsonl")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_run_after_its_step_with_the_usual_status(
    number: signal.Signals,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = signal.getsignal(number)
    signal_in(monkeypatch, 6, number)
    assert main([*MLP, "--checkpoint", str(tmp_path)]) == 128 + number
    assert capsys.readouterr().err == f"python -m dlprim.train: {SAID[number]}.\n"
    assert checkpoint.read(tmp_path / checkpoint.FILE)[0]["step"] == 6
    assert signal.getsignal(number) == before


def test_repeated_sigterm_does_not_spoil_the_checkpoint(tmp_path: Path) -> None:
    """Schedulers send it to a job's shell and its programs: several may arrive."""
    flags = [*MLP, "--epochs", "100000", "--checkpoint", str(tmp_path)]
    command = [sys.executable, "-m", "dlprim.train", *flags]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while not (tmp_path / checkpoint.FILE).exists() and time.monotonic() < end:
        time.sleep(0.01)
    run.terminate()
    run.terminate()
    assert run.communicate(timeout=60)[1] == "python -m dlprim.train: terminated.\n"
    assert run.returncode == 143
    assert checkpoint.read(tmp_path / checkpoint.FILE)[0]["step"] >= 4
