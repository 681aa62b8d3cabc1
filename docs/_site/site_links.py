"""Links of pages that are read on GitHub, too: what lies outside docs/ leads to its page here.

`dlprim.conv2d` between backticks becomes a link to the reference. Records (decisions, laboratory
notes, changes) are found by their titles only, so that a search shows what is true now.
"""

import os
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

DOCS = Path(__file__).parent.parent
ROOT = DOCS.parent
PAGES = {  # of what lies elsewhere, or is a folder
    ROOT / "CONTRIBUTING.md": DOCS / "help" / "contributing.md",
    ROOT / "CHANGELOG.md": DOCS / "help" / "changes.md",
    ROOT / "README.md": DOCS / "index.md",
    ROOT / "bench" / "README.md": DOCS / "help" / "benchmarks.md",
    DOCS / "decisions": DOCS / "help" / "records.rst",
    DOCS / "lab": DOCS / "lab" / "README.md",
}
RECORDS = ("decisions/", "lab/", "help/changes")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
NAME = re.compile(r"(?:dlprim\.)?(?:(?:nn|optim)\.)?[A-Za-z_]\w*(?:\.\w+)*(?=\(|$)")


def rewritten(text: str, folder: Path, page: Path) -> str:
    """The text of a file in that folder with its links as they are on the page."""

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        if "://" in target:
            return found[0]
        path = (folder / target).resolve()
        path = PAGES.get(path, path)
        if not path.is_relative_to(DOCS):
            return words  # of the checkout, which the site does not have
        return f"[{words}]({os.path.relpath(path, page.parent)}{anchor})"

    return LINK.sub(link, text)


def on_source(app: Sphinx, name: str, source: list[str]) -> None:
    page = Path(app.env.doc2path(name))
    if page.suffix == ".md":
        source[0] = rewritten(source[0], page.parent, page)


def on_include(app: Sphinx, path: Path, _: str, content: list[str]) -> None:
    page = Path(app.env.doc2path(app.env.current_document.docname))  # MyST gives its last part only
    content[0] = rewritten(content[0], (DOCS / path).resolve().parent, page)


def on_doctree(app: Sphinx, doctree: nodes.document) -> None:
    """Names between backticks become references, where they may have one."""
    name = app.env.current_document.docname
    if name.startswith(RECORDS):
        app.env.metadata[name]["nosearch"] = ""
    for literal in list(doctree.findall(nodes.literal)):
        if isinstance(literal.parent, nodes.reference | addnodes.pending_xref | nodes.title):
            continue
        found = NAME.match(literal.astext())
        if found is None or not found[0].startswith(("dlprim.", "nn.", "optim.")):
            continue
        target = found[0] if found[0].startswith("dlprim.") else f"dlprim.{found[0]}"
        reference = addnodes.pending_xref(
            "", refdoc=name, refdomain="py", reftype="obj", reftarget=target, refwarn=False
        )
        literal.replace_self(reference)
        reference += literal


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", on_source)
    app.connect("include-read", on_include)
    app.connect("doctree-read", on_doctree)
    return {"parallel_read_safe": True}
