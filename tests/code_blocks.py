"""The code blocks of README and user pages, run as a reader would: one at a time, in a folder.

A Python block needs no other Python block. Where a shell block of its section stands in front of
it, what that trains is there, because the reader has run it.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dlprim.train import main

ROOT = Path(__file__).parent.parent
FOLDERS = ("", "tutorials", "concepts", "help")
PAGES = [
    ROOT / "README.md",
    *(it for folder in FOLDERS for it in sorted((ROOT / "docs" / folder).glob("*.md"))),
]
PROGRAM = ("python", "-m", "dlprim.train")

FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block: where it stands, in what language, and its text."""

    page: str
    section: str
    line: int
    language: str
    text: str


def name_of(page: Path) -> str:
    """Its path from the root of the checkout."""
    return os.path.relpath(page, ROOT)


def blocks_of(page: Path) -> list[Block]:
    """All blocks of a page in order; an empty list where there is no such page."""
    if not page.is_file():
        return []
    text, found = page.read_text(), []
    for fence in FENCE.finditer(text):
        line = text.count("\n", 0, fence.start()) + 1
        headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text[: fence.start()]), re.MULTILINE)
        section = headings[-1] if headings else ""
        found.append(Block(name_of(page), section, line, fence[1], fence[2]))
    return found


def commands(text: str) -> list[list[str]]:
    """The words of each line of a shell block; continued lines are one, comments are none."""
    joined = text.replace("\\\n", " ")
    return [words for line in joined.splitlines() if (words := shlex.split(line, comments=True))]


def trainings(text: str) -> list[list[str]]:
    """The flags of each run of the training program in a shell block, without mpiexec's."""
    found = []
    for words in commands(text):
        for place in range(len(words) - 2):
            if tuple(Path(it).name for it in words[place : place + 3]) == PROGRAM:
                rest = words[place + 3 :]
                end = next((n for n, it in enumerate(rest) if it in ("&&", "|", ";")), len(rest))
                found.append(rest[:end])
    return found


def in_front(block: Block) -> list[Block]:
    """The shell blocks of its section that a reader has run before."""
    page = next(it for it in PAGES if name_of(it) == block.page)
    return [
        it
        for it in blocks_of(page)
        if (it.language, it.section) == ("sh", block.section) and it.line < block.line
    ]


PACKAGES = {
    "torch": "an optional peer",
    "sklearn": "where the digits are",
    "ml_dtypes": "bfloat16",
    "onnx.parser": "makes models; by this name, because a folder of tests is called onnx, too",
}


def skip_without_packages(block: Block) -> None:
    """Skips the test where a package that the block needs is missing."""
    for package, what in PACKAGES.items():
        if re.search(rf"^\s*(import|from) {package}\b", block.text, re.MULTILINE):
            pytest.importorskip(package, reason=what)
    if "bfloat16" in block.text:
        pytest.importorskip("ml_dtypes", reason=PACKAGES["ml_dtypes"])


def train_in_front(block: Block, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trains in the folder what the shell blocks in front of a block train."""
    skip_without_packages(block)
    monkeypatch.chdir(folder)
    for shell in in_front(block):
        for flags in trainings(shell.text):
            assert main(flags) == 0, f"{shell.page}:{shell.line}: {flags}"


def run_python(block: Block, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that a Python block leaves, run as a program in the folder."""
    skip_without_packages(block)
    monkeypatch.chdir(folder)
    program = folder / "block.py"
    program.write_text("\n" * block.line + block.text)
    return runpy.run_path(os.fspath(program), run_name="__main__")
