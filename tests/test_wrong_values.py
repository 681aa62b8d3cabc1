"""Nothing public crashes on a value of the wrong kind, or answers to it in the core's words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_level


@pytest.mark.parametrize("program", ["wrong_values.py", "wrong_operands.py"])
def test_wrong_values_are_refused_in_words(program: str) -> None:
    run = subprocess.run(
        [sys.executable, str(Path(__file__).parent / program)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
