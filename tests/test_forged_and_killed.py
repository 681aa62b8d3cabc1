"""A few of the files that `soak_forged.py` and `soak_killed.py` make by the thousand at night."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_level

pytest.importorskip("onnx.parser", reason="onnx makes the models that are forged here")


def run(program: str, count: int, kind: str) -> str:
    path = Path(__file__).parent / program
    command = [sys.executable, str(path), str(count), kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("kind", ["schedules", "external"])
def test_forged_files_end_in_a_sentence(kind: str) -> None:
    assert "of 25 refused" in run("soak_forged.py", 25, kind)


def test_killed_writers_leave_whole_files() -> None:
    assert "3 killed, whole each time" in run("soak_killed.py", 3, "networks")
