"""What goes wrong midway: writes that stop, files with any byte changed, results not finite."""

from __future__ import annotations

import math
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlprim.train import checkpoint, data, main, stored
from dlprim.train.config import TrainConfig
from dlprim.train.loop import DivergenceError, Trainer
from dlprim.train.models import build
from dlprim.train.tasks import ImageTask, TextTask
from dlprim.train.text import Corpus

pytestmark = pytest.mark.any_level

MLP = ("--hidden", "16", "--epochs", "4", "--steps", "5")


@pytest.fixture
def digits() -> None:
    pytest.importorskip("sklearn", reason="the digits data set is part of scikit-learn")


@pytest.mark.usefixtures("digits")
def test_write_that_ends_in_the_middle_leaves_the_earlier_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The system itself refuses all bytes of a file beyond a bound, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    original = stored._flush_folder
    wholes = []

    def flush_then_fill_the_disk(folder: Path) -> None:
        original(folder)
        wholes.append((folder / checkpoint.FILE).read_bytes())
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(wholes[0]) // 2, before[1]))

    monkeypatch.setattr(stored, "_flush_folder", flush_then_fill_the_disk)
    try:
        assert main([*MLP, "--checkpoint", str(tmp_path)]) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    captured = capsys.readouterr()
    assert captured.err.count("warning: no checkpoint could be written to") == 3
    assert "training goes on and the earlier one stays." in captured.err
    assert "final: test accuracy" in captured.out
    assert [it.name for it in tmp_path.iterdir()] == [checkpoint.FILE]
    assert [(tmp_path / checkpoint.FILE).read_bytes()] == wholes


@pytest.mark.usefixtures("digits")
def test_no_changed_or_missing_byte_of_a_checkpoint_goes_unnoticed(tmp_path: Path) -> None:
    assert main([*MLP, "--checkpoint", str(tmp_path)]) == 0
    path = tmp_path / checkpoint.FILE
    whole = path.read_bytes()
    description, arrays = checkpoint.read(path)
    places = np.random.default_rng(0).integers(0, len(whole), 150)
    for place in [*places, len(whole) - 1]:
        path.write_bytes(whole[:place])
        with pytest.raises(checkpoint.CheckpointError, match=r"checkpoint\.npz is"):
            checkpoint.read(path)
        changed = bytearray(whole)
        changed[place] ^= 0x10
        path.write_bytes(bytes(changed))
        found = read_or_refused(path)
        if found is not None:  # it was a time stamp or the like, which nobody reads
            assert found[0] == description
            assert found[1].keys() == arrays.keys()
            assert all(np.array_equal(it, arrays[name]) for name, it in found[1].items())


def read_or_refused(path: Path) -> Any:
    try:
        return checkpoint.read(path)
    except checkpoint.CheckpointError:
        return None


def images() -> data.Dataset:
    random = np.random.default_rng(0)
    src = random.standard_normal((12, 1, 8, 8), dtype=np.float32)
    labels = np.arange(12) % 3
    return data.Dataset("noise", 3, src, labels, src, labels)


def trainer(model: str, dtype: str) -> Trainer:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="it has the type of bfloat16 arrays")
    task: Any
    if model == "cnn":
        config = TrainConfig(model="cnn", epochs=1, batch_size=4, hidden=(8,), dtype=dtype)
        task = ImageTask(images(), config)
    else:
        config = TrainConfig(
            model=model, epochs=1, batch_size=4, hidden=(8,), dtype=dtype, length=5
        )
        letters = np.random.default_rng(0).integers(0, 90, 400)
        task = TextTask(Corpus(letters, letters), config)
    random = np.random.default_rng(1)
    return Trainer(build(config, task.shape, task.classes, random), task, config)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("model", "parameter", "layer"),
    [
        ("cnn", "stage0.1.conv0.1.weight", "conv0.1"),
        ("cnn", "stage0.0.bn0.0.bias", "stage0.0.bn0.0"),
        ("cnn", "fc.bias", "fc"),
        ("lstm", "encoder.weight", "encoder"),
        ("gru", "rnn.weight_hh_l0", "rnn"),
        ("lstm", "decoder.bias", "decoder"),
    ],
)
def test_layer_and_step_of_a_nan_are_named(
    model: str, parameter: str, layer: str, dtype: str
) -> None:
    run = trainer(model, dtype)
    run.run_step()
    chosen = next(it for it in run.model.parameters() if it.name == parameter)
    chosen.value[...] = math.nan
    run.model.changed()
    steps = run.task.steps
    with pytest.raises(DivergenceError, match=rf"'[\w.]*{layer}'\) in epoch 1, step 2 of {steps}"):
        run.run_step()
    assert run.step == 1
