"""Flags that did something else than they say, or nothing, without a word."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dlprim.train import main
from dlprim.train.config import DEFAULTS
from dlprim.train.flags import parser
from dlprim.train.folder import FILE

pytestmark = pytest.mark.any_level

NOISE = ("--data", "synthetic", "--image-size", "4", "--hidden", "8", "--batch-size", "16")
SHORT = (*NOISE, "--lr", "0.02", "--epochs", "2", "--steps", "2")


def refused(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    """What is said of a flag that does not fit the others."""
    with pytest.raises(SystemExit) as stop:
        main(flags)
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


# ---------------------------------------------------------------- --eval


def test_eval_without_a_checkpoint_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, *NOISE, "--eval")
    assert "argument --eval: expected --checkpoint DIR too, whose weights are tested" in said


def test_eval_of_a_folder_without_a_checkpoint_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*NOISE, "--eval", "--checkpoint", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{tmp_path / FILE} does not exist" in captured.err


def test_profile_of_untrained_weights_has_times_and_no_quality(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.jsonl"
    assert main([*NOISE, "--eval", "--profile", "--json", str(path)]) == 0
    said = capsys.readouterr().out
    assert "inference" in said
    assert "accuracy" not in said
    assert "accuracy" not in path.read_text()


# ---------------------------------------------------------------- --json -


def test_json_to_standard_output_is_all_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*SHORT, "--json", "-"]) == 0
    captured = capsys.readouterr()
    records = [json.loads(line)["record"] for line in captured.out.splitlines()]
    assert records == ["epoch", "epoch", "final"]
    assert "epoch 1/2 " in captured.err
    assert "final: " in captured.err
    assert list(tmp_path.iterdir()) == []


def test_json_of_a_process_can_be_piped() -> None:
    command = [sys.executable, "-m", "dlprim.train", *SHORT, "--json", "-"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert len([json.loads(line) for line in run.stdout.splitlines()]) == 3
    assert run.stderr.startswith("dlprim ")


# ---------------------------------------------------------------- what concerns several ranks


@pytest.mark.parametrize("flag", ["--bandwidth", "--latency"])
def test_network_without_a_prediction_is_refused(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, *SHORT, flag, "3")
    assert f"argument {flag}: expected --predict-scaling too" in said


def test_wire_of_one_rank_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SHORT, "--wire", "bfloat16"]) == 0
    said = capsys.readouterr().err
    assert "warning: --wire bfloat16 changes nothing on one rank" in said
    # Its messages are half as long on the nodes that are predicted.
    assert main([*SHORT, "--wire", "bfloat16", "--predict-scaling"]) == 0
    assert capsys.readouterr().err == ""


# ---------------------------------------------------------------- --help


def test_help_has_the_default_of_every_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    entries = re.split(r"\n  (?=-)", parser().format_help())[2:]
    assert len(entries) > 30
    for entry in entries:
        assert entry.count("(default: ") == 1, entry
    rates = next(entry for entry in entries if entry.startswith("--lr"))
    for model in ("cnn", "resnet50"):
        assert f"{model}: {DEFAULTS[model]['lr']:g}" in rates
