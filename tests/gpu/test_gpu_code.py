"""Every kind of kernel compiled for sm_80, sm_90 and gfx942, which needs none of these GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# isort: split
import gpu_peers  # noqa: F401 (skips where Triton is missing)

pytestmark = pytest.mark.any_level
PROGRAM = Path(__file__).parent / "compile_all.py"
# Bytes of shared memory that a block may have.
SHARED = {"sm_80": 163 * 1024, "sm_90": 227 * 1024, "gfx942": 64 * 1024}


@pytest.mark.parametrize("target", SHARED)
def test_kernels_have_the_matrix_instruction_and_spill_nothing(target: str, tmp_path: Path) -> None:
    own = {name: it for name, it in os.environ.items() if name != "TRITON_INTERPRET"}
    own["TRITON_CACHE_DIR"] = str(tmp_path)
    run = subprocess.run(
        [sys.executable, PROGRAM, target], env=own, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    records: list[dict[str, Any]] = list(map(json.loads, run.stdout.splitlines()))
    assert len(records) >= 40
    wanted = {"sm_80": "mma.sync", "sm_90": "wgmma.mma_async", "gfx942": "v_mfma"}[target]
    assert [it for it in records if it["spills"]] == []
    assert [it for it in records if it["is_matrix"] and wanted not in it["found"]] == []
    assert [it for it in records if it["shared"] > SHARED[target]] == []
