"""The folder of checkpoints: tried first, of one run at a time, and what a resumed run takes of it.

What happens when a disk is full is seen on a real one of a few blocks, where root may mount it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from dlprim.train import checkpoint, main
from dlprim.train.folder import FILE, LOCK

pytestmark = [
    pytest.mark.any_level,
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("sklearn") is None, reason="the digits data set is part of scikit-learn"
    ),
]

MLP = ("--hidden", "16", "--epochs", "2", "--steps", "3")
LONG = ("--hidden", "16", "--epochs", "100000", "--steps", "1")


def started(*flags: str) -> subprocess.Popen[str]:
    """A run in a process of its own, which has written its first checkpoint."""
    command = [sys.executable, "-m", "dlprim.train", *flags]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    path = Path(flags[flags.index("--checkpoint") + 1]) / FILE
    end = time.monotonic() + 60
    while not path.exists() and run.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    return run


def refusal(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    """What is said instead of training."""
    assert main(flags) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


# ---------------------------------------------------------------- one run at a time


def test_folder_in_use_is_refused_and_a_killed_run_blocks_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = ("--checkpoint", str(tmp_path))
    run = started(*LONG, *kept)
    try:
        for flags in ((*MLP, *kept), (*kept, "--resume")):
            said = refusal(capsys, *flags)
            assert f"{tmp_path} is in use by another run (process {run.pid} on " in said
        assert main([*kept, "--eval"]) == 0  # which only reads
    finally:
        run.send_signal(signal.SIGKILL)
        run.communicate()
    before = checkpoint.read(tmp_path / FILE)[0]["step"]
    run = started(*LONG, *kept, "--resume")
    try:
        end = time.monotonic() + 60
        while checkpoint.read(tmp_path / FILE)[0]["step"] == before and time.monotonic() < end:
            time.sleep(0.05)
    finally:
        run.terminate()
        run.communicate()
    assert checkpoint.read(tmp_path / FILE)[0]["step"] > before
    assert [it.name for it in tmp_path.iterdir()] == [FILE]


def test_what_killed_runs_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".dlprim-0123456789abcdef.tmp").write_bytes(b"half")
    (tmp_path / LOCK).write_text("process 1 on nowhere\n")
    (tmp_path / "mine.tmp").touch()
    assert main([*MLP, "--checkpoint", str(tmp_path)]) == 0
    assert sorted(it.name for it in tmp_path.iterdir()) == [FILE, "mine.tmp"]


def test_file_system_without_locks_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(38, os.strerror(38))

    monkeypatch.setattr(fcntl, "flock", flock)
    assert main([*MLP, "--checkpoint", str(tmp_path)]) == 0
    assert f"{LOCK} cannot be locked (Function not implemented)" in capsys.readouterr().err


def test_checkpoint_of_an_earlier_run_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = (*MLP, "--checkpoint", str(tmp_path))
    assert main(flags) == 0
    capsys.readouterr()
    before = (tmp_path / FILE).read_bytes()
    for other in ((), ("--seed", "1")):
        said = refusal(capsys, *flags, *other)
        assert f"{tmp_path / FILE} is of an earlier run: expected --resume to go on" in said
    assert (tmp_path / FILE).read_bytes() == before
    assert [it.name for it in tmp_path.iterdir()] == [FILE]


# ---------------------------------------------------------------- tried before the first step


def test_folder_that_cannot_be_written_is_refused_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "taken" / FILE).mkdir(parents=True)
    cases = {
        "/dev/null": "--checkpoint: /dev/null is no folder",
        str(tmp_path / "file" / "kept"): "kept cannot be written: Not a directory",
        "/proc/kept": "--checkpoint: /proc/kept cannot be written: No such file",
        str(tmp_path / "taken"): "it exists and is not a regular file",
    }
    for folder, expected in cases.items():
        assert expected in refusal(capsys, *MLP, "--checkpoint", folder)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "dlprim", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command, so that no small disk can be made")
    if done.returncode != 0:
        pytest.skip(f"no small disk can be mounted: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(path: Path) -> None:
    """Until the disk has no block left."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


@pytest.mark.parametrize("first_fits", [True, False])
def test_really_full_disk_spoils_nothing(
    first_fits: bool,
    small_disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first checkpoint fits, or none does; then the disk is full to the last block."""
    flags = (*MLP, "--epochs", "3", "--checkpoint", str(small_disk))
    saves = []
    save = checkpoint.save

    def save_on_a_full_disk(*arguments: object) -> None:
        saves.append(arguments)
        if len(saves) == 1 + first_fits:
            fill(small_disk / "fill")
        save(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoint, "save", save_on_a_full_disk)
    assert main(flags) == 0
    said = capsys.readouterr().err
    assert said.count("No space left on device; training goes on and") == 3 - first_fits
    then = "the earlier one stays." if first_fits else "there is none yet."
    assert said.count(then) == 3 - first_fits
    left = [FILE, "fill"] if first_fits else ["fill"]
    assert sorted(it.name for it in small_disk.iterdir()) == left
    if first_fits:
        assert checkpoint.read(small_disk / FILE)[0]["step"] == 3


# ---------------------------------------------------------------- its configuration


def test_resume_and_eval_take_the_configuration_from_the_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--model", "cnn", "--hidden", "8", "--batch-size", "9", "--epochs", "2")
    flags += ("--steps", "2", "--seed", "3", "--lr", "0.05")
    kept = ("--checkpoint", str(tmp_path / "kept"))
    assert main([*flags, *kept, "--json", str(tmp_path / "run.jsonl")]) == 0
    for more in ("--eval", "--resume"):
        path = tmp_path / f"{more}.jsonl"
        assert main([*kept, more, "--json", str(path)]) == 0
        expected, found = (
            json.loads(it.read_text().splitlines()[-1]) for it in (tmp_path / "run.jsonl", path)
        )
        assert found["config"] == expected["config"]
        assert found["test_accuracy"] == expected["test_accuracy"]
        capsys.readouterr()
        assert main([*kept, more, "--batch-size", "9", "--model", "cnn"]) == 0
        capsys.readouterr()
        said = refusal(capsys, *kept, more, "--model", "lstm", "--hidden", "8", "--lr", "0.1")
        assert f"{FILE} is of a run with model cnn, not lstm, lr 0.05, not 0.1" in said
