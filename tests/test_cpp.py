"""The C++ side: its own tests, and strangers' programs on the installed package.

All are built from scratch in a temporary folder with the CMake of this environment.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = [pytest.mark.any_level, pytest.mark.slow]

ROOT = Path(__file__).resolve().parent.parent
CORES = str(os.cpu_count() or 1)
PATH = os.pathsep.join([str(Path(sys.prefix) / "bin"), os.environ.get("PATH", os.defpath)])


def require_program(name: str) -> str:
    program = shutil.which(name, path=PATH)
    if program is None:
        pytest.skip(f"{name} is neither in {sys.prefix}/bin nor in PATH")
    return program


def require_sources(*parts: str) -> Path:
    path = ROOT.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} is not there: the tests run without a source checkout")
    return path


def run(*command: str | Path, cwd: Path | None = None, timeout: float = 900) -> str:
    """The output of a program that must succeed."""
    result = subprocess.run(
        command,
        cwd=cwd,
        # Threads that spin while they wait would take the time of the tests beside them.
        env={**os.environ, "PATH": PATH},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    line = " ".join(map(str, command))
    assert result.returncode == 0, f"{line}: exit code {result.returncode}\n{result.stdout}"
    return result.stdout


def build(source: Path, folder: Path, *definitions: str) -> None:
    cmake = require_program("cmake")
    require_program("c++")
    generator = ["-G", "Ninja"] if shutil.which("ninja", path=PATH) else []
    run(cmake, "-S", source, "-B", folder, *generator, *definitions)
    run(cmake, "--build", folder, "--parallel", CORES)


def ask_package(question: str) -> str:
    return run(sys.executable, "-m", "dlprim", question).strip()


def test_example_runs_on_the_installed_package(tmp_path: Path) -> None:
    source = require_sources("examples", "cpp")
    build(source, tmp_path, f"-Ddlprim_DIR={ask_package('--cmakedir')}")
    assert re.search(r"^brgemm_\w+: right, [\d.]+ GFLOP/s$", run(tmp_path / "example"), re.M)
    assert "softmax is within" in run(tmp_path / "row_program")
    assert "fcrelu is within" in run(tmp_path / "formula")
    assert "attention is within" in run(tmp_path / "attention")
    assert "second: formula(" in run(tmp_path / "network")


def test_tvm_calls_the_kernel_and_every_side_is_right(tmp_path: Path) -> None:
    if find_spec("tvm") is None:
        pytest.skip("apache-tvm is not installed: examples/tvm/README.md names the release")
    source = require_sources("examples", "tvm")
    build(source, tmp_path, f"-Ddlprim_DIR={ask_package('--cmakedir')}")
    layers = tmp_path / "layers.csv"
    layers.write_text(
        "id,C,K,H,W,R,S,stride,pad\n1,64,128,9,9,3,3,2,1\n2,128,64,6,6,1,1,1,0\n3,3,64,8,8,1,1,1,0\n"
    )
    output = run(
        sys.executable,
        source / "measure.py",
        *("--library", tmp_path / "libdlprim_tvm.so", "--layers", layers, "--rounds", "2"),
    )
    rows = re.findall(r"^(\d): .* by hand [\d.]+, kernel [\d.]+, Conv2d [\d.]+$", output, re.M)
    assert rows == ["1", "2"]  # the third has no whole block of channels


def test_installed_headers_compile_alone_and_need_no_third_party(tmp_path: Path) -> None:
    include = Path(ask_package("--includes"))
    headers = sorted(header.relative_to(include) for header in include.rglob("*.h"))
    assert Path("dlprim/brgemm/brgemm.h") in headers
    for header in headers:
        lines = (include / header).read_text().splitlines()
        included = [line for line in lines if line.startswith("#include <")]
        assert [line for line in included if not re.fullmatch(r"#include <\w+>", line)] == []
    # A file for each, so that none rests on what another one includes.
    units = [tmp_path / f"{'_'.join(header.with_suffix('').parts)}.cpp" for header in headers]
    for unit, header in zip(units, headers, strict=True):
        unit.write_text(f"#include <{header}>\n#include <{header}>\n")
    warnings = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
    folders = (f"-I{include}", f"-I{include / 'dlprim'}")
    run(require_program("c++"), "-std=c++20", "-fsyntax-only", *warnings, *folders, *units)


def test_the_library_was_installed_from_these_sources() -> None:
    include = Path(ask_package("--includes")) / "dlprim"
    for header in include.rglob("*.h"):
        source = require_sources("cpp", *header.relative_to(include).parts)
        same = source.read_bytes() == header.read_bytes()
        assert same, f"dlprim was installed from other sources than {source}: pip install . first"


def configure_on_the_package(folder: Path) -> Path:
    """The C++ tests on the installed library, with the internal headers of this checkout."""
    tests = require_sources("tests", "cpp")
    require_program("c++")
    generator = ["-G", "Ninja"] if shutil.which("ninja", path=PATH) else []
    package = f"-Ddlprim_DIR={ask_package('--cmakedir')}"
    run(require_program("cmake"), "-S", tests, "-B", folder, *generator, package)
    return folder


def test_nothing_is_allocated_where_none_should_be(tmp_path: Path) -> None:
    """In a build as users have it; those of sanitizers allocate for themselves."""
    cmake, folder = require_program("cmake"), configure_on_the_package(tmp_path)
    run(cmake, "--build", folder, "--target", "allocation_tests", "--parallel", CORES)
    run(folder / "allocation_tests")


def test_cpp_tests_pass_at_every_isa_level(tmp_path: Path) -> None:
    """In the tree that DLPRIM_CPP_TESTS names, or in one built on the installed library.

    Such a tree has its own build of the library: in `.ci/run` it is the sanitizers' one.
    """
    folder = Path(os.environ.get("DLPRIM_CPP_TESTS") or configure_on_the_package(tmp_path))
    run(require_program("cmake"), "--build", folder, "--parallel", CORES)
    ctest = ("--output-on-failure", "--no-tests=error", "--parallel", CORES)
    run(require_program("ctest"), *ctest, cwd=folder, timeout=3600)


def test_a_missing_assembler_says_what_to_install(tmp_path: Path) -> None:
    """Without a network, of which git is told that it leads nowhere."""
    found = require_sources("cmake", "xbyak.cmake")
    project = "cmake_minimum_required(VERSION 3.24)\nproject(missing NONE)\n"
    (tmp_path / "CMakeLists.txt").write_text(f'{project}include("{found}")\n')
    away = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{tmp_path.as_uri()}/nowhere/.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://github.com/",
    }
    command = (require_program("cmake"), "-S", tmp_path, "-B", tmp_path / "b")
    result = subprocess.run(
        [*command, "-DDLPRIM_XBYAK=FETCH"],
        env={**os.environ, **away, "PATH": PATH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode != 0
    assert "apt install libxbyak-dev" in " ".join(result.stderr.split())
