"""The files that tell profilers the names of generated kernels.

The environment variables are read once per process, so each test has a process of its own.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dlprim
from conftest import RunPython

pytestmark = pytest.mark.any_level

VARIABLES = ("DLPRIM_JIT_PROFILE", "DLPRIM_JIT_DUMP")

needs_code = pytest.mark.skipif(dlprim.isa() == "scalar", reason="scalar kernels have no code")


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


# Programs print what they know of their kernels; a perf map is read and removed where its name is
# known.
START = """
import ctypes, json, os, sys, threading, time
import dlprim

def perf_map():
    return f"/tmp/perf-{os.getpid()}.map"

def take_perf_map():
    with open(perf_map()) as file:
        lines = [line.split() for line in file]
    os.remove(perf_map())
    return [
        (name, ctypes.string_at(int(start, 16), int(size, 16)).hex()) for start, size, name in lines
    ]

def seen(kernels):
    return [(kernel.name, kernel.code.hex()) for kernel in kernels]
"""


def run_json(run_python: RunPython, source: str, *arguments: str, **environment: str) -> Any:
    run = run_python(START + source, *arguments, **environment)
    assert (run.returncode, run.stderr) == (0, "")
    return json.loads(run.stdout)


def records(dump: bytes) -> Iterator[tuple[int, int, int, str, bytes, int]]:
    """Nanoseconds, process, address, name, code and index of each load record."""
    position = 40
    while position < len(dump):
        kind, size, nanoseconds = struct.unpack_from("<IIQ", dump, position)
        process, thread, address, code_address, code_size, index = struct.unpack_from(
            "<IIQQQQ", dump, position + 16
        )
        name, _, code = dump[position + 56 : position + size].partition(b"\0")
        assert (kind, code_size, code_address) == (0, len(code), address)
        assert thread > 0
        yield nanoseconds, process, address, name.decode(), code, index
        position += size
    assert position == len(dump)


def named_code(dump: bytes) -> list[list[str]]:
    return [[name, code.hex()] for _, _, _, name, code, _ in records(dump)]


# ---------------------------------------------------------------- the perf map


@needs_code
def test_perf_map_names_the_memory_that_holds_the_code(run_python: RunPython) -> None:
    source = """
kernels = [dlprim.Brgemm(m, 40, 5) for m in range(1, 6)]
dlprim.Brgemm(1, 40, 5)
print(json.dumps([take_perf_map(), seen(kernels)]))
"""
    in_map, kernels = run_json(run_python, source, DLPRIM_JIT_PROFILE="perfmap")
    assert in_map == kernels
    assert len(in_map) == 5


@needs_code
def test_perf_map_is_added_to_and_its_format_is_that_of_perf(run_python: RunPython) -> None:
    """Python and other generators write to the same file."""
    source = """
with open(perf_map(), "w") as file:
    file.write("1000 10 of_another_generator\\n")
kernel = dlprim.Brgemm(3, 4, 5)
print(json.dumps([open(perf_map()).read(), kernel.name]))
os.remove(perf_map())
"""
    text, name = run_json(run_python, source, DLPRIM_JIT_PROFILE="perfmap")
    first, second = text.splitlines()
    assert first == "1000 10 of_another_generator"
    assert re.fullmatch(rf"[0-9a-f]+ [0-9a-f]+ {name}", second)


@needs_code
def test_code_with_a_perf_map_lies_where_perf_looks_it_up(run_python: RunPython) -> None:
    """Which is anonymous memory, and that is never writable and executable."""
    source = """
dlprim.Brgemm(3, 4, 5)
start = int(open(perf_map()).read().split()[0], 16)
os.remove(perf_map())
for line in open("/proc/self/maps"):
    first, last = (int(address, 16) for address in line.split()[0].split("-"))
    if first <= start < last:
        print(json.dumps(line.split()[1:]))
"""
    rights, _, _, inode = run_json(run_python, source, DLPRIM_JIT_PROFILE="perfmap")
    assert (rights, inode) == ("r-xp", "0")


def test_without_the_variables_nothing_is_written(run_python: RunPython, tmp_path: Path) -> None:
    source = """
os.chdir(sys.argv[1])
dlprim.Brgemm(3, 4, 5)
print(json.dumps(os.path.exists(perf_map())))
"""
    assert run_json(run_python, source, str(tmp_path)) is False
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- the jitdump


@needs_code
def test_jitdump_is_as_documented(run_python: RunPython, tmp_path: Path) -> None:
    """And lies in the folder that was the current one at the first kernel."""
    source = """
os.chdir(sys.argv[1])
before = time.monotonic_ns()
kernels = [dlprim.Brgemm(1, 40, 5)]
os.chdir("/")
kernels += [dlprim.Brgemm(m, 40, 5) for m in range(2, 6)]
after = time.monotonic_ns()
marks = [line.split()[1] for line in open("/proc/self/maps") if f"jit-{os.getpid()}.dump" in line]
print(json.dumps([os.getpid(), before, after, marks, seen(kernels)]))
"""
    process, before, after, marks, kernels = run_json(
        run_python, source, str(tmp_path), DLPRIM_JIT_PROFILE="jitdump"
    )
    (path,) = tmp_path.iterdir()
    assert path.name == f"jit-{process}.dump"
    dump = path.read_bytes()
    magic, version, size, machine, _, of, opened, flags = struct.unpack_from("<IIIIIIQQ", dump)
    assert (magic, version, size, machine) == (0x4A695444, 1, 40, 62)
    assert (of, flags) == (process, 0)
    assert named_code(dump) == kernels
    times, processes, addresses, _, _, indices = zip(*records(dump), strict=True)
    assert list(times) == sorted(times)
    assert before <= opened <= times[0]
    assert times[-1] <= after
    assert set(processes) == {process}
    assert len(set(addresses)) == len(kernels)
    assert indices == tuple(range(len(kernels)))
    assert marks == ["r-xp"]


FORK = """
os.chdir(sys.argv[1])
first = dlprim.Brgemm(1, 40, 5)
reader, writer = os.pipe()
if os.fork() == 0:
    child = dlprim.Brgemm(2, 40, 5)
    os.write(writer, json.dumps([os.getpid(), take_perf_map(), seen([child])]).encode())
    os._exit(0)
os.wait()
second = dlprim.Brgemm(3, 40, 5)
of_child = json.loads(os.read(reader, 60000))
print(json.dumps([of_child, [os.getpid(), take_perf_map(), seen([first, second])]]))
"""


@needs_code
def test_forked_child_has_files_of_its_own(run_python: RunPython, tmp_path: Path) -> None:
    both = run_json(run_python, FORK, str(tmp_path), DLPRIM_JIT_PROFILE="perfmap,jitdump")
    assert len({process for process, _, _ in both}) == 2
    assert len(list(tmp_path.iterdir())) == 2
    for process, in_map, kernels in both:
        dump = (tmp_path / f"jit-{process}.dump").read_bytes()
        assert in_map == named_code(dump) == kernels
        assert {each[1] for each in records(dump)} == {process}
        assert struct.unpack_from("<I", dump, 20) == (process,)


THREADS = """
os.chdir(sys.argv[1])
made = []
def work(thread):
    for n in range(1, 21):
        made.append(dlprim.Brgemm(1 + thread, n, 3))
threads = [threading.Thread(target=work, args=(thread,)) for thread in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps([take_perf_map(), seen(made)]))
"""


@needs_code
def test_many_threads_write_whole_entries(run_python: RunPython, tmp_path: Path) -> None:
    in_map, kernels = run_json(
        run_python, THREADS, str(tmp_path), DLPRIM_JIT_PROFILE="jitdump,perfmap"
    )
    (path,) = tmp_path.iterdir()
    assert len(kernels) == 160
    assert sorted(in_map) == sorted(kernels) == sorted(named_code(path.read_bytes()))


# ---------------------------------------------------------------- code on disk


@needs_code
def test_dump_folder_gets_the_code(run_python: RunPython, tmp_path: Path) -> None:
    """It is made where it is missing, and a jitdump goes there too."""
    folder = tmp_path / "new" / "folder"
    source = """
kernels = [dlprim.Brgemm(m, 40, 5, bias=True) for m in range(1, 4)]
kernels.append(dlprim.Brgemm(8, 40, 6, dtype="bfloat16"))
print(json.dumps([os.getpid(), seen(kernels)]))
"""
    process, kernels = run_json(
        run_python, source, DLPRIM_JIT_DUMP=str(folder), DLPRIM_JIT_PROFILE="jitdump"
    )
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert named_code(files.pop(f"jit-{process}.dump")) == kernels
    assert files == {f"{name}.bin": bytes.fromhex(code) for name, code in kernels}


def test_scalar_kernels_leave_no_files(run_python: RunPython, tmp_path: Path) -> None:
    source = """
dlprim.Brgemm(3, 4, 5, isa="scalar")
print(json.dumps(os.path.exists(perf_map())))
"""
    environment = {"DLPRIM_JIT_DUMP": str(tmp_path), "DLPRIM_JIT_PROFILE": "jitdump,perfmap"}
    assert run_json(run_python, source, **environment) is False
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("variable", VARIABLES)
def test_empty_value_is_none(run_python: RunPython, tmp_path: Path, variable: str) -> None:
    source = f"import os, dlprim; os.chdir({str(tmp_path)!r}); dlprim.Brgemm(3, 4, 5)"
    run = run_python(source, **{variable: ""})
    assert (run.returncode, run.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


@needs_code
def test_place_that_cannot_be_written_is_one_warning(run_python: RunPython, tmp_path: Path) -> None:
    """And loses no kernel."""
    (tmp_path / "file").touch()
    source = """
import numpy
os.mkdir(perf_map())
ones = numpy.ones((3, 3), numpy.float32)
for activation in (None, "relu"):
    kernel = dlprim.Brgemm(3, 3, 3, activation=activation)
    result = numpy.empty_like(ones)
    kernel(ones, ones, result)
    assert (result == 3).all()
os.rmdir(perf_map())
"""
    run = run_python(
        START + source,
        DLPRIM_JIT_PROFILE="perfmap,jitdump",
        DLPRIM_JIT_DUMP=str(tmp_path / "file" / "folder"),
    )
    assert run.returncode == 0, run.stderr
    perf_map, jit_dump, code = run.stderr.splitlines()
    warning = "dlprim: warning: "
    assert re.fullmatch(
        rf"{warning}DLPRIM_JIT_PROFILE=perfmap: cannot write /tmp/perf-\d+.map: Is a directory",
        perf_map,
    )
    assert re.fullmatch(
        rf"{warning}DLPRIM_JIT_PROFILE=jitdump: cannot write .*/jit-\d+.dump: Not a directory",
        jit_dump,
    )
    assert re.fullmatch(
        rf"{warning}DLPRIM_JIT_DUMP: cannot write .*/file/folder/brgemm_\w+.bin: Not a directory",
        code,
    )
