"""Runs of the program that would drop a flag or a file, or end in a traceback."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import RunPython
from dlprim.train import CheckpointError, load, main
from dlprim.train.folder import FILE

pytestmark = pytest.mark.any_level


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a checkpoint, beside the data and the images of its run."""
    folder = tmp_path_factory.mktemp("run")
    pixels = np.random.default_rng(0).integers(0, 255, (20, 16)).astype(np.uint8)
    np.savez(folder / "data.npz", images=pixels, labels=np.arange(20) % 2)
    np.save(folder / "images.npy", pixels)
    flags = ("--hidden", "4", "--epochs", "1", "--batch-size", "8", "--data")
    assert main([*flags, str(folder / "data.npz"), "--checkpoint", str(folder / "kept")]) == 0
    return folder / "kept"


@pytest.mark.parametrize(
    ("mode", "passed_over"),
    [
        (("--check",), ("--json", "FILE")),
        (("--check",), ("--checkpoint", "DIR")),
        (("--check",), ("--profile",)),
        (("--check",), ("--eval", "--profile")),
        (("--allreduce-only", "8"), ("--json", "FILE")),
        (("--allreduce-only", "8"), ("--check",)),
        (("--eval", "--checkpoint", "DIR"), ("--resume",)),
        (("--eval", "--checkpoint", "DIR"), ("--baseline", "FILE")),
        (("--eval", "--checkpoint", "DIR"), ("--predict-scaling",)),
        (("--predict", "x.npy", "--checkpoint", "DIR"), ("--allreduce-only", "8")),
    ],
)
def test_flags_that_a_mode_would_pass_over(
    mode: tuple[str, ...], passed_over: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*mode, *passed_over])
    assert stop.value.code == 2
    assert f"argument {mode[0]}: expected without {passed_over[0]}" in capsys.readouterr().err


def test_predictions_do_not_replace_their_images(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = kept.parent / "images.npy"
    before = source.read_bytes()
    same = kept / ".." / "images.npy"
    flags = ("--checkpoint", str(kept), "--predict", str(source), "--output", str(same))
    with pytest.raises(SystemExit):
        main(flags)
    assert "--output: expected another file than --predict's" in capsys.readouterr().err
    assert source.read_bytes() == before


def test_images_of_another_kind_are_refused_in_a_line(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "x.npy"
    for wrong in (np.zeros((2, 16), bool), np.zeros((2, 16), complex), np.full((2, 16), "a")):
        np.save(source, wrong)
        assert main(["--checkpoint", str(kept), "--predict", str(source)]) == 1
        captured = capsys.readouterr()
        assert f"x.npy has dtype {wrong.dtype}, expected integers or floats" in captured.err
        assert (captured.out, captured.err.count("\n")) == ("", 1)


def test_a_line_for_each_image_and_no_other(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for count in (0, 1, 3):
        np.save(tmp_path / "x.npy", np.zeros((count, 16), np.uint8))
        assert main(["--checkpoint", str(kept), "--predict", str(tmp_path / "x.npy")]) == 0
        assert capsys.readouterr().out.count("\n") == count


def test_results_have_no_closed_standard_output(kept: Path, run_python: RunPython) -> None:
    run = run_python(
        "import os, sys\n"
        "sys.stdout = None\n"  # as Python has it where file descriptor 1 is closed
        "from dlprim.train import main\n"
        f"main(['--checkpoint', {str(kept)!r}, '--eval', '--json', '-'])\n"
    )
    assert run.returncode == 2
    assert "argument --json: standard output is closed" in run.stderr


def test_results_do_not_replace_the_data(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = kept.parent / "data.npz"
    before = data.read_bytes()
    for mode in (("--data", str(data)), ("--eval", "--checkpoint", str(kept))):
        with pytest.raises(SystemExit):
            main([*mode, "--json", str(kept / ".." / "data.npz")])
        assert "--json: expected another file than that of the data" in capsys.readouterr().err
    assert data.read_bytes() == before


def test_baseline_that_is_missing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "missing.jsonl"
    assert main(["--hidden", "4", "--epochs", "1", "--baseline", str(path)]) == 1
    assert f"{path} cannot be read: No such file" in capsys.readouterr().err


def test_data_that_have_moved(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A checkpoint knows the path of its data as it was given, and their digest."""
    moved, other = tmp_path / "moved.npz", tmp_path / "other.npz"
    shutil.copy(kept.parent / "data.npz", moved)
    for mode in ("--eval", "--resume"):
        capsys.readouterr()
        assert main(["--checkpoint", str(kept), mode, "--data", str(moved)]) == 0
        assert capsys.readouterr().err == ""
    np.savez(other, images=np.zeros((20, 16), np.uint8), labels=np.arange(20) % 2)
    assert main(["--checkpoint", str(kept), "--resume", "--data", str(other)]) == 1
    assert f"is of a run on other data than {other} holds now" in capsys.readouterr().err
    assert main(["--checkpoint", str(kept), "--eval", "--data", str(other)]) == 0
    assert "what is tested may be what it was trained on" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--checkpoint", str(kept), "--predict", "x.npy", "--data", str(moved)])
    assert "--data: expected without --predict" in capsys.readouterr().err


# ---------------------------------------------------------------- checkpoints by other hands

WRONG: dict[str, Any] = {
    "no JSON object": [1],
    "config is missing": {"config": None},
    "step is -5": {"step": -5},
    "ranks is 5": {"ranks": 5},
    "hidden is ['a']": {"config": {"hidden": ["a"]}},
    "hidden is 3": {"config": {"hidden": 3}},
    "model is 'foo'": {"config": {"model": "foo"}},
    "dtype is 'int8'": {"config": {"dtype": "int8"}},
    "lr is 'fast'": {"config": {"lr": "fast"}},
    "has format 1, expected 2": {"format": 1},
}


@pytest.mark.parametrize("said", WRONG)
def test_descriptions_that_are_none(
    said: str, kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change = WRONG[said]
    with np.load(kept / FILE) as file:
        arrays = dict(file)
    found: Any = json.loads(arrays["description"].tobytes())
    if isinstance(change, list):
        found = change
    elif isinstance(config := change.get("config"), dict):
        found["config"] |= config
    else:
        found |= change
    if change == {"config": None}:
        del found["config"]
    arrays["description"] = np.frombuffer(json.dumps(found).encode(), np.uint8)
    np.savez(tmp_path / FILE, **arrays)
    with pytest.raises(CheckpointError) as refusal:
        load(tmp_path)
    assert said in str(refusal.value)
    for mode in ("--resume", "--eval"):
        capsys.readouterr()
        assert main(["--checkpoint", str(tmp_path), mode]) == 1
        captured = capsys.readouterr()
        assert said in captured.err
        assert captured.err.count("\n") == 1


def test_weights_that_are_no_numbers(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with np.load(kept / FILE) as file:
        arrays = dict(file)
    for name, expected in (
        ("model/0.weight", "0.weight has dtype <U1, expected float32"),
        ("optimizer/learning_rate", "learning_rate is 'a', expected"),
    ):
        wrong = arrays | {name: np.full(arrays[name].shape, "a")}
        np.savez(tmp_path / FILE, **wrong)
        capsys.readouterr()
        assert main(["--checkpoint", str(tmp_path), "--resume"]) == 1
        assert f"does not fit the model: {expected}" in capsys.readouterr().err


def test_a_file_in_place_of_the_folder(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = kept.parent / "data.npz"
    assert main(["--checkpoint", str(file), "--eval"]) == 1
    assert f"{file} is no folder, expected that of a checkpoint" in capsys.readouterr().err
