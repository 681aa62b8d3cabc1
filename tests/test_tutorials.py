"""Tutorials that a block in one process cannot show: a program on two ranks, and one in C++."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from code_blocks import blocks_of
from mpi_launch import launch
from test_cpp import ask_package, build, require_sources, run

pytestmark = [pytest.mark.any_level, pytest.mark.slow]


def first_block(page: str, language: str) -> str:
    path = require_sources("docs", "tutorials", page)
    return next(it.text for it in blocks_of(path) if it.language == language)


def printed_loss(text: str, ranks: int) -> float:
    found = re.search(rf"^{ranks} ranks, loss ([\d.]+)$", text, re.M)
    assert found, text
    return float(found[1])


def test_two_ranks_learn_what_one_learns(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(first_block("mpi.md", "python"))
    both = launch(2, str(path))
    assert both.returncode == 0, both.stderr
    alone = launch(1, str(path))
    assert alone.returncode == 0, alone.stderr
    assert printed_loss(both.stdout, 2) == pytest.approx(printed_loss(alone.stdout, 1), abs=0.002)


def test_cpp_program_is_built_and_right(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(first_block("cpp.md", "cmake"))
    (tmp_path / "product.cpp").write_text(first_block("cpp.md", "c++"))
    folder = tmp_path / "build"
    build(tmp_path, folder, f"-Ddlprim_DIR={ask_package('--cmakedir')}")
    assert run(folder / "product").endswith(": 575\n")
