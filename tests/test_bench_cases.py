"""The benchmark of small models measures what agrees, and names what does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="models are made with it")
pytest.importorskip("onnxruntime", reason="it is what cases are run by, and the peer")
pytestmark = pytest.mark.any_level

BENCH = Path(__file__).parent.parent / "bench"

if not (BENCH / "bench_cases.py").exists():
    pytest.skip(f"{BENCH} holds no benchmarks", allow_module_level=True)

SCRIPT = """
import numpy as np
import onnx.parser
import onnxruntime

text = '<ir_version: 8, opset_import: ["" : 17]> net (float[N] x) => (float[N] y) { y = Relu(x) }'
model = onnx.parser.parse_model(text).SerializeToString()
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
session.run(None, {"x": np.ones(64, np.float32)})
print("what scripts say is left out")
"""
# A library whose results are wrong.
SPOILT = """
import sys
import bench_cases

sides = bench_cases.dlprim.onnx.load

class Spoilt:
    def __init__(self, model):
        self.model = sides(model)

    def run(self, feed):
        return [it + 1 for it in self.model.run(feed)]

bench_cases.dlprim.onnx.load = Spoilt
bench_cases.main()
"""


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    (folder / "single.py").write_text(SCRIPT)
    flags = [str(folder), "--rounds", "2", "--json", str(folder / "records.jsonl")]
    return subprocess.run(
        [sys.executable, *command, *flags], capture_output=True, text=True, check=False, cwd=BENCH
    )


def test_a_case_is_measured(tmp_path: Path) -> None:
    done = run(tmp_path, "bench_cases.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 cases, geometric mean" in done.stdout
    assert "left out" not in done.stdout
    record = json.loads((tmp_path / "records.jsonl").read_text())
    assert record["name"] == "single 0: Relu of 64"
    assert record["ratio"] > 0


def test_results_that_differ_are_not_timed(tmp_path: Path) -> None:
    done = run(tmp_path, "-c", SPOILT)
    assert "left out  single 0: Relu of 64: the results differ" in done.stdout
    assert done.returncode == 2
