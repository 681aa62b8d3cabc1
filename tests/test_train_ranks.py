"""The training program on several ranks: the same results, resumed runs, orderly ends."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlprim.tracing import parts
from dlprim.train import main
from dlprim.train.tasks import Shard
from mpi_launch import TESTS, launch

pytestmark = [pytest.mark.any_level, pytest.mark.slow]

# 64 samples of noise in 5 steps, the last of 8, which 3 ranks cannot share evenly.
DATA = ("--data", "synthetic", "--image-size", "6", "--epochs", "2", "--hidden", "16")
SMALL = (*DATA, "--lr", "0.02", "--batch-size", "7")
TOGETHER = (*DATA, "--lr", "0.02", "--global-batch", "14")
SAMPLES, STEPS = 64, 5


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def curve(path: Path) -> list[float]:
    return [it["train_loss"] for it in records(path) if it["record"] == "epoch"]


def train(ranks: int, path: Path, *flags: str) -> str:
    run = launch(ranks, "-m", "dlprim.train", *flags, "--json", str(path))
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_shards_are_a_partition() -> None:
    for count in (0, 1, 2, 5, 48):
        parts = [range(count)[Shard(rank, 3).of(count)] for rank in range(3)]
        assert [i for part in parts for i in part] == list(range(count))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(("ranks", "overlap"), [(2, "thread"), (3, "off")])
def test_ranks_learn_what_one_learns(tmp_path: Path, ranks: int, overlap: str) -> None:
    one, many = tmp_path / "one.jsonl", tmp_path / "many.jsonl"
    assert main([*TOGETHER, "--json", str(one)]) == 0
    flags = ("--overlap", overlap, "--bucket-mb", "0.001", "--baseline", str(one))
    stdout = train(ranks, many, *TOGETHER, *flags)
    np.testing.assert_allclose(curve(many), curve(one), rtol=1e-5)
    first, final = records(one)[-1], records(many)[-1]
    assert final["test_accuracy"] == pytest.approx(first["test_accuracy"], abs=0.07)
    assert final["samples"] == first["samples"] == 2 * SAMPLES
    assert final["config"]["batch_size"] == 14
    assert final["environment"]["ranks"] == ranks
    scaling = final["scaling"]
    assert scaling["ranks"] == ranks
    assert scaling["samples_per_s"] == pytest.approx(14 / scaling["step"])
    assert 0 < scaling["exposed"] < scaling["step"]
    assert scaling["efficiency"] > 0
    for line in ("rank 1 on ", "samples/s on ", "bus bandwidth", "scaling efficiency"):
        assert stdout.count(line) == 1, stdout


def test_batch_size_is_of_each_rank(tmp_path: Path) -> None:
    train(2, tmp_path / "run.jsonl", *SMALL)
    assert records(tmp_path / "run.jsonl")[-1]["config"]["batch_size"] == 14


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_check_compares_with_one_rank(ranks: int) -> None:
    run = launch(ranks, "-m", "dlprim.train", "--check", *TOGETHER)
    assert run.returncode == 0, run.stderr
    assert f"after 10 steps the parameters are the same bits on {ranks} rank(s)" in run.stdout
    assert "from those of one rank with the same global batch they differ by" in run.stdout


def test_language_models_and_batch_normalisation_run_on_ranks(tmp_path: Path) -> None:
    text = ("--model", "gru", "--hidden", "16", "--batch-size", "3", "--length", "8")
    run = launch(2, "-m", "dlprim.train", "--check", *text)
    assert run.returncode == 0, run.stderr
    assert "with the same global batch they differ by" in run.stdout
    flags = ("--model", "cnn", "--hidden", "8", *DATA[:4], "--epochs", "1")
    stdout = train(2, tmp_path / "cnn.jsonl", *flags)
    assert "final: test accuracy" in stdout


@pytest.mark.parametrize("ranks", [2, 3])
def test_synchronized_batch_normalization_is_that_of_one_rank(tmp_path: Path, ranks: int) -> None:
    model = (
        "--model",
        "cnn",
        "--hidden",
        "8",
        "16",
        *DATA[:4],
        "--sync-bn",
        "--global-batch",
        "14",
    )
    run = launch(ranks, "-m", "dlprim.train", "--check", *model)
    assert run.returncode == 0, run.stderr
    assert "with the same global batch they differ by" in run.stdout
    one, many = tmp_path / "one.jsonl", tmp_path / "many.jsonl"
    flags = (*model, "--epochs", "1", "--lr", "0.01")
    assert main([*flags, "--json", str(one)]) == 0
    train(ranks, many, *flags)
    np.testing.assert_allclose(curve(many), curve(one), rtol=1e-5)


# ---------------------------------------------------------------- checkpoints


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    path = tmp_path_factory.mktemp("whole") / "whole.jsonl"
    train(2, path, *TOGETHER)
    return curve(path)


@pytest.mark.parametrize(
    ("way", "status"), [("error", 1), ("kill", None), ("interrupt", None), ("nan", 1)]
)
def test_stopped_run_is_resumed(
    tmp_path: Path, uninterrupted: list[float], way: str, status: int | None
) -> None:
    resumed = tmp_path / "resumed.jsonl"
    flags = (*TOGETHER, "--checkpoint", str(tmp_path / "kept"))
    run = launch(2, str(TESTS / "mpi_train.py"), way, str(STEPS + 2), *flags)
    assert run.returncode != 0
    assert status is None or run.returncode == status
    said = {
        "error": "python -m dlprim.train: rank 1 of 2 on .*: the disk is gone",
        "nan": r"python -m dlprim.train: The training loss is nan .*in epoch 2, step 3 of 5",
        "interrupt": "python -m dlprim.train: interrupted.",
        "kill": "",
    }[way]
    assert re.search(said, run.stderr), run.stderr
    assert run.stderr.count("python -m dlprim.train: ") <= 1
    stdout = train(2, resumed, *flags, "--resume")
    step = STEPS + 3 if way == "interrupt" else STEPS
    assert f"resumed after step {step} of 10" in stdout
    assert curve(resumed) == uninterrupted


@pytest.mark.parametrize("step", [STEPS, 2 * STEPS])
def test_stop_at_an_epochs_end_loses_nothing(
    tmp_path: Path, uninterrupted: list[float], step: int
) -> None:
    """The signal comes to the last rank alone, before the loss that tells the others of it."""
    resumed = tmp_path / "resumed.jsonl"
    flags = (*TOGETHER, "--checkpoint", str(tmp_path / "kept"))
    run = launch(2, str(TESTS / "mpi_train.py"), "terminate", str(step - 1), *flags)
    assert run.returncode == 143, run.stderr
    assert run.stderr.count("python -m dlprim.train: terminated.") == 1
    assert f"resumed after step {step} of 10" in train(2, resumed, *flags, "--resume")
    assert curve(resumed) == uninterrupted
    assert [it["epoch"] for it in records(resumed)[:-1]] == [1, 2]


def test_run_is_resumed_on_another_number_of_ranks(tmp_path: Path) -> None:
    whole, resumed = tmp_path / "whole.jsonl", tmp_path / "resumed.jsonl"
    flags = ("--model", "gru", "--hidden", "16", "--global-batch", "6", "--length", "8")
    flags += ("--epochs", "2", "--steps", "4")
    train(2, whole, *flags)
    flags += ("--checkpoint", str(tmp_path / "kept"))
    run = launch(2, str(TESTS / "mpi_train.py"), "error", "5", *flags)
    assert run.returncode == 1
    assert "resumed after step 4 of 8" in train(3, resumed, *flags, "--resume")
    np.testing.assert_allclose(curve(resumed), curve(whole), rtol=1e-5)


def test_what_rounding_owes_is_in_the_checkpoint(tmp_path: Path) -> None:
    whole, resumed, kept = (tmp_path / name for name in ("whole", "resumed", "kept"))
    flags = (*TOGETHER, "--wire", "bfloat16", "--bucket-mb", "0.001")
    train(2, whole, *flags)
    flags += ("--checkpoint", str(kept))
    run = launch(2, str(TESTS / "mpi_train.py"), "error", str(STEPS + 2), *flags)
    assert run.returncode == 1
    before = (kept / "checkpoint.npz").read_bytes()
    train(2, resumed, *flags, "--resume")
    assert curve(resumed) == curve(whole)
    for ranks in (1, 2, 3):  # a test reads no messages
        run = launch(ranks, "-m", "dlprim.train", *TOGETHER, "--checkpoint", str(kept), "--eval")
        assert run.returncode == 0, run.stderr
        assert "rounding" not in run.stderr
    for other in (("--wire", "float32"), ("--bucket-mb", "1")):
        (kept / "checkpoint.npz").write_bytes(before)
        run = launch(2, "-m", "dlprim.train", *flags, "--resume", *other)
        assert run.returncode == 0, run.stderr
        assert run.stderr.count("what rounding took from messages begins at zero") == 1
        differs = "of a run with gradients exchanged in bfloat16, not exchanged in float32: from"
        assert run.stderr.count(differs) == (other[0] == "--wire")


def test_batch_normalisation_of_other_ranks_is_told(tmp_path: Path) -> None:
    kept = ("--checkpoint", str(tmp_path / "kept"))
    flags = ("--model", "cnn", *DATA, "--hidden", "8", "--epochs", "1", "--steps", "2")
    train(2, tmp_path / "run.jsonl", *flags, "--global-batch", "8", *kept)
    differs = "of a run with batch normalisation over each rank, not over all ranks: from here on"
    for ranks, more, told in ((2, (), 0), (2, ("--sync-bn",), 1), (1, (), 1)):
        run = launch(ranks, "-m", "dlprim.train", *kept, "--resume", *more)
        assert run.returncode == 0, run.stderr
        assert run.stderr.count(differs) == told


# ---------------------------------------------------------------- ends and refusals


@pytest.mark.parametrize(
    ("flags", "where"),
    [
        ((), "the reduction of gradients"),
        (("--model", "cnn", "--sync-bn"), "the statistics of batch normalisation"),
    ],
    ids=["gradients", "statistics"],
)
def test_stalled_rank_ends_the_job(flags: tuple[str, ...], where: str) -> None:
    mishap = (str(TESTS / "mpi_train.py"), "stall", "3")
    run = launch(2, *mishap, *SMALL, *flags, "--timeout", "1")
    assert run.returncode == 1
    said = f"rank 0 of 2 on .*: waited 1 seconds for the other ranks in {where}"
    assert re.search(said, run.stderr), run.stderr


@pytest.mark.parametrize(("place", "name"), [(0, "wire"), (1, "lr")])
def test_flags_of_one_rank_are_told(place: int, name: str) -> None:
    """As under a launcher that starts ranks with commands of their own."""
    run = launch(2, str(TESTS / "mpi_train.py"), "flags", str(place), *SMALL)
    assert run.returncode == 1
    said = f"The ranks have different settings: rank 0 on .* has (no )?{name}.*, rank 1 on .* has "
    assert re.search(said, run.stderr), run.stderr
    assert run.stderr.count("python -m dlprim.train: ") == 1


def test_mistake_in_the_program_shows_where_it_is() -> None:
    run = launch(2, str(TESTS / "mpi_train.py"), "bug", "3", *SMALL)
    assert run.returncode == 1
    assert "KeyError: 'forgotten'" in run.stderr
    assert "in mishap" in run.stderr


@pytest.mark.parametrize(
    ("flags", "status", "said"),
    [
        (("--batch-size", "0"), 2, "argument --batch-size: expected an integer >= 1, got '0'"),
        (("--global-batch", "1"), 2, "argument --global-batch: expected 2, one sample per rank"),
        (("--checkpoint", "/nowhere", "--resume"), 1, "nothing to resume"),
        (("--baseline", "/nowhere.jsonl"), 1, "No such file or directory"),
        (("--data", "/nowhere.npz"), 1, "cannot be read as an .npz file"),
        (("--sync-bn", *DATA), 1, "--sync-bn: the model mlp has no batch normalisation"),
    ],
)
def test_refusals_are_one_line_of_one_rank(flags: tuple[str, ...], status: int, said: str) -> None:
    run = launch(2, "-m", "dlprim.train", *flags)
    assert run.returncode == status
    assert run.stderr.count("python -m dlprim.train: ") == 1, run.stderr
    assert said in run.stderr
    assert run.stdout.count("epoch") == 0


def test_ceiling_and_prediction_are_printed(tmp_path: Path) -> None:
    run = launch(2, "-m", "dlprim.train", "--allreduce-only", "100000")
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("allreduce of 100000 bytes on 2 ranks: ")
    stdout = train(1, tmp_path / "run.jsonl", *SMALL, "--predict-scaling", "--bandwidth", "3")
    assert "nodes  step ms" in stdout
    assert re.search(r"^ 1024 ", stdout, re.MULTILINE)


@pytest.mark.parametrize("flags", [(), ("--predict-scaling",)], ids=str)
def test_only_a_prediction_asks_one_rank_when_gradients_were_ready(
    flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    def run_telling(network: Any, out: Any, tell: Any, run: Any) -> Any:
        return original(network, out, lambda it: (told.append(it), tell(it)), run)

    original = parts.run_telling
    monkeypatch.setattr(parts, "run_telling", run_telling)
    assert main([*SMALL, "--steps", "3", "--epochs", "1", *flags]) == 0
    assert len(told) == (3 * 4 if flags else 0)  # steps, and parameters of two layers
