"""What ``python -m dlprim`` says of the machine, and the templates that ask for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dlprim
from conftest import RunPython
from dlprim import hardware

pytestmark = pytest.mark.any_level

TEMPLATES = Path(__file__).parent.parent / ".github" / "ISSUE_TEMPLATE"
PARTS = [
    "dlprim", "Python", "installed beside it", "system", "CPU", "caches", "control group",
    "OpenMP runtimes loaded", "environment",
]  # fmt: skip


def report(run_python: RunPython, *options: str, **variables: str) -> dict[str, str]:
    """Lines by what they begin with."""
    run = run_python(
        f"from dlprim.__main__ import main; raise SystemExit(main({list(options)}))", **variables
    )
    assert (run.returncode, run.stderr) == (0, "")
    lines = run.stdout.splitlines()
    found = dict(zip(PARTS, lines, strict=True))
    assert [line for part, line in found.items() if not line.startswith(part)] == []
    return found


def test_the_report_names_versions_machine_and_variables(run_python: RunPython) -> None:
    found = report(run_python, DLPRIM_NUM_THREADS="3", DLPRIM_TUNE="0", OMP_WAIT_POLICY="passive")
    assert found["dlprim"].startswith(f"dlprim {dlprim.__version__}, {dlprim.isa()}, 3 threads (")
    assert f"numpy {np.__version__}" in found["Python"]
    assert hardware.cpu_name() in found["CPU"]
    assert "DLPRIM_NUM_THREADS=3 DLPRIM_TUNE=0" in found["environment"]
    assert "OMP_WAIT_POLICY=passive" in found["environment"]


def test_an_openmp_runtime_is_seen(run_python: RunPython, tmp_path: Path) -> None:
    """A module that loads one, as a program's own imports do."""
    load = "import ctypes; ctypes.CDLL('libgomp.so.1')"
    if run_python(load).returncode:
        pytest.skip("this system has no libgomp.so.1")
    (tmp_path / "loads_openmp.py").write_text(f"{load}\n")
    found = report(run_python, "--beside", "loads_openmp", PYTHONPATH=path_with(tmp_path))
    assert "/libgomp" in found["OpenMP runtimes loaded"]
    assert "/libgomp" not in report(run_python)["OpenMP runtimes loaded"]


def path_with(folder: Path) -> str:
    """For a process that finds modules in this folder, and dlprim where this one has it."""
    return f"{folder}:{Path(dlprim.__file__).parent.parent}"


def test_what_cannot_be_imported_is_a_wrong_argument() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "dlprim", "--beside", "no_such_module"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stdout) == (2, "")
    assert "argument --beside: No module named 'no_such_module'" in run.stderr


@pytest.mark.parametrize(
    ("group", "files", "expected"),
    [
        ("0::/", {"cpu.max": "max 100000", "memory.max": "max"}, []),
        (
            "0::/jobs/one",
            {
                "jobs/one/cpu.max": "150000 100000",
                "jobs/cpu.max": "max 100000",
                "jobs/memory.max": str(3 << 30),
            },
            ["cpu.max 150000 100000", "memory.max 3072 MiB"],
        ),
        (
            "4:memory:/jobs\n2:cpu,cpuacct:/jobs\n1:name=systemd:/\n0::/",
            {
                "cpu,cpuacct/jobs/cpu.cfs_quota_us": "50000",
                "cpu,cpuacct/jobs/cpu.cfs_period_us": "100000",
                "cpu,cpuacct/cpu.cfs_quota_us": "-1",
                "memory/jobs/memory.limit_in_bytes": str(1 << 30),
                "memory/memory.limit_in_bytes": str((1 << 63) - 4096),
            },
            ["memory.limit_in_bytes 1024 MiB", "cpu.cfs_quota_us 50000 of 100000"],
        ),
        (None, {}, []),
    ],
)
def test_limits_of_control_groups(
    tmp_path: Path, group: str | None, files: dict[str, str], expected: list[str]
) -> None:
    if group is not None:
        files = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
        files |= {"proc/self/cgroup": group}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert hardware.group_limits(tmp_path) == expected


def test_every_template_asks_for_the_report() -> None:
    templates = [it for it in TEMPLATES.glob("*.yml") if it.stem != "config"]
    if not TEMPLATES.is_dir():
        pytest.skip("these tests lie in no checkout")
    assert len(templates) == 3
    asked = "Output of `python -m dlprim`"
    assert [it.name for it in templates if asked not in it.read_text()] == []
