"""What the documents and comments say of files is true: those that they name exist, links lead
somewhere, and what users read is apart from laboratory notes.

They read the checkout these tests lie in, not the installed package.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_level

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


def comments(path: Path) -> list[str]:
    return re.findall(r"//(.*)", path.read_text())


def _named(name: str) -> list[Path]:
    if name in {"README.md", "CHANGELOG.md", "CONTRIBUTING.md"}:
        return [*ROOT.rglob(name)]
    return [path for folder in FOLDERS for path in (ROOT / folder).rglob(name)]


@pytest.mark.parametrize("name", ["docs/design.md", "CONTRIBUTING.md"])
def test_documents_name_files_that_exist(name: str) -> None:
    assert missing((ROOT / name).read_text()) == []


def test_comments_name_files_that_exist() -> None:
    found = {page_name(it): missing("\n".join(comments(it))) for it in SOURCES}
    assert {path: names for path, names in found.items() if names} == {}


# What people read: for users, of the laboratory, decisions, and what stands at the root.
PEOPLE = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
GUIDES = sorted((ROOT / "docs").glob("*.md"))
SITE = {"docs/index.md", "docs/finding.md"}  # doors, as README is one
USER_PAGES = [
    *(ROOT / "README.md", *GUIDES),
    *(it for each in ("tutorials", "concepts") for it in sorted((ROOT / "docs" / each).glob("*"))),
    *(it for it in sorted((ROOT / "docs/help").glob("*.md")) if "{include}" not in it.read_text()),
]
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


def dead_links(page: Path) -> list[str]:
    found = []
    for target in LINK.findall(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
        if target.startswith(("http:", "https:")):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            found.append(f"{page_name(page)} links to {target}")
    return found


def test_links_lead_somewhere() -> None:
    assert [it for page in PEOPLE for it in dead_links(page)] == []


def test_lines_are_short_outside_tables() -> None:
    long = [
        f"{page_name(page)}:{number}"
        for page in PEOPLE
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if len(line) > LONGEST and not line.startswith("|")
    ]
    assert long == []


def test_laboratory_notes_are_not_on_user_pages() -> None:
    """They have dates and tables of attempts, and live in docs/lab."""
    notes = re.compile(r"\b20\d\d-\d\d-\d\d\b|^\| *attempt\b.*", re.MULTILINE)
    texts = {page_name(page): LINK.sub("", page.read_text()) for page in USER_PAGES}
    assert {name: notes.findall(text) for name, text in texts.items() if notes.search(text)} == {}


def test_laboratory_pages_are_dated_and_listed() -> None:
    folder = ROOT / "docs" / "lab"
    listed = (folder / "README.md").read_text()
    for page in sorted(folder.glob("20*.md")):
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", page.name[:10]), page.name
        assert page.name[:10] in page.read_text(), page.name
        assert f"]({page.name})" in listed, page.name


def test_readme_links_every_user_page() -> None:
    linked = set(LINK.findall((ROOT / "README.md").read_text()))
    assert {page_name(it) for it in GUIDES} - SITE <= linked


def test_site_links_every_user_page() -> None:
    """Sphinx refuses pages that no table of contents has; this is so without Sphinx, too."""
    entries = re.findall(
        r"^(?:.*<)?((?:\w+/)?[\w-]+)>?$", (ROOT / "docs/index.md").read_text(), re.M
    )
    pages = {f"docs/{it}.md" for it in entries}
    assert {page_name(it) for it in USER_PAGES} - {"README.md", "docs/index.md"} <= pages
