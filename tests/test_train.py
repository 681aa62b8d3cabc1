"""The training program: that it learns, repeats itself bit for bit, and refuses what it must.

What a run reports is checked through its result file, because that is what other programs read.
"""

from __future__ import annotations

import ast
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlprim
import dlprim.optim
import dlprim.train
from dlprim.optim import SGD
from dlprim.train import main
from dlprim.train.records import check_writable, write_lines

SMALL = ("--epochs", "3", "--hidden", "32")


@pytest.fixture
def digits() -> None:
    pytest.importorskip("sklearn", reason="the digits data set is part of scikit-learn")


def results(path: Path, *flags: str) -> list[dict[str, Any]]:
    """Runs the program in this process and returns the records of its result file."""
    assert main([*flags, "--json", str(path)]) == 0
    return [json.loads(line) for line in path.read_text().splitlines()]


def curve(records: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """What a run must repeat bit for bit; JSON keeps every bit of a float."""
    return [(record["train_loss"], record["test_accuracy"]) for record in records]


# ---------------------------------------------------------------- the program


@pytest.mark.large
@pytest.mark.usefixtures("digits")
def test_default_run_learns_the_digits(tmp_path: Path) -> None:
    records = results(tmp_path / "run.jsonl")
    assert records[-1]["test_accuracy"] > 0.97
    assert records[-1]["train_loss"] < records[0]["train_loss"] / 10


@pytest.mark.usefixtures("digits")
@pytest.mark.parametrize("threads", ["1", "2"])
def test_same_seed_repeats_every_bit(tmp_path: Path, threads: str) -> None:
    flags = (*SMALL, "--hidden", "32", "16", "--batch-size", "50", "--seed", "7")
    expected = curve(results(tmp_path / "one.jsonl", *flags, "--threads", "1"))
    again = results(tmp_path / "again.jsonl", *flags, "--threads", threads)
    assert again[-1]["environment"]["threads"] == int(threads)
    assert curve(again) == expected


@pytest.mark.usefixtures("digits")
def test_another_seed_gives_another_run(tmp_path: Path) -> None:
    losses = {
        results(tmp_path / "run.jsonl", *SMALL, "--seed", seed)[-1]["train_loss"]
        for seed in ("0", "1", "2")
    }
    assert len(losses) == 3


@pytest.mark.usefixtures("digits")
def test_result_file_has_a_line_per_epoch_and_a_final_one(tmp_path: Path) -> None:
    *epochs, final = results(tmp_path / "run.jsonl", *SMALL, "--lr", "0.05", "--threads", "1")
    assert [record["record"] for record in epochs] == ["epoch"] * 3
    assert [record["epoch"] for record in epochs] == [1, 2, 3]
    assert final["record"] == "final"
    assert final["schema_version"] == 2
    assert final["test_accuracy"] == epochs[-1]["test_accuracy"]
    assert final["samples"] == sum(record["samples"] for record in epochs)
    for record in (*epochs, final):
        assert math.isfinite(record["train_loss"])
        assert 0 <= record["test_accuracy"] <= 1
        assert record["samples_per_s"] > 0
    assert final["config"]["hidden"] == [32]
    assert final["config"]["lr"] == 0.05
    assert final["environment"] == {
        "dlprim": dlprim.__version__,
        "isa": dlprim.isa(),
        "threads": 1,
        "numpy": np.__version__,
    }
    assert [path.name for path in tmp_path.iterdir()] == ["run.jsonl"]


@pytest.mark.usefixtures("digits")
def test_module_runs_and_prints_a_line_per_epoch() -> None:
    command = [sys.executable, "-m", "dlprim.train", "--epochs", "2", "--hidden", "8"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    lines = run.stdout.splitlines()
    starts = [False, True, True, False, False, False]
    assert [line.startswith("epoch ") for line in lines] == starts
    assert lines[1].startswith("epoch 1/2 ")
    assert all(word in lines[1] for word in ("train loss", "test accuracy", "samples/s"))


def test_numpy_does_no_matrix_product() -> None:
    """The claim of the program is that dlprim does them all."""
    folders = [Path(it.__file__).parent for it in (dlprim.optim, dlprim.train)]
    sources = [source for folder in folders for source in folder.glob("*.py")]
    assert len(sources) > 10
    products = {"matmul", "dot", "vdot", "vecdot", "inner", "outer", "einsum", "tensordot"}
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            assert not isinstance(node, ast.MatMult), source
            assert not (isinstance(node, ast.Attribute) and node.attr in products), source


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("--epochs", "0", "an integer >= 1"),
        ("--epochs", "1.5", "an integer >= 1"),
        ("--batch-size", "0", "an integer >= 1"),
        ("--hidden", "0", "an integer from 1"),
        ("--hidden", "10000000000000", "an integer from 1"),
        ("--lr", "-1", "a finite number > 0"),
        ("--lr", "0", "a finite number > 0"),
        ("--lr", "nan", "a finite number > 0"),
        ("--lr", "inf", "a finite number > 0"),
        ("--momentum", "1", "a number >= 0 and < 1"),
        ("--noise", "nan", "a finite number >= 0"),
        ("--noise", "1e39", "a finite number >= 0 up to 1e12"),
        ("--seed", "-1", "an integer >= 0"),
        ("--threads", "0", "an integer >= 1"),
        ("--threads", "two", "an integer >= 1"),
    ],
)
def test_wrong_flag_is_refused(
    flag: str, value: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main([flag, value])
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"argument {flag}: expected {expected}" in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("place", ["missing/run.jsonl", "", "file/run.jsonl", "n" * 300])
def test_unwritable_result_file_is_refused_before_training(
    tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as stop:
        main(["--json", str(tmp_path / place)])
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"argument --json: {tmp_path / place} cannot be written" in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.usefixtures("digits")
def test_diverging_run_stops_and_leaves_the_earlier_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("earlier")
    assert main([*SMALL, "--lr", "1e30", "--json", str(path)]) == 1
    error = capsys.readouterr().err
    assert "The training loss is " in error
    assert "(first in the result of layer '1') in epoch 1, step 2 of 45" in error
    assert error.endswith(": a learning rate below 1e+30 may help.\n")
    assert path.read_text() == "earlier"


@pytest.mark.usefixtures("digits")
def test_interrupt_ends_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SGD, "step", interrupt)
    assert main([*SMALL]) == 130
    assert capsys.readouterr().err == "python -m dlprim.train: interrupted.\n"


def test_missing_scikit_learn_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert main([]) == 1
    error = capsys.readouterr().err
    assert 'pip install "dlprim[train]"' in error
    assert error.count("\n") == 1


# ---------------------------------------------------------------- the result file


def test_link_is_followed_and_rights_are_the_usual_ones(tmp_path: Path) -> None:
    ordinary = tmp_path / "ordinary"
    ordinary.write_text("earlier")
    link = tmp_path / "link"
    link.symlink_to(ordinary)
    check_writable(link)
    write_lines(link, [{"a": 1}, {"b": [2.5]}])
    assert link.is_symlink()
    assert ordinary.read_text() == '{"a": 1}\n{"b": [2.5]}\n'
    other = tmp_path / "other"
    other.touch()
    assert ordinary.stat().st_mode == other.stat().st_mode


def test_device_is_not_replaced() -> None:
    with pytest.raises(OSError, match="not a regular file"):
        check_writable(Path("/dev/null"))


def test_failed_write_leaves_the_earlier_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("earlier")
    with pytest.raises(ValueError, match="JSON compliant"):
        write_lines(path, [{"fine": 1.0}, {"bad": math.nan}])
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [
        ("run.jsonl", "earlier")
    ]
