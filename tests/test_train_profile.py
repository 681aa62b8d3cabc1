"""`--profile`: where the time of a step goes, by the layers that wrote what runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dlprim.train import main

pytestmark = pytest.mark.any_level

STEPS = ("--epochs", "1", "--steps", "1", "--batch-size", "4")
CNN = ("--model", "cnn", "--data", "synthetic", "--image-size", "8", "--hidden", "8")
LSTM = ("--model", "lstm", "--hidden", "16", "--length", "8")
GRU = ("--model", "gru", *LSTM[2:])
DEEP = ("--hidden", "16", "--layers", "1")
GPT = ("--model", "gpt", "--length", "8", *DEEP)
VIT = ("--model", "vit", "--data", "synthetic", "--image-size", "32", *DEEP)
MLP = ("--data", "synthetic", "--image-size", "6", "--hidden", "16")


def profiled(path: Path, *flags: str) -> dict[tuple[str, str], dict[str, Any]]:
    """What a result file says of layers and passes."""
    assert main([*flags, "--profile", "--json", str(path)]) == 0
    records = [json.loads(line) for line in path.read_text().splitlines()]
    found = [it for it in records if it["record"] == "profile"]
    assert len({(it["layer"], it["pass"]) for it in found}) == len(found)
    assert all(0 <= it["seconds_per_step"] < 100 for it in found)
    return {(it["layer"], it["pass"]): it for it in found}


# Products of a layer's forward pass, of 4 samples or 4 x 8 characters.
@pytest.mark.parametrize(
    ("flags", "layer", "multiply_adds"),
    [
        (MLP, "1", 4 * 16 * 1000),
        (CNN, "fc", 4 * 8 * 1000),
        (CNN, "stage0.1.conv0.1", 4 * 8 * 8 * 9 * 8 * 8),
        (LSTM, "rnn", 4 * 8 * 4 * 16 * (64 + 16)),
        (GRU, "rnn", 4 * 8 * 3 * 16 * (64 + 16)),
        (LSTM, "decoder", 4 * 8 * 16 * 97),
        (GPT, "layers.0.linear1", 4 * 8 * 16 * 64),
        (GPT, "GPT", 4 * 8 * 16 * 97),
        (VIT, "encoder.layers.encoder_layer_0.mlp.0", 4 * 17 * 16 * 64),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_layers_have_times_and_work_in_both_passes(
    flags: tuple[str, ...], layer: str, multiply_adds: int, dtype: str, tmp_path: Path
) -> None:
    found = profiled(tmp_path / "run.jsonl", *flags, *STEPS, "--dtype", dtype)
    assert {it for _, it in found} == {"forward", "backward"}
    forward, backward = (found[layer, it] for it in ("forward", "backward"))
    assert forward["flops_per_step"] == 2 * multiply_adds
    assert backward["flops_per_step"] == 4 * multiply_adds  # by the input, and by weights
    assert forward["seconds_per_step"] > 0 < backward["seconds_per_step"]


def test_a_table_ends_with_sums_and_the_peak(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profiled(tmp_path / "run.jsonl", *CNN, *STEPS)
    text = capsys.readouterr().out
    assert re.search(r"^stage0\.1\.conv0\.1 +backward +[\d.]+ +[\d.]+ % +\d+", text, re.MULTILINE)
    assert re.search(r"^all layers, forward: [\d.]+ ms/step$", text, re.MULTILINE)
    assert re.search(r"^all layers, backward: [\d.]+ ms/step$", text, re.MULTILINE)
    assert re.search(r"^mean of 5 steps; peak: ", text, re.MULTILINE)
    assert re.search(r"^memory at most: \d+ MiB resident$", text, re.MULTILINE)


@pytest.mark.parametrize("flags", [CNN, LSTM, GPT])
def test_inference_has_no_backward_pass(
    flags: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = profiled(tmp_path / "run.jsonl", *flags, "--batch-size", "4", "--eval")
    assert {it for _, it in found} == {"inference"}
    assert "inference; a step is a batch of training" in capsys.readouterr().out


def test_a_profile_leaves_results_alone(tmp_path: Path) -> None:
    whole, other = tmp_path / "whole.jsonl", tmp_path / "profiled.jsonl"
    assert main([*CNN, *STEPS, "--json", str(whole)]) == 0
    profiled(other, *CNN, *STEPS)
    files = [map(json.loads, it.read_text().splitlines()) for it in (whole, other)]
    losses = [[it["train_loss"] for it in found if it["record"] == "epoch"] for found in files]
    assert losses[0] == losses[1]
