"""Checkpoints with right checksums and wrong contents, which another program or an editor wrote."""

from __future__ import annotations

import contextlib
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forged_files
from dlprim import train
from dlprim.train import checkpoint, main

pytestmark = pytest.mark.any_level

RUNS = {
    "lstm": ("--model", "lstm", "--hidden", "8", "--epochs", "1", "--steps", "2", "--length", "6"),
    "mlp": ("--hidden", "8", "--epochs", "1", "--steps", "2"),
    "cnn": ("--model", "cnn", "--hidden", "8", "8", "--epochs", "1", "--steps", "2"),
}
Arrays = dict[str, Any]


@pytest.fixture(scope="module", params=RUNS)
def whole(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Arrays:
    """The arrays of the checkpoint of a run."""
    if request.param != "lstm":
        pytest.importorskip("sklearn", reason="the digits data set is part of scikit-learn")
    folder = tmp_path_factory.mktemp("run")
    assert main([*RUNS[request.param], "--checkpoint", str(folder)]) == 0
    with np.load(folder / checkpoint.FILE) as arrays:
        return dict(arrays)


def described(arrays: Arrays) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(arrays["description"].tobytes())
    return found


def put(folder: Path, arrays: Arrays, description: Any) -> None:
    text = description if isinstance(description, bytes) else json.dumps(description).encode()
    made = arrays | {"description": np.frombuffer(text, np.uint8)}
    np.savez(folder / checkpoint.FILE, **made)


FORGED: dict[str, Callable[[Any], Any]] = {
    "wide": lambda it: it["config"].update(hidden=[10**6]),
    "wide everywhere": lambda it: it["config"].update(hidden=[10**6] * 4),
    "no width": lambda it: it["config"].update(hidden=[0]),
    "deep": lambda it: it["config"].update(model="lstm", hidden=[8], layers=10**9),
    "no layers": lambda it: it["config"].update(layers=0),
    "another model": lambda it: it["config"].update(model="gru", hidden=[9]),
    "no rate": lambda it: it["config"].update(lr=float("nan")),
    "a negative seed": lambda it: it["config"].update(seed=-1),
    "endless steps": lambda it: it["config"].update(steps=10**400),
    "a step beyond all": lambda it: it.update(step=10**400),
    "a history of numbers": lambda it: it.update(history=[1]),
    "samples by a word": lambda it: it.update(samples=True),
}


@pytest.mark.parametrize("case", FORGED)
def test_forged_checkpoints_are_refused_quickly_and_in_little_memory(
    case: str, whole: Arrays, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    description = described(whole)
    FORGED[case](description)
    put(tmp_path, whole, description)
    tracemalloc.start()
    try:
        with pytest.raises(train.CheckpointError, match=r"^\S*checkpoint\.npz "):
            train.load(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 64e6
    finally:
        tracemalloc.stop()
    assert main(["--resume", "--checkpoint", str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "name", ["seconds", "state/9", "state/0.x", "exchange/plan", "optimizer/x"]
)
def test_what_a_run_goes_on_from_is_checked(
    name: str, whole: Arrays, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A word where there are numbers, besides what a model is made from."""
    description = described(whole)
    if name == "seconds":
        description["seconds"]["sleeping"] = 1.0
    elif name.startswith("state") and "state/0.0" not in whole:
        pytest.skip("only recurrent layers have states")
    put(tmp_path, whole | ({} if name == "seconds" else {name: np.array("word")}), description)
    status = main(["--resume", "--checkpoint", str(tmp_path)])
    captured = capsys.readouterr()
    if name == "exchange/plan":  # of other ranks, which is no mistake
        assert status == 0
        return
    assert status == 1
    assert "checkpoint.npz does not fit the model: " in captured.err
    assert captured.err.count("\n") == 1


def test_descriptions_that_are_nested_without_end_are_refused(
    whole: Arrays, tmp_path: Path
) -> None:
    put(tmp_path, whole, b"[" * 100_000 + b"]" * 100_000)
    for read in (checkpoint.read, checkpoint.read_description):
        with pytest.raises(train.CheckpointError, match=r"is no checkpoint of dlprim\.train"):
            read(tmp_path / checkpoint.FILE)


def test_compressed_checkpoints_are_refused(whole: Arrays, tmp_path: Path) -> None:
    """A small file may hold as many zeros as it likes."""
    path = tmp_path / checkpoint.FILE
    np.savez_compressed(path, **whole, zeros=np.zeros(10**7))
    with pytest.raises(train.CheckpointError, match="its arrays are compressed, expected plain on"):
        checkpoint.read(path)


def test_drawn_changes_with_right_checksums(whole: Arrays, tmp_path: Path) -> None:
    description = described(whole)
    for seed in range(100):
        put(tmp_path, whole, forged_files.changed(description, np.random.default_rng(seed)))
        with contextlib.suppress(train.CheckpointError):
            train.load(tmp_path)
    for name, value in dict(description["config"]).items():
        del description["config"][name]
        put(tmp_path, whole, description)
        with contextlib.suppress(train.CheckpointError):
            train.load(tmp_path)
        description["config"][name] = value
