"""The documentation site: it builds without a warning, has every public name, and ten questions
are answered within two clicks."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

import pytest

from code_blocks import ROOT

pytestmark = pytest.mark.any_level

DOCS = ROOT / "docs"
if not DOCS.is_dir():
    pytest.skip(f"{ROOT} holds no documents", allow_module_level=True)

LINK = re.compile(r"\[[^\]]+\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
MODULES = (
    *("dlprim", "dlprim.nn", "dlprim.optim", "dlprim.optim.schedules", "dlprim.tracing"),
    *(
        "dlprim.lang",
        "dlprim.onnx",
        "dlprim.llm",
        "dlprim.train",
        "dlprim.distributed",
        "dlprim.testing",
    ),
)


def referred() -> set[tuple[str, str]]:
    """The modules and names that pages of the reference list."""
    found = set()
    for page in (DOCS / "reference").glob("*.rst"):
        for module, block in re.findall(
            r"^\.\. names:: (\S+)\n\n((?:   .*\n)+)", page.read_text() + "\n", re.M
        ):
            found |= {(module, name) for name in block.split()}
    return found


def test_reference_has_every_public_name_once() -> None:
    listed = {it for it in referred() if it[0] != "dlprim.torch"}
    shown = {id(getattr(import_module(module), name)) for module, name in listed}
    missing = [
        f"{module}.{name}"
        for module in MODULES
        for name in import_module(module).__all__
        if not name.startswith("__") and id(getattr(import_module(module), name)) not in shown
    ]
    assert missing == ["dlprim.optim.schedules"]  # a module, whose names stand by themselves


@pytest.mark.skipif(
    find_spec("torch") is None,
    reason="dlprim.torch, whose names are listed, needs PyTorch: pip install torch",
)
def test_reference_has_every_name_for_pytorch() -> None:
    expected = {("dlprim.torch", name) for name in import_module("dlprim.torch").__all__}
    assert {it for it in referred() if it[0] == "dlprim.torch"} == expected


def paths() -> dict[str, list[str]]:
    """The links of each question of docs/finding.md, in order."""
    rows = re.findall(r"^\| ([A-Z].*\?) \| (.+) \|$", (DOCS / "finding.md").read_text(), re.M)
    return {question: LINK.findall(answer) for question, answer in rows}


def test_ten_questions_are_answered_within_two_clicks() -> None:
    assert len(paths()) == 10
    assert {question: links for question, links in paths().items() if not 0 < len(links) < 3} == {}


@pytest.mark.parametrize("question", paths())
def test_second_click_is_on_the_page_of_the_first(question: str) -> None:
    """Anchors are what test_documents.py looks at."""
    first, *second = paths()[question]
    page = DOCS / first
    targets = {(page.parent / it).resolve() for it in LINK.findall(page.read_text())}
    assert {(DOCS / it).resolve() for it in second} <= targets


class Links(HTMLParser):
    """What a page of the site links to, and the places in it that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.places = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.places.add(given.get("id") or "")
        target = given.get("href") if tag == "a" else given.get("src")
        if target and not re.match(r"[a-z]+:", target):
            self.targets.add(unquote(target))


def broken(site: Path) -> list[str]:
    """Links of the site's pages that lead nowhere."""
    pages = {it: Links(it.read_text()) for it in site.rglob("*.html")}
    found = []
    for page, links in pages.items():
        for target in sorted(links.targets):
            name, _, place = target.partition("#")
            path = (page.parent / name.partition("?")[0]).resolve() if name else page
            if path not in pages:
                leads = path.is_file() and not place
            else:
                leads = place in pages[path].places
            if not leads:
                found.append(f"{page.relative_to(site)}: {target}")
    return found


@pytest.mark.slow
def test_site_builds_without_warnings_and_links_lead_somewhere(tmp_path: Path) -> None:
    for package in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(package, reason="pip install 'dlprim[docs]' for the site")
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", DOCS, tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (built.returncode, built.stderr) == (0, "")
    assert broken(tmp_path) == []
    names = (tmp_path / "genindex.html").read_text()
    assert [it for it in ("conv2d", "value_and_grad", "Step") if f">{it}" not in names] == []
