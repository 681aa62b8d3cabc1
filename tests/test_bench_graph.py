"""The benchmark of networks from files refuses what it cannot measure and runs its smallest row."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

import dlprim

pytestmark = pytest.mark.any_level

BENCH = Path(__file__).parent.parent / "bench"
_NEEDED = ("torch", "onnxscript", "onnxruntime", "transformers")

if not (BENCH / "bench_graph.py").exists():
    pytest.skip(f"{BENCH} holds no benchmarks", allow_module_level=True)
if dlprim.isa() == "scalar":
    pytest.skip("the benchmark measures vector levels only", allow_module_level=True)


def run(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "bench_graph.py", *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=BENCH)


@pytest.mark.parametrize(
    "flags",
    [("--rounds", "1"), ("--peers-only", "--peers"), ("--types", "int4"), ("--peers", "numpy")],
)
def test_what_cannot_be_measured_is_refused(flags: tuple[str, ...]) -> None:
    done = run(*flags)
    assert done.returncode == 2
    assert "error: " in done.stderr


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in _NEEDED),
    reason=f"{', '.join(_NEEDED)} make the files that are measured",
)
def test_the_smallest_network_is_verified_and_measured(tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    done = run(
        "--quick", "--models", "MLP_1", "--types", "float32", "int8", "--peers", "onnxruntime",
        "--rounds", "2", "--cache", str(tmp_path), "--json", str(records),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in records.read_text().splitlines()]
    assert [row["dtype"] for row in rows] == ["float32", "int8"]
    for row in rows:
        assert set(row["milliseconds"]) == {"dlprim", "onnxruntime"}
        assert row["best_peer"] == "onnxruntime"
