"""What the documents and comments say of files is true: those that they name exist, links lead
somewhere, and what users read is apart from laboratory notes.

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
ELSEWHERE = {"omp.h", "README.md"}


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


# What people read: for users, of the laboratory, decisions, and what stands at the root.
PEOPLE = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
USER_PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LONGEST = 160  # characters of a line outside tables
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def page_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """What GitHub calls the headings of a page."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE):
        kept = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(kept.replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PEOPLE, ids=page_name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
        if target.startswith(("http:", "https:")):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{page_name(page)} links to {target}"
        assert not anchor or anchor in anchors(path), f"{page_name(page)} links to {target}"


@pytest.mark.parametrize("page", PEOPLE, ids=page_name)
def test_lines_are_short_outside_tables(page: Path) -> None:
    lines = enumerate(page.read_text().splitlines(), 1)
    long = [n for n, it in lines if len(it) > LONGEST and not it.startswith("|")]
    assert long == []


@pytest.mark.parametrize("page", USER_PAGES, ids=page_name)
def test_laboratory_notes_are_not_on_user_pages(page: Path) -> None:
    """They have dates and tables of attempts, and live in docs/lab."""
    text = LINK.sub("", page.read_text())
    assert re.findall(r"\b20\d\d-\d\d-\d\d\b", text) == []
    assert re.findall(r"^\| *attempt\b.*", text, re.MULTILINE) == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "lab").glob("20*.md")), ids=page_name)
def test_laboratory_pages_are_dated_and_listed(page: Path) -> None:
    date = page.name[:10]
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", date)
    assert date in page.read_text()
    assert f"]({page.name})" in (page.parent / "README.md").read_text()


def test_readme_links_every_user_page() -> None:
    linked = set(LINK.findall((ROOT / "README.md").read_text()))
    pages = {page_name(it) for it in USER_PAGES} - {"README.md"}
    assert pages <= linked
