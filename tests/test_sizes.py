"""The rules that keep files and functions short, and folders small."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from source_files import CPP, CPP_FILES, OWN_FILES, PYTHON_FILES, name_of, names_of

pytestmark = pytest.mark.any_level

# Parts of under 40 lines, a header with its source, and why they stand alone.
SMALL_PARTS = {
    "lang/expression": "a value that passes over definitions share",
    "brgemm/amx/kept_tiles": "what callers of kernels hold",
    "brgemm/amx/tile_frame": "what stages of emitted code share on the stack",
    "brgemm/emit": "keeps Xbyak out of brgemm.cpp",
    "bindings/arrays/without_gil": "what all bindings run their work in",
    "bindings/register": "what module.cpp and every file of bindings share",
}
# Folders of more than a dozen parts, and how many they have at most.
MOST_PARTS = {
    "attention": 13,
    "conv": 13,
    "layers": 18,
    "nest": 14,
    "brgemm": 13,
    "jit": 13,
    "graph": 13,
    "primitives": 13,
}


def code_lines_of_cpp(text: str) -> int:
    """Lines without those that only declare: prototypes, members, and the comments on them.

    A brace behind `namespace`, `class`, `struct`, `union` or `enum` opens declarations, any other
    one code; the lines from the first of a definition to its last brace count.
    """
    text = re.sub(r"//.*|'(\\?.)'|\"(\\.|[^\"\\])*\"", "", text)
    scopes: list[bool] = []  # of the open braces: whether code is inside
    count, start, statement = 0, 0, ""
    for number, line in enumerate(text.splitlines()):
        counted = any(scopes)
        for letter in line:
            if not statement.strip() and not any(scopes):
                start = number
            if letter == "{":
                declares = re.search(r"\b(namespace|class|struct|union|enum)\b[^()=]*$", statement)
                if not any(scopes) and not declares:
                    count += number - start
                    counted = True
                scopes.append(declares is None)
                statement = ""
            elif letter == "}":
                scopes.pop()
                statement = ""
            else:
                statement = "" if letter == ";" else statement + letter
        count += counted
    return count


def code_lines_of_python(text: str) -> int:
    """Lines without docstrings and the signatures of functions."""
    count = len(text.splitlines())
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            first = node.body[0]
            if ast.get_docstring(node, clean=False) is not None:
                count -= first.end_lineno - first.lineno + 1
            if isinstance(node, ast.FunctionDef):
                count -= first.lineno - node.lineno
    return count


def test_declarations_do_not_count() -> None:
    text = "struct It {\n    int a;\n    int get() const;\n};\n\n"
    assert code_lines_of_cpp(text) == 0
    assert code_lines_of_cpp(text + "int twice(int a,\n int b) {\n    return a + b;\n}\n") == 4
    assert code_lines_of_python('"""Why."""\ndef f(a,\n b):\n    """What."""\n    return a\n') == 1


def test_files_are_short() -> None:
    def long(path: Path) -> bool:
        text = path.read_text()
        lines = code_lines_of_python(text) if path.suffix == ".py" else code_lines_of_cpp(text)
        return lines > (400 if path.name.startswith("emit_") else 300)

    assert names_of([*OWN_FILES, *PYTHON_FILES], long) == []


def test_no_part_is_too_small_without_a_reason() -> None:
    """Of a header and its source together."""
    lines: dict[str, int] = {}
    for path in CPP_FILES:
        stem = str(path.relative_to(CPP).with_suffix(""))
        lines[stem] = lines.get(stem, 0) + len(path.read_text().splitlines())
    assert {stem for stem, count in lines.items() if count < 40} == set(SMALL_PARTS)


def test_folders_hold_about_a_dozen_parts() -> None:
    for folder in {path.parent for path in CPP_FILES}:
        parts = {path.stem for path in CPP_FILES if path.parent == folder}
        assert len(parts) <= MOST_PARTS.get(folder.name, 12), name_of(folder)


def long_functions(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            documented = ast.get_docstring(node, clean=False) or ""
            if node.end_lineno - node.lineno + 1 - documented.count("\n") > 50:
                found.append(f"{name_of(path)}: {node.name}")
    return found


def test_python_functions_are_short_and_modules_say_why() -> None:
    silent = [it for it in PYTHON_FILES if not ast.get_docstring(ast.parse(it.read_text()))]
    assert list(map(name_of, silent)) == []
    assert [it for path in PYTHON_FILES for it in long_functions(path)] == []
