"""Checkpoints: a run that was stopped, or killed, goes on to the same losses, bit for bit."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlprim.train import checkpoint, main
from dlprim.train.loop import Trainer

pytestmark = [pytest.mark.any_level, pytest.mark.slow]

MLP = ("--hidden", "16", "--epochs", "4", "--steps", "5")
TEXT = ("--model", "lstm", "--hidden", "16", "--epochs", "2", "--steps", "4", "--length", "8")
SMALL = ("--hidden", "16", "--layers", "1", "--batch-size", "4", "--epochs", "2", "--steps", "4")
GPT = ("--model", "gpt", "--length", "8", *SMALL)
VIT = ("--model", "vit", *SMALL)


@pytest.fixture
def digits() -> None:
    pytest.importorskip("sklearn", reason="the digits data set is part of scikit-learn")


def curve(path: Path) -> list[tuple[float, ...]]:
    """What must be equal bit for bit."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    metrics = ("test_accuracy", "test_bits_per_character")
    return [
        (record["train_loss"], *(record[it] for it in metrics if it in record))
        for record in records
    ]


def stop_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Ctrl-C in the middle of that step."""
    original = Trainer._update

    def update(self: Trainer) -> None:
        if self.step + 1 == steps:
            os.kill(os.getpid(), signal.SIGINT)
        original(self)

    monkeypatch.setattr(Trainer, "_update", update)


@pytest.mark.usefixtures("digits")
@pytest.mark.parametrize("flags", [MLP, TEXT, GPT, VIT], ids=["mlp", "lstm", "gpt", "vit"])
def test_interrupted_run_resumes_to_the_same_losses(
    flags: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*flags, "--json", str(tmp_path / "whole.jsonl")]) == 0
    kept = ("--checkpoint", str(tmp_path / "kept"))
    with monkeypatch.context() as patch:
        stop_after(patch, 7)
        assert main([*flags, *kept]) == 130
    assert capsys.readouterr().err == "python -m dlprim.train: interrupted.\n"
    assert [it.name for it in (tmp_path / "kept").iterdir()] == [checkpoint.FILE]
    assert main([*flags, *kept, "--resume", "--json", str(tmp_path / "resumed.jsonl")]) == 0
    assert "resumed after step 7 of" in capsys.readouterr().out
    assert curve(tmp_path / "resumed.jsonl") == curve(tmp_path / "whole.jsonl")


@pytest.mark.usefixtures("digits")
def test_killed_run_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    flags = [*MLP, "--epochs", "100000", "--steps", "1", "--checkpoint", str(tmp_path)]
    command = [sys.executable, "-m", "dlprim.train", *flags]
    path = tmp_path / checkpoint.FILE
    for _ in range(2):
        path.unlink(missing_ok=True)
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            end = time.monotonic() + 60
            while not path.exists() and time.monotonic() < end:
                time.sleep(0.01)
            time.sleep(0.03)  # at this rate somewhere in the next few checkpoints
        finally:
            run.kill()
            run.wait()
        description, arrays = checkpoint.read(path)
        assert description["step"] >= 1
        assert "model/0.weight" in arrays


@pytest.mark.usefixtures("digits")
def test_full_disk_leaves_the_earlier_checkpoint_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def fsync(descriptor: int, original: Any = os.fsync) -> None:
        calls.append(descriptor)
        if len(calls) > 2:  # file and folder of the first checkpoint are flushed
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    assert main([*MLP, "--checkpoint", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert captured.err.count("warning: no checkpoint could be written to") == 3
    assert "No space left on device; training goes on and the earlier one stays." in captured.err
    assert "final: test accuracy" in captured.out
    assert [it.name for it in tmp_path.iterdir()] == [checkpoint.FILE]
    assert checkpoint.read(tmp_path / checkpoint.FILE)[0]["step"] == 5


@pytest.mark.usefixtures("digits")
def test_damaged_or_foreign_checkpoint_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*MLP, "--checkpoint", str(tmp_path)]
    resume = [*flags, "--resume"]

    def refusal(*more: str) -> str:
        assert main([*resume, *more]) == 1
        return capsys.readouterr().err

    assert "checkpoint.npz does not exist: there is nothing to resume" in refusal()
    assert main(flags) == 0
    path = tmp_path / checkpoint.FILE
    assert "is of a run with seed 0, not 1" in refusal("--seed", "1")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "checkpoint.npz is damaged or no checkpoint" in refusal()
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 1
    path.write_bytes(bytes(flipped))
    assert "checkpoint.npz is damaged or no checkpoint" in refusal()
    np.savez(path, weights=np.zeros(3))
    assert "it holds weights, but no 'description'" in refusal()
    path.write_bytes(b"")
    assert "checkpoint.npz is damaged or no checkpoint" in refusal()


@pytest.mark.usefixtures("digits")
def test_eval_tests_what_was_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [*MLP, "--checkpoint", str(tmp_path / "kept")]
    assert main([*flags, "--json", str(tmp_path / "run.jsonl")]) == 0
    assert main([*flags, "--eval", "--json", str(tmp_path / "test.jsonl")]) == 0
    trained = json.loads((tmp_path / "run.jsonl").read_text().splitlines()[-1])
    tested = json.loads((tmp_path / "test.jsonl").read_text())
    assert tested["test_accuracy"] == trained["test_accuracy"]
    assert "test: test accuracy" in capsys.readouterr().out


@pytest.mark.usefixtures("digits")
def test_resume_needs_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--resume"])
    assert stop.value.code == 2
    assert "expected --checkpoint DIR" in capsys.readouterr().err
