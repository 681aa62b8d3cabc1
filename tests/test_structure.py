"""The rules that keep the sources readable: who includes whom, how long a file is, what is absent.

They read the checkout these tests lie in, not the installed package.
"""

from __future__ import annotations

import ast
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
    "primitives": {"jit", "brgemm", "primitives", "hwy"},
    "bindings": {"jit", "brgemm", "primitives", "bindings", "pybind11"},
}
SYSTEM_HEADERS = {"sys/mman.h", "sys/stat.h", "sys/syscall.h", "unistd.h", "pthread.h", "fcntl.h"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def includes(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', path.read_text(), re.MULTILINE)


def installed(path: Path) -> bool:
    """As cpp/CMakeLists.txt says: all headers of the two layers but those it excludes."""
    rules = (CPP / "CMakeLists.txt").read_text()
    excluded = re.findall(r'PATTERN "([^"]+)" EXCLUDE', rules)
    return (
        path.suffix == ".h"
        and path.relative_to(CPP).parts[0] != "bindings"
        and not any(path.match(pattern) for pattern in excluded)
    )


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
    if path.parent not in {CPP / "jit", CPP / "brgemm"} or installed(path):
        assert "xbyak" not in text.lower()
    if installed(path):
        assert not any(name.startswith("hwy/") for name in names)


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
    repeated = path.name.endswith("-inl.h")  # Highway's: included once per target
    guard = lines.index("#pragma once") if not repeated else 2
    assert 1 <= guard <= 15
    assert all(line.startswith("//") for line in lines[:guard])


# ---------------------------------------------------------------- sizes


@pytest.mark.parametrize("path", [*OWN_FILES, *PYTHON_FILES], ids=name_of)
def test_file_is_short(path: Path) -> None:
    """Docstrings do not count: what a user reads is as long as it has to be."""
    text = path.read_text()
    lines = len(text.splitlines())
    if path.suffix == ".py":
        nodes = (ast.Module, ast.ClassDef, ast.FunctionDef)
        documented = (it for it in ast.walk(ast.parse(text)) if isinstance(it, nodes))
        lines -= sum((ast.get_docstring(it, clean=False) or "").count("\n") for it in documented)
    assert lines <= (400 if path.name.startswith("emit_") else 300)


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
    pattern = r"^(?:inline|constexpr|HWY_INLINE)\b[^;={}()]*?\b(\w+)\(([^()]*)\)[^;{}()]*\{"
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


def test_fetches_ahead_are_no_empty_function_to_their_callers() -> None:
    """GCC leaves out calls of a function that it sees only prefetch."""
    text = (CPP / "primitives" / "depthwise" / "depthwise_rows.cpp").read_text()
    assert re.search(r"DLPRIM_OPAQUE __attribute__\(\(noipa\)\)", text)
    assert re.search(r"^DLPRIM_OPAQUE void fetch_ahead\(", text, re.MULTILINE)


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
