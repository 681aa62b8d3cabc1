"""What a person can see of generated kernels: each decision as a line, the code as text.

Files for profilers are tested in test_profile.py.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import dlprim
from conftest import LEVELS, RunPython, level_of_float32

pytestmark = pytest.mark.any_level

needs_code = pytest.mark.skipif(dlprim.isa() == "scalar", reason="scalar kernels have no code")
needs_objdump = pytest.mark.skipif(shutil.which("objdump") is None, reason="there is no objdump")

# ---------------------------------------------------------------- decisions


@pytest.mark.parametrize("value", [None, "", "0"])
def test_decisions_are_not_printed_unasked(run_python: RunPython, value: str | None) -> None:
    run = run_python("import dlprim; dlprim.Brgemm(3, 4, 5)", DLPRIM_VERBOSE=value)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


DECISIONS = """
import dlprim
print(dlprim._core.detected_isa())
for request in ({}, {}, {"isa": "scalar"}, {"dtype": "bfloat16"}, {"m": 0}, {"isa": "amx"}):
    try:
        kernel = dlprim.Brgemm(**{"m": 3, "n": 40, "k": 5, **request})
        rows, vectors = kernel.tile
        print(f"{kernel.name}|{kernel.isa}|tile {rows}x{vectors}, {len(kernel.code)} bytes")
    except ValueError as error:
        print(error)
"""
GENERATED = re.compile(
    r"dlprim: generated (\w+): (\w+) \((.*)\), (tile \d+x\d+, \d+ bytes), \d+ us"
)


def reason(dtype: str, isa: str, detected: str) -> str:
    """For a kernel that was asked for without a limit of its own."""
    has_pairs = dtype == "bfloat16" and LEVELS.index(detected) >= LEVELS.index("avx512_bf16")
    best = "avx512_bf16" if has_pairs else level_of_float32(detected)
    if isa == detected:
        return "all this machine has"
    return f"{dtype} uses no more" if isa == best else "DLPRIM_MAX_ISA lowered it"


@pytest.mark.parametrize("limit", ["avx2", "avx512", "amx"])
def test_decisions_are_printed(run_python: RunPython, limit: str) -> None:
    run = run_python(DECISIONS, DLPRIM_VERBOSE="1", DLPRIM_MAX_ISA=limit)
    assert run.returncode == 0, run.stderr
    detected, first, cached, scalar, bf16, no_rows, no_isa = run.stdout.splitlines()
    lines = run.stderr.splitlines()
    used = min(detected, limit, key=LEVELS.index)
    assert cached == first
    assert lines.pop(0) == f"dlprim: this machine has {detected}, " + (
        "all of it is used" if used == detected else f"{used} is used: DLPRIM_MAX_ISA lowered it"
    )
    refused = [no_rows] if used == "amx" else [no_rows, no_isa]
    assert lines[3:] == [f"dlprim: refused: {sentence}" for sentence in refused]
    reasons = []
    for line, kernel in zip(lines[:3], (first, scalar, bf16), strict=True):
        name, isa, why, facts = GENERATED.fullmatch(line).groups()
        assert "|".join((name, isa, facts)) == kernel
        reasons.append((isa, why))
    assert reasons[0][1] == reason("float32", reasons[0][0], detected)
    assert reasons[2][1] == reason("bfloat16", reasons[2][0], detected)
    if detected != "scalar":
        assert reasons[1][1] == "isa='scalar' lowered it"


# ---------------------------------------------------------------- the environment variables

TWICE = """
import dlprim
for _ in range(2):
    try:
        dlprim.Brgemm(3, 4, 5)
    except ValueError as error:
        print(error)
print(dlprim.kernel_cache_info()["entries"])
"""


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("DLPRIM_JIT_PROFILE", "vtune", "'vtune' is not.*expected perfmap, jitdump or both"),
        ("DLPRIM_JIT_PROFILE", "perfmap,1", "'1' is not.*expected perfmap, jitdump or both"),
        ("DLPRIM_JIT_PROFILE", "perfmap jitdump", "'perfmap jitdump' is not"),
        ("DLPRIM_VERBOSE", "yes", "'yes' is not 0 or 1"),
    ],
)
def test_wrong_value_is_named(
    run_python: RunPython, variable: str, value: str, expected: str
) -> None:
    """By every kernel that is asked for; the import itself works."""
    run = run_python(TWICE, **{variable: value})
    assert run.stderr == ""
    first, second, entries = run.stdout.splitlines()
    assert re.match(f"environment variable {variable}: {expected}", first)
    assert (second, entries) == (first, "0")


# ---------------------------------------------------------------- code as text


@needs_objdump
def test_disassembly_has_a_line_per_instruction(isa: str) -> None:
    kernel = dlprim.Brgemm(6, 40, 7, isa=isa)
    text = kernel.disassemble()
    if isa == "scalar":
        assert text == ""
        return
    lines = text.splitlines()
    assert all(re.match(r" +[0-9a-f]+:\t\w", line) for line in lines)
    register = {"avx2": "ymm"}.get(isa, "zmm")
    assert re.search(rf"vfmadd231ps {register}\d+,", text)
    assert any(line.endswith("\tret") for line in lines)


@needs_objdump
@pytest.mark.skipif(
    LEVELS.index(dlprim.isa()) < LEVELS.index("avx512_bf16"), reason="vdpbf16ps does not run here"
)
def test_disassembly_of_bf16() -> None:
    kernel = dlprim.Brgemm(6, 40, 7, dtype="bfloat16", isa="avx512_bf16")
    assert re.search(r"vdpbf16ps zmm\d+,zmm\d+,", kernel.disassemble())


@needs_code
def test_disassembly_without_objdump_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"objdump of GNU binutils.*apt-get install binutils"):
        dlprim.Brgemm(3, 4, 5).disassemble()
    assert dlprim.Brgemm(3, 4, 5, isa="scalar").disassemble() == ""


@needs_code
def test_failing_objdump_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "objdump"
    program.write_text("#!/bin/sh\necho 'no such architecture' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="objdump failed: no such architecture"):
        dlprim.Brgemm(3, 4, 5).disassemble()
