"""Every code block of README and the user pages: Python runs, commands name what exists.

They read the checkout these tests lie in, not the installed package.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from code_blocks import (
    PAGES,
    ROOT,
    Block,
    blocks_of,
    commands,
    name_of,
    run_python,
    train_in_front,
    trainings,
)
from dlprim.bench.flags import parser as bench_parser
from dlprim.train.flags import parser

pytestmark = [pytest.mark.any_level, pytest.mark.slow]

if not (ROOT / "docs").is_dir():
    pytest.skip(f"{ROOT} holds no documents", allow_module_level=True)

BLOCKS = [block for page in PAGES for block in blocks_of(page)]
LANGUAGES = {"python", "sh", "c++", "cmake", "text", ""}  # without one: drawings
SHELL = [
    *[it for it in BLOCKS if it.language == "sh"],
    *blocks_of(ROOT / "bench" / "README.md"),
    *[it for it in blocks_of(ROOT / "CONTRIBUTING.md") if it.language == "sh"],
]


def named(block: Block) -> str:
    return f"{block.page}:{block.line}"


JUDGED = "docs/fit.md"  # test_new_user.py runs its programs, which take longest


def in_language(language: str) -> list[Block]:
    return [it for it in BLOCKS if it.language == language and it.page != JUDGED]


@pytest.mark.parametrize("block", in_language("python"), ids=named)
def test_python_block_runs_alone(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_in_front(block, tmp_path, monkeypatch)
    run_python(block, tmp_path, monkeypatch)


@pytest.mark.parametrize("block", SHELL, ids=named)
def test_shell_block_is_one_and_its_programs_take_its_flags(block: Block) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    checked = subprocess.run(
        [bash, "-n"], input=block.text, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")
    for flags in trainings(block.text):
        parser().parse_args(flags)
    for words in commands(block.text):
        require_flags(words)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_inside_sentences_exist(page: Path) -> None:
    for command in re.findall(r"`(python [^`]*)`", page.read_text()):
        words = command.split()
        if words[:3] == ["python", "-m", "dlprim.train"] and "DIR" not in words:
            parser().parse_args(words[3:])
        require_flags(words)


def test_blocks_are_in_languages_that_are_checked() -> None:
    assert {it.language for it in BLOCKS} <= LANGUAGES


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_fences_are_whole(page: Path) -> None:
    """A fence too many would turn text into code, and code into text that nobody runs."""
    fences = [it for it in page.read_text().splitlines() if it.startswith("```")]
    assert [it for it in blocks_of(page) if "```" in it.text] == []
    assert len(fences) == 2 * len(blocks_of(page))
    assert [it for it in fences[1::2] if it != "```"] == []


@pytest.mark.parametrize("block", in_language("c++"), ids=named)
def test_cpp_block_names_what_the_headers_have(block: Block) -> None:
    """Programs are built in test_cpp.py, from examples/cpp, and in test_tutorials.py."""
    headers = re.findall(r"#include <dlprim/([^>]+)>", block.text)
    assert headers
    assert [it for it in headers if not (ROOT / "cpp" / it).is_file()] == []
    declared = "\n".join(
        it.read_text()
        for folder in ("brgemm", "rows")
        for it in (ROOT / "cpp" / folder).glob("*.h")
    )
    fields = re.findall(r"\.(\w+) =", block.text)
    assert [it for it in fields if not re.search(rf"\b{it}\b", declared)] == []
    included = "\n".join((ROOT / "cpp" / it).read_text() for it in headers)
    names = re.findall(r"dlprim::(\w+)", block.text)
    assert [it for it in names if not re.search(rf"\b{it}\b", included)] == []


def require_flags(words: list[str]) -> None:
    """Programs of this checkout are there, and take their flags."""
    if flags := words[words.index("dlprim.bench") + 1 :] if "dlprim.bench" in words else []:
        bench_parser("bench").parse_args(flags)
    sources = "\n".join(path.read_text() for path in (ROOT / "bench").glob("*.py"))
    for place, word in enumerate(words):
        if re.fullmatch(r"(bench|tests|examples)/[\w./-]+", word):
            assert (ROOT / word).exists(), word
        if re.fullmatch(r"bench/\w+\.py", word):
            for flag in re.findall(r"--[\w-]+", " ".join(words[place:])):
                assert f'"{flag}"' in sources, f"{word} has no {flag}"
