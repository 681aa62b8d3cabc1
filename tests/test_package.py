"""The installed package: what other programs find in it, and what importing it costs them."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dlprim
from conftest import RunPython
from dlprim import _core

pytestmark = pytest.mark.any_level

PACKAGE = Path(dlprim.__file__).parent


def command(*arguments: str) -> str:
    run = subprocess.run(
        [sys.executable, "-m", "dlprim", *arguments], capture_output=True, text=True, check=True
    )
    assert run.stderr == ""
    return run.stdout.strip()


# ---------------------------------------------------------------- for build systems


@pytest.mark.parametrize("flag", ["--cmakedir", "--cmake-dir"])
def test_cmake_package_is_found(flag: str) -> None:
    folder = Path(command(flag))
    assert folder.is_absolute()
    assert {"dlprimConfig.cmake", "dlprimConfigVersion.cmake", "dlprimTargets.cmake"} <= {
        path.name for path in folder.iterdir()
    }


def test_headers_are_found_and_include_nothing_foreign() -> None:
    """No header of a third party may be needed to use the library from C++."""
    include = Path(command("--includes")) / "dlprim"
    assert (include / "brgemm" / "brgemm.h").is_file()
    assert (include / "primitives" / "linear" / "linear.h").is_file()
    for header in include.rglob("*.h"):
        for name in re.findall(r'#\s*include\s*[<"]([^>"]+)[>"]', header.read_text()):
            assert (include / name).is_file() or "/" not in name, f"{header.name}: {name}"
            assert name not in {"omp.h", "Python.h"}, header.name


def test_static_library_is_there() -> None:
    assert (PACKAGE / "lib" / "libdlprim.a").stat().st_size > 10_000


def test_command_without_arguments_says_what_it_runs_on() -> None:
    line = command()
    assert dlprim.__version__ in line
    assert dlprim.isa() in line


# ---------------------------------------------------------------- versions


def test_versions_agree() -> None:
    version = importlib.metadata.version("dlprim")
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert dlprim.__version__ == version
    assert command("--version") == version
    config = Path(command("--cmakedir")) / "dlprimConfigVersion.cmake"
    assert f'set(PACKAGE_VERSION "{version}")' in config.read_text()


def test_metadata() -> None:
    metadata = importlib.metadata.metadata("dlprim")
    assert metadata["License-Expression"] == "BSD-3-Clause"
    requirements = importlib.metadata.requires("dlprim")
    assert [line for line in requirements if "extra ==" not in line] == [
        "ml_dtypes>=0.4",
        "numpy>=1.26",
    ]
    assert {"train", "test"} <= set(metadata.get_all("Provides-Extra"))


# ---------------------------------------------------------------- types


def test_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


def stub() -> tuple[dict[str, ast.FunctionDef], dict[str, ast.ClassDef]]:
    tree = ast.parse((PACKAGE / "_core.pyi").read_text(encoding="utf-8"))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    # Those with an underscore are what classes of the stub share.
    classes = {
        node.name: node
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }
    return functions, classes


def parameters(node: ast.FunctionDef) -> list[str]:
    return [each.arg for each in (*node.args.args, *node.args.kwonlyargs)]


def documented_parameters(function: object) -> list[str]:
    """From the signature that pybind11 writes into the first line of the docstring."""
    (signature,) = re.findall(r"^\w+\((.*)\) -> ", inspect.getdoc(function).splitlines()[0])
    return re.findall(r"(?:^|, )(\w+): ", signature)


def test_stub_names_what_the_extension_has() -> None:
    functions, classes = stub()
    assert {name for name in dir(_core) if not name.startswith("_")} == {*functions, *classes}
    for name, node in functions.items():
        assert parameters(node) == documented_parameters(getattr(_core, name)), name


def test_stub_of_the_kernel_names_what_the_class_has() -> None:
    node = stub()[1]["Kernel"]
    methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
    special = {"__init__", "__call__"}
    public = {name for name in vars(_core.Kernel) if not name.startswith("_") or name in special}
    assert public == set(methods)
    documented = documented_parameters(_core.Kernel.__init__)
    assert parameters(methods["__init__"]) == documented
    for name in ("__call__", "measure"):  # keywords are looked up by hand, documented as text
        signature = inspect.signature(getattr(_core.Kernel, name))
        named = {"self", "others"}  # the last of which is every other keyword
        assert set(parameters(methods[name])) - named == set(signature.parameters) - named


def test_public_names_are_documented() -> None:
    assert sorted(dlprim.__all__) == sorted(set(dlprim.__all__))
    for name in dlprim.__all__:
        assert name == "__version__" or inspect.getdoc(getattr(dlprim, name)), name


# ---------------------------------------------------------------- the import


def test_import_brings_numpy_and_nothing_else(run_python: RunPython) -> None:
    run = run_python(
        """
import sys, numpy
before = set(sys.modules)
import dlprim
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(new - set(sys.stdlib_module_names) - {"numpy"}))
"""
    )
    assert (run.stdout, run.stderr) == ("dlprim\n", "")


def test_missing_core_says_how_to_build_it(run_python: RunPython) -> None:
    run = run_python("import sys; sys.modules['dlprim._core'] = None; import dlprim")
    assert run.returncode == 1
    assert "ImportError: dlprim's compiled core is missing" in run.stderr
    assert "pip install ." in run.stderr
