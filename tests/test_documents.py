"""What the documents and comments say of files is true: those that they name exist.

They read the checkout these tests lie in, not the installed package.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("cpp", "python", "tests", "bench", "docs", "examples", "cmake", ".ci")

if not (ROOT / "docs").is_dir():
    pytest.skip(f"{ROOT} holds no documents", allow_module_level=True)

NAMES = {path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()}
STEMS = {name.partition(".")[0] for name in NAMES}
SOURCES = sorted(
    path
    for folder in ("cpp", "tests/cpp")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".cpp", ".h"}
)
# A file's name; not a piece of a URL, and not of a path elsewhere in the world.
FILE = re.compile(r"(?<![\w./-])((?:[\w-]+/)*)(\w[\w-]*)\.(h|cpp|py|md|csv|\*)(?![\w(])")
# Of other projects, and what programs write.
ELSEWHERE = {"omp.h", "README.md", "foreach_target.h", "highway.h"}


def missing(text: str) -> list[str]:
    found = []
    for folder, stem, kind in FILE.findall(text):
        name = f"{stem}.{kind}"
        exists = stem in STEMS if kind == "*" else name in NAMES or name in ELSEWHERE
        if folder and exists and kind != "*":
            exists = any(path.match(folder + name) for path in _named(name))
        if not exists:
            found.append(folder + name)
    return found


def _named(name: str) -> list[Path]:
    if name in {"README.md", "CHANGELOG.md", "CONTRIBUTING.md"}:
        return [*ROOT.rglob(name)]
    return [path for folder in FOLDERS for path in (ROOT / folder).rglob(name)]


@pytest.mark.parametrize("name", ["docs/design.md", "CONTRIBUTING.md"])
def test_documents_name_files_that_exist(name: str) -> None:
    assert missing((ROOT / name).read_text()) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_comments_name_files_that_exist(path: Path) -> None:
    comments = "\n".join(re.findall(r"//(.*)", path.read_text()))
    assert missing(comments) == []
