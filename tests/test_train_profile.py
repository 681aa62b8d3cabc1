"""`--profile`: the mean is of steps that only compute, and of all where there are no others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dlprim.train import main
from dlprim.train.profiling import Profile

pytestmark = pytest.mark.any_level

FLAGS = ("--model", "cnn", "--data", "synthetic", "--image-size", "8", "--hidden", "8")


@pytest.mark.parametrize(("epochs", "steps", "said"), [(1, 5, "3 steps after 2"), (3, 1, "1 ste")])
@pytest.mark.parametrize("slow", [False, True])
def test_first_steps_are_left_out(
    epochs: int,
    steps: int,
    said: str,
    slow: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    after_step = Profile.after_step

    def after_slow_step(self: Profile, others_follow: bool) -> None:
        if self._seen < 2 and slow:
            for work in self.work.values():
                work.seconds += 1000
        after_step(self, others_follow)

    monkeypatch.setattr(Profile, "after_step", after_slow_step)
    path = tmp_path / "run.jsonl"
    count = ("--epochs", str(epochs), "--steps", str(steps))
    assert main([*FLAGS, *count, "--profile", "--json", str(path)]) == 0
    found = [json.loads(line) for line in path.read_text().splitlines()]
    profiled = [it for it in found if it["record"] == "profile"]
    assert len(profiled) > 10
    assert max(it["seconds_per_step"] for it in profiled) < 100
    passes = {it["pass"]: it["flops_per_step"] for it in profiled if it["layer"] == "fc"}
    assert passes["forward"] == 2 * 32 * 8 * 1000
    assert f"mean of {said}" in capsys.readouterr().out


@pytest.mark.parametrize("steps", [1, 2])
def test_few_steps_are_all_there_is(
    steps: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.jsonl"
    count = ("--epochs", "1", "--steps", str(steps))
    assert main([*FLAGS, *count, "--profile", "--json", str(path)]) == 0
    assert f"mean of {steps} steps; peak" in capsys.readouterr().out
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert any(it["record"] == "profile" and it["pass"] == "forward" for it in records)
