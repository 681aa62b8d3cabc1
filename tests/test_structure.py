"""The rules that keep the sources readable: who includes whom, how long a file is, what is absent.

They read the checkout these tests lie in, not the installed package.
"""

from __future__ import annotations

import functools
import re
from itertools import takewhile
from pathlib import Path

import pytest

from source_files import CPP, CPP_FILES, OWN_FILES, PYTHON_FILES, ROOT, name_of, names_of

pytestmark = pytest.mark.any_level

# What the files of a layer may include besides the standard library.
LAYERS = {
    "jit": {"jit", "xbyak"},
    "brgemm": {"jit", "brgemm", "xbyak"},
    "rows": {"jit", "rows", "xbyak"},
    "moves": {"jit", "moves", "xbyak"},
    "streams": {"jit", "streams", "xbyak"},
    "panels": {"jit", "panels", "xbyak"},
    "lang": {"lang"},
    "primitives": {"jit", "brgemm", "rows", "moves", "streams", "panels", "lang", "primitives"},
    "graph": {"jit", "primitives", "graph"},
    "bindings": {
        *{"jit", "brgemm", "rows", "moves", "streams", "panels"},
        *{"lang", "primitives", "graph", "bindings"},
        "pybind11",
    },
}
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
    "attention": {"tensor", "reorder", "programs"},
    "linear": {"tensor", "reorder", "nest", "layers", "programs", "products", "statements"},
    "rnn": {"tensor", "reorder", "nest", "programs"},
    "winograd": {"tensor", "reorder", "nest", "conv"},
    "depthwise": {"tensor", "reorder", "nest", "conv"},
    "conv": {"tensor", "reorder", "nest", "layers", "winograd", "depthwise"},
    "volumes": {"tensor", "reorder", "nest", "statements", "mapping", "products", "conv"},
}
SYSTEM_HEADERS = {
    "linux/futex.h", "sys/mman.h", "sys/resource.h", "sys/stat.h", "sys/syscall.h", "unistd.h",
    "pthread.h", "fcntl.h",
}  # fmt: skip


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


def test_includes_point_downwards() -> None:
    def upward(path: Path) -> bool:
        below = LAYERS[path.relative_to(CPP).parts[0]]
        known = SYSTEM_HEADERS
        layered = [name for name in includes(path) if "/" in name and name not in known]
        return any(name.split("/")[0] not in below for name in layered)

    assert names_of(CPP_FILES, upward) == []


def test_each_dependency_has_one_place() -> None:
    """Threads in team.cpp, Python in the bindings, Xbyak in what generates code."""
    threads = re.compile(r"\bomp_\w+\(|\bpthread_create\b|\bstd::(thread|jthread|async)\b")
    team = CPP / "primitives" / "tensor" / "team.cpp"
    others = [path for path in CPP_FILES if path != team]
    assert threads.search(team.read_text())
    assert names_of(others, lambda path: threads.search(path.read_text())) == []

    python = re.compile(r"\bpy(bind11)?::|\bPy(Object|_)")
    core = [path for path in CPP_FILES if path.relative_to(CPP).parts[0] != "bindings"]
    assert names_of(core, lambda path: python.search(path.read_text())) == []

    def generates(path: Path) -> bool:
        return "xbyak" in LAYERS[path.relative_to(CPP).parts[0]] and path not in INSTALLED

    plain = [path for path in CPP_FILES if not generates(path)]
    assert names_of(plain, lambda path: "xbyak" in path.read_text().lower()) == []


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
            named = re.search(r"(?m)^\s*(import|from) mpi4py|\bMPI\.", path.read_text())
            assert not named, name_of(path)


def test_headers_have_a_guard_and_say_why_they_are_there() -> None:
    def explained(path: Path) -> bool:
        lines = list(takewhile(lambda it: it != "#pragma once", path.read_text().splitlines()))
        return 1 <= len(lines) <= 15 and all(it.startswith("//") for it in lines)

    assert names_of(CPP.rglob("*.h"), lambda path: not explained(path)) == []


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


def test_files_have_a_purpose_and_no_loose_ends() -> None:
    vague = {"util", "utils", "common", "helper", "helpers", "misc"}
    files = [*OWN_FILES, *PYTHON_FILES]
    assert names_of(files, lambda path: vague & {*path.stem.lower().split("_")}) == []
    loose = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    others = [path for path in files if path != Path(__file__)]
    assert names_of(others, lambda path: loose.search(path.read_text())) == []


def test_nothing_is_compiled_for_this_machine_only() -> None:
    files = [ROOT / "CMakeLists.txt", *CPP.rglob("CMakeLists.txt"), *ROOT.glob("cmake/*")]
    for path in files:
        flags = re.sub(r"#.*", "", path.read_text())
        assert not re.search(r"-m(arch|tune|avx|fma)|-ffast-math|-Ofast", flags), name_of(path)
