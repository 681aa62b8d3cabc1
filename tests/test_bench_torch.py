"""The benchmark of `torch.compile` refuses what it cannot measure, and verifies before it times."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_level

BENCH = Path(__file__).parent.parent / "bench"

if not (BENCH / "bench_torch.py").exists():
    pytest.skip(f"{BENCH} holds no benchmarks", allow_module_level=True)

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is what is measured"
)
needs_transformers = pytest.mark.skipif(
    any(importlib.util.find_spec(it) is None for it in ("torch", "transformers")),
    reason="torch and transformers have the models",
)
TINY = ("--tiny", "--threads", "1", "--rounds", "2", "--batch", "2")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, cwd=BENCH
    )


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--rounds", "1"), "--rounds: expected an integer >= 2, got '1'"),
        (("--batch", "0"), "--batch: expected an integer >= 1, got '0'"),
        (("--dropout", "1"), "--dropout: expected a number from 0 to under 1, got '1'"),
        (("--models", "alexnet"), "--models: invalid choice: 'alexnet'"),
    ],
    ids=lambda it: it[0] if isinstance(it, tuple) else "",
)
def test_what_cannot_be_measured_is_refused(flags: tuple[str, str], said: str) -> None:
    done = run("bench_torch.py", *flags)
    assert done.returncode == 2
    assert said in done.stderr


def measure(tmp_path: Path, *flags: str) -> list[dict]:
    to = tmp_path / "records.jsonl"
    done = run("bench_torch.py", *TINY, "--sides", "dlprim", "eager", *flags, "--json", str(to))
    assert done.returncode == 0, done.stdout + done.stderr
    records = [json.loads(line) for line in to.read_text().splitlines()]
    for record in records:
        assert set(record["ratios"]) == {"eager", "best"}
        for side in ("dlprim", "eager"):
            found = record[side]
            assert set(found) == {"first", "seconds", "of_peak", "memory"}
            assert found["seconds"] > 0
            assert found["memory"] > 1 << 26
    return records


@needs_torch
def test_a_tiny_unet_is_verified_and_measured(tmp_path: Path) -> None:
    records = measure(tmp_path, "--models", "unet", "--dtypes", "float32")
    assert [it["mode"] for it in records] == ["training", "inference"]


@needs_transformers
@pytest.mark.slow
def test_a_tiny_bert_is_verified_and_measured(tmp_path: Path) -> None:
    """With masks of dropout, which are PyTorch's."""
    flags = ("--models", "bert_base", "--dtypes", "bfloat16", "--modes", "training")
    assert [it["model"] for it in measure(tmp_path, *flags)] == ["bert_base"]


STEPS = """
from torch_cases import MODELS
from torch_sides import Runner

for name in MODELS:
    loss, = Runner('eager', name, True, False, 2, True, 0.1).step()
    print(name, loss.shape, 0 < loss < 10)
"""


@needs_transformers
def test_every_model_has_scores_for_its_targets() -> None:
    done = run("-c", STEPS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("() True") == 11


@needs_transformers
@pytest.mark.slow
@pytest.mark.parametrize("model", ["bert_base", "gpt2_small", "vit_b16", "mlp_64", "digits"])
def test_steps_of_own_models_begin_with_the_loss_of_pytorch(model: str, tmp_path: Path) -> None:
    to = tmp_path / "records.jsonl"
    what = ("--models", model, "--modes", "training", "--dropout", "0", "--sides", "step", "eager")
    done = run("bench_torch.py", *TINY, *what, "--json", str(to))
    assert done.returncode == 0, done.stdout + done.stderr
    for record in map(json.loads, to.read_text().splitlines()):
        assert set(record["step_ratios"]) == {"eager", "best"}


# A side whose first gradient is 5 % too large.
SPOILT = """
import numpy as np
from bench_torch import Row, verify
from threads_sides import Side

class Spoilt:
    def __init__(self, name, by):
        self.side, self.by = Side(name), by

    def ask(self, do, to):
        np.savez(to, np.array(2.0), np.array([self.by, 0.5]))

verify(Row("unet", "float32", "training"), [Spoilt("dlprim", 1.05), Spoilt("eager", 1.0)], 0.0)
"""


def test_sides_that_do_not_agree_are_not_timed() -> None:
    done = run("-c", SPOILT)
    assert done.returncode == 1
    assert "unet training by dlprim: wrong result" in done.stderr


@needs_torch
def test_operations_of_products_are_counted() -> None:
    """By hand: an LSTM's and its decoder's."""
    code = (
        "from torch_sides import Runner, flops\n"
        "it = Runner('dlprim', 'lstm', True, False, 3, True, 0.0)\n"
        "print(flops(it.case))"
    )
    done = run("-c", code)
    assert done.returncode == 0, done.stderr
    rows, embedded, hidden, characters = 8 * 3, 64, 16, 97
    products = rows * (4 * hidden * (embedded + hidden) + hidden * characters)
    assert float(done.stdout) == 3 * 2 * products
