"""Runs made longer: to the bits of a run that was long from the beginning, or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlprim.train import checkpoint, main
from dlprim.train.folder import FILE

pytestmark = pytest.mark.any_level

CNN = ("--model", "cnn", "--data", "synthetic", "--image-size", "4", "--hidden", "8")
MODELS = {
    "cnn": (*CNN, "--batch-size", "16", "--steps", "3", "--shift", "1", "--lr", "0.02"),
    "gru": ("--model", "gru", "--hidden", "16", "--length", "8", "--steps", "3"),
}
CONSTANT = ("--schedule", "constant")


def losses(path: Path) -> list[float]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [it["train_loss"] for it in found if it["record"] == "epoch"]


def refusal(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    capsys.readouterr()
    assert main(flags) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    return captured.err


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[it], other[it]) for it in one)


@pytest.fixture(autouse=True)
def no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text at the end of a run takes longer than these runs."""
    monkeypatch.setattr("dlprim.train.run._SAMPLE", 1)


@pytest.mark.parametrize("model", MODELS)
def test_finished_run_goes_on_to_the_bits_of_a_longer_one(model: str, tmp_path: Path) -> None:
    flags = (*MODELS[model], *CONSTANT)
    long, path = tmp_path / "long.jsonl", tmp_path / "run.jsonl"
    whole, kept = tmp_path / "whole", ("--checkpoint", str(tmp_path / "kept"))
    assert main([*flags, "--epochs", "4", "--checkpoint", str(whole), "--json", str(long)]) == 0
    assert main([*flags, "--epochs", "2", *kept]) == 0
    assert main([*kept, "--resume", "--epochs", "4", "--json", str(path)]) == 0
    assert losses(path) == losses(long)
    assert len(losses(path)) == 4
    found, expected = checkpoint.read(tmp_path / "kept" / FILE), checkpoint.read(whole / FILE)
    assert same(found[1], expected[1])
    assert found[0]["config"] == expected[0]["config"]


def test_run_whose_past_would_differ_is_not_made_longer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = ("--checkpoint", str(tmp_path))
    assert main([*MODELS["cnn"], "--epochs", "2", *kept]) == 0
    before = (tmp_path / FILE).read_bytes()
    said = refusal(capsys, *kept, "--resume", "--epochs", "4")
    assert "whose learning rate falls to zero over its 2 epochs: with epochs 4 it would" in said
    assert "a run that began with --schedule constant" in said
    assert "schedule linear, not constant" in refusal(capsys, *kept, "--resume", *CONSTANT)
    assert (tmp_path / FILE).read_bytes() == before


def test_only_more_epochs_and_only_in_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = ("--checkpoint", str(tmp_path))
    assert main([*MODELS["cnn"], *CONSTANT, "--epochs", "2", *kept]) == 0
    assert "epochs 2, not 1" in refusal(capsys, *kept, "--resume", "--epochs", "1")
    assert "epochs 2, not 4" in refusal(capsys, *kept, "--eval", "--epochs", "4")
    said = refusal(capsys, *kept, "--resume", "--epochs", "4", "--seed", "1")
    assert "epochs 2, not 4, seed 0, not 1" in said


def test_checkpoint_without_a_schedule_is_of_a_linear_one(tmp_path: Path) -> None:
    """Version 0.1 had no other and did not say so."""
    kept = ("--checkpoint", str(tmp_path))
    assert main([*MODELS["cnn"], "--epochs", "2", *kept]) == 0
    with np.load(tmp_path / FILE) as file:
        arrays = dict(file)
    description = json.loads(arrays["description"].tobytes())
    del description["config"]["schedule"]
    arrays["description"] = np.frombuffer(json.dumps(description).encode(), np.uint8)
    np.savez(tmp_path / FILE, **arrays)
    assert main([*kept, "--resume"]) == 0
    assert checkpoint.read(tmp_path / FILE)[0]["config"]["schedule"] == "linear"
