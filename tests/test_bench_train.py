"""The benchmark of whole networks refuses what it cannot measure, and verifies before it times."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import dlprim

pytestmark = pytest.mark.any_level

BENCH = Path(__file__).parent.parent / "bench"

if not (BENCH / "bench_train.py").exists():
    pytest.skip(f"{BENCH} holds no benchmarks", allow_module_level=True)

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is the other side: pip install torch"
)
SMALL = ("--models", "lstm", "--batch", "4", "--hidden", "16", "--threads", "1")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, cwd=BENCH
    )


@pytest.mark.parametrize(
    "flags",
    [
        ("--rounds", "0"),
        ("--rounds", "-1"),
        ("--rounds", "1"),
        ("--steps", "0"),
        ("--hidden", "0"),
        ("--batch", "0"),
        ("--batch", "-4"),
    ],
)
def test_flags_that_measure_nothing_are_refused(flags: tuple[str, str]) -> None:
    done = run("bench_train.py", *flags)
    least = 2 if flags[0] == "--rounds" else 1
    assert done.returncode == 2
    said = f"argument {flags[0]}: expected an integer >= {least}, got '{flags[1]}'"
    assert said in done.stderr


@needs_torch
def test_speed_is_a_fraction_of_the_peak_and_a_ratio() -> None:
    done = run("bench_train.py", *SMALL, "--parts", "speed", "--rounds", "2")
    assert done.returncode == 0, done.stderr
    fraction = "nan" if dlprim.isa() == "scalar" else "0."  # without vectors there is no peak
    figures = 2 if "left out: PyTorch has no bfloat16 LSTM" in done.stdout else 4
    assert done.stdout.count(f"of the FMA peak {fraction}") == figures
    assert done.stdout.count("ratio ") == figures


# Sides with other weights, and a loss that is 5 % too large.
SPOILT = """
from bench_train import verified
from torch_peer import load_torch
from train_case import Ours, Setting, Theirs, batch_of

torch = load_torch(1)
setting = Setting("gru", "bfloat16", batch=4, hidden=16)
ours = Ours(setting)
state = ours.model.state_dict()
if WHAT == "training":
    train = ours.train
    ours.train = lambda src, targets: 1.05 * train(src, targets)
else:
    state = None
verified(ours, Theirs(torch, setting, state), *batch_of(setting, 0))
"""


@needs_torch
@pytest.mark.parametrize("what", ["inference", "training"])
def test_sides_that_do_not_agree_are_not_timed(what: str) -> None:
    done = run("-c", f"WHAT = {what!r}\n{SPOILT}")
    assert done.returncode == 1
    assert f"gru {what}: wrong result" in done.stderr
