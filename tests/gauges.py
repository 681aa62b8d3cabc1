"""Gauges of the house: counts of mechanisms, which denser lines do not change, and their maxima.

A gauge counts what a general mechanism would have once: loops over threads, fillers of RowArgs,
vocabularies for places, folders that import each other. `python tests/gauges.py` prints each beside
its maximum in gauges.toml; the test of them lets no gauge rise without a new maximum and a reason.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
MAXIMA = Path(__file__).with_suffix(".toml")

Files = Mapping[str, str]  # texts by path from the root of the checkout
Arrows = Mapping[str, set[str]]  # the folders that a folder imports

# Packages around the library, which have issues and bounds of their own.
_APART = tuple(f"python/dlprim/{it}/" for it in ("torch", "llm", "gpu", "bench"))
_TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"\((?:.|\n)*?\)\"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'"
    r"|[A-Za-z_]\w*|\d[\w.']*|->\*?|::|<<=?|>=|<=|==|!=|&&|\|\||\+\+|--|[+\-*/%&|^]=|\S",
    re.DOTALL,
)
_LAYOUT_TOKENS = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
_TYPE = r"(?m)^\s*(?:struct|class|enum class) ([A-Z]\w+)[^;{]*\{"
_PLACE = (
    r"(?:std::int64_t|std::vector<std::int64_t>|Shape|Strides)\s+"
    r"\w*(?:stride|step|distance|moves|pixel|row|image|plane|offset)s?_?\b[^()]*;"
)


def read_sources(root: Path) -> dict[str, str]:
    paths = [
        it for base in ("cpp", "python/dlprim", "tests") for it in sorted((root / base).rglob("*"))
    ]
    return {
        it.relative_to(root).as_posix(): it.read_text()
        for it in paths
        if it.suffix in {".cpp", ".h", ".py"}
    }


def _python_tokens(text: str) -> int:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        it.body[0].lineno
        for it in ast.walk(ast.parse(text))
        if isinstance(it, documented) and ast.get_docstring(it, clean=False) is not None
    }
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(
        it.type not in _LAYOUT_TOKENS
        and not (it.type == tokenize.STRING and it.start[0] in docstrings)
        for it in tokens
    )


def _cpp_tokens(text: str) -> int:
    return sum(not it.startswith(("//", "/*")) for it in _TOKEN.findall(text))


def _count_tokens(files: Files) -> int:
    return sum(
        _python_tokens(text) if path.endswith(".py") else _cpp_tokens(text)
        for path, text in files.items()
    )


def _under(files: Files, *folders: str, suffix: str = "") -> dict[str, str]:
    return {
        path: text
        for path, text in files.items()
        if path.startswith(folders) and path.endswith(suffix)
    }


def _sites(pattern: str, files: Files) -> int:
    return sum(len(re.findall(pattern, it)) for it in files.values())


def _files_with(pattern: str, files: Files) -> int:
    return sum(bool(re.search(pattern, it)) for it in files.values())


def _types_with_places(files: Files) -> int:
    """Types with a member whose name says where elements are."""
    found = 0
    for text in files.values():
        for match in re.finditer(r"(?m)^\s*(?:struct|class) ([A-Z]\w+)[^;{]*\{", text):
            depth, end = 1, match.end()
            while depth and end < len(text):
                depth += {"{": 1, "}": -1}.get(text[end], 0)
                end += 1
            found += bool(re.search(_PLACE, text[match.end() : end]))
    return found


def cpp_arrows(files: Files) -> dict[str, set[str]]:
    """Of folders of cpp, those of primitives by name."""

    def folder(path: str) -> str:
        parts = path.split("/")[:-1]
        return "/".join(parts[:2] if parts[0] == "primitives" else parts[:1])

    arrows: dict[str, set[str]] = {}
    for path, text in _under(files, "cpp/").items():
        here = folder(path.removeprefix("cpp/"))
        for name in re.findall(r'#include "([^"]+/[^"]+)"', text):
            if f"cpp/{name}" in files and folder(name) != here:
                arrows.setdefault(here, set()).add(folder(name))
    return arrows


def python_arrows(files: Files) -> dict[str, set[str]]:
    """Of folders and modules right under dlprim; imports inside of functions count, too."""
    modules = {it.removeprefix("python/dlprim/") for it in _under(files, "python/dlprim/")}
    nodes = {it.split("/")[0].removesuffix(".py") for it in modules} - {"__init__", "__main__"}
    arrows: dict[str, set[str]] = {}
    for module in modules:
        here = module.split("/")[0].removesuffix(".py")
        if here not in nodes:
            continue
        for it in ast.walk(ast.parse(files[f"python/dlprim/{module}"])):
            names = [it.names[0].name] if isinstance(it, ast.Import) else []
            if isinstance(it, ast.ImportFrom) and it.module is not None:
                names = [f"{it.module}.{alias.name}" for alias in it.names]
            for name in names:
                package, _, rest = name.partition(".")
                there = rest.split(".")[0]
                if package == "dlprim" and there in nodes and there != here:
                    arrows.setdefault(here, set()).add(there)
    return arrows


def circles(arrows: Arrows) -> list[set[str]]:
    """Folders that reach each other."""

    def reached(start: str) -> set[str]:
        found, waiting = set[str](), [start]
        while waiting:
            for it in arrows.get(waiting.pop(), set()) - found:
                found.add(it)
                waiting.append(it)
        return found

    ends = {it: reached(it) for it in arrows}
    rings = {
        frozenset(it for it in ends[start] if start in ends.get(it, set()))
        for start in arrows
        if start in ends[start]
    }
    return sorted(map(set, rings), key=sorted)


def _arrows_in_circles(arrows: Arrows) -> int:
    return sum(len(arrows.get(it, set()) & ring) for ring in circles(arrows) for it in ring)


def _mechanisms(files: Files) -> dict[str, int]:
    core = {
        path: re.sub(r"//[^\n]*", "", text)
        for path, text in _under(files, "cpp/primitives/", "cpp/graph/").items()
    }
    outside = {path: text for path, text in core.items() if "/tensor/" not in path}
    sources = _under(core, "cpp/", suffix=".cpp")
    return {
        "thread_loops": _sites(r"\bparallel_for\(", outside),
        "files_filling_row_args": _files_with(r"\bRowArgs \w+\s*[;{=]", core),
        "files_filling_batch_tables": _files_with(r"entries_a(?:\.push_back| =)", core),
        "files_making_contractions": _files_with(r"\bContraction \w+\s*[;{]", sources),
        "types_with_lists_of_steps": _sites(r"\bsteps_\s*[;={]", _under(core, "cpp/", suffix=".h")),
        "parsers_of_the_notation": _files_with(
            r"(?m)^(?:class Parser|ProductFormula parse_product)\b",
            _under(files, "cpp/", suffix=".cpp"),
        ),
        "files_with_cost_numbers": _files_with(r"constexpr double k\w+", core),
        "tuned_numbers": _sites(r"constexpr (?:double|std::int64_t|int) k\w+", core),
        "types_with_places": _types_with_places(core),
        "types_in_headers_of_primitives": _sites(
            _TYPE, _under(files, "cpp/primitives/", suffix=".h")
        ),
    }


def measure(files: Files) -> dict[str, int]:
    """Every gauge by name."""
    library = _under(files, "cpp/", "python/")
    python = {
        path: text
        for path, text in _under(files, "python/dlprim/").items()
        if not path.startswith(_APART)
    }
    named = {
        f"files_naming_{name}": _files_with(f"(?i){pattern}", library)
        for name, pattern in (
            ("hardswish", "hardswish"),
            ("rms_norm", "rms_?norm"),
            ("softmax", "softmax"),
        )
    }
    return {
        "tokens_of_primitives_and_graph": _count_tokens(
            _under(files, "cpp/primitives/", "cpp/graph/")
        ),
        "tokens_of_bindings": _count_tokens(_under(files, "cpp/bindings/")),
        "tokens_of_python": _count_tokens(python),
        **_mechanisms(files),
        **named,
        "circles_in_cpp": len(circles(cpp_arrows(files))),
        "arrows_in_circles_in_cpp": _arrows_in_circles(cpp_arrows(files)),
        "circles_in_python": len(circles(python_arrows(files))),
        "arrows_in_circles_in_python": _arrows_in_circles(python_arrows(files)),
        "lines_of_tests": sum(it.count("\n") for it in _under(files, "tests/").values()),
    }


def read_maxima() -> dict[str, int]:
    return {name: int(it) for name, it in tomllib.loads(MAXIMA.read_text()).items()}


def _print(counts: Iterable[tuple[str, int]], maxima: Mapping[str, int]) -> None:
    for name, count in counts:
        print(f"{count:8d} of {maxima.get(name, 0):8d}  {name}")


if __name__ == "__main__":
    sources = read_sources(ROOT)
    _print(measure(sources).items(), read_maxima())
    for language, arrows in (("C++", cpp_arrows(sources)), ("Python", python_arrows(sources))):
        for ring in circles(arrows):
            print(f"{language} folders that reach each other: {', '.join(sorted(ring))}")
