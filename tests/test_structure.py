"""The rules that keep the sources readable: who includes whom, how long a file is, what is absent.

They read the checkout these tests lie in, not the installed package.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CPP = ROOT / "cpp"

if not (CPP / "brgemm").is_dir():
    pytest.skip(f"{ROOT} holds no C++ sources", allow_module_level=True)

CPP_FILES = sorted(path for path in CPP.rglob("*") if path.suffix in {".cpp", ".h"})
OWN_FILES = [*CPP_FILES, *sorted((ROOT / "tests" / "cpp").rglob("*.cpp"))]
PYTHON_FILES = sorted(
    path for folder in ("python", "tests", "bench") for path in (ROOT / folder).rglob("*.py")
)

# What the files of a layer may include besides the standard library.
LAYERS = {
    "jit": {"jit", "xbyak"},
    "brgemm": {"jit", "brgemm", "xbyak"},
    "rows": {"jit", "rows", "xbyak"},
    "moves": {"jit", "moves", "xbyak"},
    "lang": {"lang"},
    "primitives": {"jit", "brgemm", "rows", "moves", "lang", "primitives"},
    "graph": {"jit", "primitives", "graph"},
    "bindings": {
        *{"jit", "brgemm", "rows", "moves", "lang", "primitives", "graph", "bindings"},
        "pybind11",
    },
}
# Parts of under 40 lines, a header with its source, and why they stand alone.
SMALL_PARTS = {
    "jit/activation": "known to planners of every layer, without the assembler",
    "jit/dtype": "named by specs of every layer; the code for it needs Xbyak",
    "lang/expression": "a value that passes over definitions share",
    "brgemm/amx/kept_tiles": "what callers of kernels hold",
    "brgemm/amx/tile_frame": "what stages of emitted code share on the stack",
    "brgemm/emit": "keeps Xbyak out of brgemm.cpp",
    "bindings/register": "what module.cpp and every file of bindings share",
}
# Folders of more than a dozen parts, and how many they have at most.
MOST_PARTS = {"conv": 13, "layers": 18, "nest": 14, "brgemm": 13}
# From a source of primitives down to a header that includes no other of them.
MOST_FLOORS = 7
# What the files of a folder of primitives may include besides each other. The ways to compute a
# convolution (winograd, depthwise) know its shape and layout; which one runs is conv2d's choice.
FOLDERS: dict[str, set[str]] = {
    "tensor": set(),
    "reorder": {"tensor"},
    "nest": {"tensor", "reorder"},
    "programs": {"tensor"},
    "statements": {"tensor", "reorder", "programs"},
    "mapping": {"tensor", "nest", "statements"},
    "products": {"tensor", "reorder", "nest", "programs", "statements", "mapping", "conv"},
    "formulas": {
        "tensor",
        "reorder",
        "nest",
        "programs",
        "statements",
        "mapping",
        "products",
    },
    "layers": {"tensor", "reorder", "nest", "programs"},
    "attention": {"tensor", "reorder"},
    "linear": {"tensor", "reorder", "nest", "layers", "programs", "products", "statements"},
    "rnn": {"tensor", "reorder", "nest", "programs"},
    "winograd": {"tensor", "reorder", "nest", "conv"},
    "depthwise": {"tensor", "reorder", "nest", "conv"},
    "conv": {"tensor", "reorder", "nest", "layers", "winograd", "depthwise"},
}
SYSTEM_HEADERS = {"sys/mman.h", "sys/stat.h", "sys/syscall.h", "unistd.h", "pthread.h", "fcntl.h"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def includes(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', path.read_text(), re.MULTILINE)


def own_includes(path: Path) -> list[Path]:
    return [CPP / name for name in includes(path) if (CPP / name).is_file()]


def installed_headers() -> set[Path]:
    """As cpp/CMakeLists.txt says: the headers it names, and what these include."""
    named = re.search(r"set\(headers\s([^)]*)\)", (CPP / "CMakeLists.txt").read_text())
    assert named is not None
    waiting, found = [CPP / name for name in named[1].split()], set[Path]()
    while waiting:
        header = waiting.pop()
        if header not in found:
            found.add(header)
            waiting += own_includes(header)
    return found


INSTALLED = installed_headers()


# ---------------------------------------------------------------- dependencies


@pytest.mark.parametrize("path", CPP_FILES, ids=name_of)
def test_includes_point_downwards(path: Path) -> None:
    layer = path.relative_to(CPP).parts[0]
    for name in includes(path):
        if name in SYSTEM_HEADERS or name == "omp.h" or "/" not in name:
            continue
        assert name.split("/")[0] in LAYERS[layer]


@pytest.mark.parametrize("path", CPP_FILES, ids=name_of)
def test_each_dependency_has_one_place(path: Path) -> None:
    text, names = path.read_text(), includes(path)
    if path != CPP / "primitives" / "tensor" / "parallel.cpp":
        assert "omp.h" not in names
        assert not re.search(r"#\s*pragma\s+omp|\bomp_\w+\(", text)
        assert not re.search(r"\bstd::(thread|jthread|async)\b", text)
    if path.relative_to(CPP).parts[0] != "bindings":
        assert not re.search(r"\bpy(bind11)?::|\bPy(Object|_)", text)
    if "xbyak" not in LAYERS[path.relative_to(CPP).parts[0]] or path in INSTALLED:
        assert "xbyak" not in text.lower()


def test_folders_of_primitives_build_on_each_other_in_order() -> None:
    for path in sorted((CPP / "primitives").rglob("*.*")):
        folder = path.parent.name
        for included in own_includes(path):
            if included.parts[len(CPP.parts)] == "primitives":
                below = FOLDERS[folder] | {folder}
                assert included.parent.name in below, f"{name_of(path)}: {name_of(included)}"


def test_no_two_types_have_one_name() -> None:
    """The linker keeps one of two functions of templates that differ in such types alone."""
    pattern = r"^(?:struct|class|enum class) (\w+)(?: final)?(?: : [^{;]*)? \{"
    known: dict[str, Path] = {}
    for path in CPP_FILES:
        space = "bindings" if "bindings" in path.parts else "core"
        # What a source has in no anonymous namespace is seen elsewhere, too.
        text = re.sub(
            r"^namespace \{$.*?^\}  // namespace$", "", path.read_text(), flags=re.M | re.S
        )
        for name in re.findall(pattern, text, re.MULTILINE):
            first = known.setdefault(f"{space} {name}", path)
            assert first == path, f"{name} is in {name_of(first)} and in {name_of(path)}"


def test_no_header_includes_itself_again() -> None:
    def visit(path: Path, above: tuple[Path, ...]) -> None:
        assert path not in above, " -> ".join(map(name_of, [*above, path]))
        if path not in seen:
            for included in own_includes(path):
                visit(included, (*above, path))
            seen.add(path)

    seen: set[Path] = set()
    for path in CPP_FILES:
        visit(path, ())


def test_primitives_have_few_floors() -> None:
    @functools.cache
    def floors(path: Path) -> list[Path]:
        below = [it for it in own_includes(path) if "primitives" in it.parts]
        return [path, *max(map(floors, below), key=len, default=[])]

    highest = max(map(floors, (CPP / "primitives").rglob("*.cpp")), key=len)
    assert len(highest) <= MOST_FLOORS, " -> ".join(map(name_of, highest))


def test_only_headers_for_users_are_installed() -> None:
    """None that needs a third party, and the parts that have no use of their own stay inside."""
    names = {name_of(path) for path in INSTALLED}
    assert {"cpp/brgemm/brgemm.h", "cpp/primitives/conv/conv2d.h"} <= names
    assert not any(name.endswith(("_rows.h", "_assembler.h")) for name in names)
    assert len(names) < len(list(CPP.rglob("*.h"))) / 2


def test_only_bindings_reach_the_core_through_python() -> None:
    """Of the package's modules, `_core` is imported by name; nothing hands it on."""
    import dlprim

    assert "_core" not in dlprim.__all__


def test_only_distributed_knows_mpi() -> None:
    package = ROOT / "python" / "dlprim"
    for path in package.rglob("*.py"):
        if path.parent != package / "distributed":
            assert not re.search(r"import.*\bmpi4py|\bMPI\.", path.read_text()), name_of(path)


@pytest.mark.parametrize("path", sorted(CPP.rglob("*.h")), ids=name_of)
def test_header_has_a_guard_and_says_why_it_is_there(path: Path) -> None:
    lines = path.read_text().splitlines()
    guard = lines.index("#pragma once")
    assert 1 <= guard <= 15
    assert all(line.startswith("//") for line in lines[:guard])


# ---------------------------------------------------------------- sizes


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


@pytest.mark.parametrize("path", [*OWN_FILES, *PYTHON_FILES], ids=name_of)
def test_file_is_short(path: Path) -> None:
    text = path.read_text()
    lines = code_lines_of_python(text) if path.suffix == ".py" else code_lines_of_cpp(text)
    assert lines <= (400 if path.name.startswith("emit_") else 300)


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


@pytest.mark.parametrize("path", PYTHON_FILES, ids=name_of)
def test_python_functions_are_short_and_modules_say_why(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            documented = ast.get_docstring(node, clean=False) or ""
            length = node.end_lineno - node.lineno + 1 - documented.count("\n")
            assert length <= 50, node.name


# ---------------------------------------------------------------- one definition


def free_functions(text: str) -> list[str]:
    """Names and parameter types of the functions that a header defines outside of classes."""
    text = re.sub(r"//.*", "", text)
    pattern = r"^(?:inline|constexpr)\b[^;={}()]*?\b(\w+)\(([^()]*)\)[^;{}()]*\{"
    found = []
    for name, parameters in re.findall(pattern, text, re.MULTILINE):
        types = [re.sub(r"\s*\b\w+\s*(=.*)?$", "", one.strip()) for one in parameters.split(",")]
        found.append(f"{name}({', '.join(types)})")
    return found


def test_no_two_headers_define_a_function_of_one_signature() -> None:
    """Where two bodies of one inline function meet in a program the linker takes either."""
    places: dict[str, Path] = {}
    for path in CPP.rglob("*.h"):
        folder = path.relative_to(CPP).parts[0]
        for signature in set(free_functions(path.read_text())):
            other = places.setdefault(f"{folder == 'bindings'} {signature}", path)
            assert other == path, f"{signature} is defined in {name_of(other)} and {name_of(path)}"
    assert len(places) > 60  # what the pattern finds, so that it cannot come to find nothing


# ---------------------------------------------------------------- absent


@pytest.mark.parametrize("path", [*OWN_FILES, *PYTHON_FILES], ids=name_of)
def test_file_has_a_purpose_and_no_loose_ends(path: Path) -> None:
    vague = {"util", "utils", "common", "helper", "helpers", "misc"}
    assert vague.isdisjoint(path.stem.lower().split("_"))
    if path != Path(__file__):
        assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", path.read_text())


def test_nothing_is_compiled_for_this_machine_only() -> None:
    files = [ROOT / "CMakeLists.txt", *CPP.rglob("CMakeLists.txt"), *ROOT.glob("cmake/*")]
    for path in files:
        flags = re.sub(r"#.*", "", path.read_text())
        assert not re.search(r"-m(arch|tune|avx|fma)|-ffast-math|-Ofast", flags), name_of(path)
