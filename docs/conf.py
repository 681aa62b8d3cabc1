"""The documentation site: `sphinx-build -W -b html docs build/site`, with dlprim importable.

Pages are Markdown that is read on GitHub, too, so nothing in them needs Sphinx but the tables of
contents. The reference is made from docstrings. Nothing is fetched while the site is built.
"""

import importlib.metadata
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_site"))

project = "dlprim"
author = "the dlprim authors"
copyright = author
try:
    release = importlib.metadata.version("dlprim")
except importlib.metadata.PackageNotFoundError:
    release = "from a checkout"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "site_names",
    "site_links",
]
exclude_patterns = ["_site"]
default_role = "py:obj"  # `dlprim.isa` in a docstring is a link where there is such a name

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4  # the anchors that GitHub gives headings

autosummary_generate = False  # a page for each subject, not for each name
autodoc_member_order = "bysource"
suppress_warnings = ["ref.python"]  # words such as dtype in the type of an attribute
autodoc_typehints = "none"  # the docstrings say them
napoleon_google_docstring = False
napoleon_use_param = False  # types are sentences, not names to be looked up
napoleon_use_rtype = False

html_theme = "furo"
html_title = "dlprim"
html_copy_source = False
html_show_sphinx = False
