"""What is said where the package `onnx` is missing, lacks what it needs, or is another one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_level

LOAD = "import dlprim.onnx; dlprim.onnx.load(b'no model')"
# Python finds no package of this name outside of the folder that it is run in.
HIDDEN = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == "onnx":
            raise ModuleNotFoundError("No module named 'onnx'", name="onnx")

sys.meta_path.insert(0, Hidden())
"""


@pytest.mark.parametrize(
    ("files", "before", "expected"),
    [
        ({}, HIDDEN, "needs the package onnx: pip install onnx"),
        (
            {"onnx/__init__.py": "import no_such_protobuf"},
            "",
            "the package onnx, which is there, but cannot be imported: No module named "
            "'no_such_protobuf'",
        ),
        ({"onnx/__init__.py": ""}, "", "onnx/__init__.py stands under that name: rename it or run"),
    ],
    ids=["missing", "lacks", "other"],
)
def test_what_is_wrong_is_named(
    files: dict[str, str], before: str, expected: str, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {LOAD}"
    run = subprocess.run(
        [sys.executable, "-c", before + program], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].startswith("ImportError: dlprim.onnx needs the package onnx")
    assert expected in run.stderr
