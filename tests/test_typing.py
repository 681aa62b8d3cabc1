"""A user's program finds dlprim typed: mypy and pyright, strict, have nothing to say of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dlprim
from conftest import RunPython

pytestmark = pytest.mark.any_level

PROGRAM = Path(__file__).with_name("typed_program.py")
PACKAGES = Path(dlprim.__file__).parent.parent


def checked(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """The program beside nothing but the package that these tests test."""
    shutil.copy(PROGRAM, folder)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_program_runs(run_python: RunPython) -> None:
    run = run_python(f"import runpy; runpy.run_path({str(PROGRAM)!r}, run_name='__main__')")
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines()[0] == "first.weight (4, 8) float32"


@pytest.mark.slow
def test_mypy_finds_nothing(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="pip install 'dlprim[lint]' for mypy")
    where = "" if PACKAGES.name == "site-packages" else f"mypy_path = {PACKAGES}\n"
    settings = f"[mypy]\nstrict = true\nfollow_imports = silent\n{where}"
    (tmp_path / "mypy.ini").write_text(settings)
    options = ("--no-incremental", "--python-executable", sys.executable, PROGRAM.name)
    run = checked(tmp_path, sys.executable, "-m", "mypy", *options)
    assert run.stdout == "Success: no issues found in 1 source file\n"


@pytest.mark.slow
def test_pyright_finds_nothing(tmp_path: Path) -> None:
    pyright = shutil.which("pyright", path=Path(sys.executable).parent)
    if pyright is None:
        pytest.skip("pyright is not installed")
    (tmp_path / "pyrightconfig.json").write_text(
        f'{{"typeCheckingMode": "strict", "extraPaths": ["{PACKAGES}"]}}'
    )
    run = checked(tmp_path, pyright, "--pythonpath", sys.executable, PROGRAM.name)
    assert run.stdout.splitlines()[-1].startswith("0 errors, 0 warnings"), run.stdout
