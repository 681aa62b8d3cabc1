"""The reference: `.. names:: MODULE` followed by names gives a table of them, and each docstring.

A name stands once in a page, and tests hold the pages to the modules' `__all__`.
"""

import inspect
import re
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

WITHOUT_TORCH = ".. note:: The names of this page need PyTorch, which is not where this was built."


class Names(SphinxDirective):
    """A table of names of a module, then what the docstring of each says."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        module = self.arguments[0]
        if module == "dlprim.torch" and find_spec("torch") is None:
            return self.parse_text_to_nodes(WITHOUT_TORCH)
        names = " ".join(self.content).split()
        lines = [f".. currentmodule:: {module}", "", ".. autosummary::", "   :nosignatures:", ""]
        lines += [*(f"   {it}" for it in names), ""]
        lines += [line for it in names for line in documented(module, it)]
        return self.parse_text_to_nodes("\n".join(lines))


def documented(module: str, name: str) -> list[str]:
    """The directive that shows a name: a class with the methods that it defines itself."""
    it = getattr(import_module(module), name)
    if not inspect.isclass(it):
        return [f".. autofunction:: {module}.{name}", ""]
    kind = "autoexception" if issubclass(it, Exception) else "autoclass"
    listed = attributes(it)
    members = [
        each for each, value in vars(it).items() if each not in listed and is_shown(each, value)
    ]
    options = [f"   :members: {', '.join(members)}"] if members else []
    special = ["   :special-members: __call__"] if "__call__" in members else []
    return [f".. {kind}:: {module}.{name}", *options, *special, ""]


def attributes(kind: type) -> set[str]:
    """What the docstring of a class lists as its attributes, properties among them."""
    text = inspect.getdoc(kind) or ""
    section = re.search(r"^Attributes\n-+\n(.*?)(?=^\S+\n-+$|\Z)", text, re.M | re.S)
    lines = re.findall(r"^(\w[\w, ]*) :", section[1], re.M) if section else []
    return {name for line in lines for name in line.split(", ")}


def is_shown(name: str, value: Any) -> bool:
    """Whether a member is a public method or property with a docstring of dlprim's own."""
    function = getattr(value, "fget", None) or getattr(value, "__func__", value)
    ours = str(getattr(function, "__module__", "")).startswith("dlprim")
    is_public = name == "__call__" or not name.startswith("_")
    return is_public and ours and inspect.isroutine(function) and bool(inspect.getdoc(function))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("names", Names)
    return {"parallel_read_safe": True}
