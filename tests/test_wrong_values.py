"""No public callable crashes on, or answers in the core's words to, a value of the wrong kind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_wrong_values_are_refused_in_words() -> None:
    program = Path(__file__).parent / "wrong_values.py"
    run = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
