"""What kernels run on is visible, can be lowered, and is never both writable and executable."""

from __future__ import annotations

import numpy as np
import pytest

import dlprim
from conftest import BYTE_LEVELS, KERNEL_LEVELS, LEVELS, RunPython, level_of_float32

REPORT = "import dlprim; print(dlprim.isa(), dlprim.Brgemm(5, 50, 7, bias=True).isa)"


def test_isa_is_a_level() -> None:
    assert dlprim.isa() in LEVELS


@pytest.mark.any_level
def test_a_lower_level_is_what_was_asked_for(isa: str) -> None:
    kernel = dlprim.Brgemm(5, 50, 7, isa=isa)
    assert kernel.isa == isa
    assert kernel.name.startswith(f"brgemm_{isa}_f32_m5n50k7_")


def test_default_is_the_highest_level() -> None:
    assert dlprim.Brgemm(5, 50, 7).isa == level_of_float32(dlprim.isa())


@pytest.mark.parametrize("level", LEVELS)
def test_level_above_what_runs_is_refused(level: str) -> None:
    if LEVELS.index(level) <= LEVELS.index(dlprim.isa()):
        assert dlprim.Brgemm(1, 1, 1, isa=level).isa in KERNEL_LEVELS
    else:
        with pytest.raises(ValueError, match=f"^isa='{level}' is not usable here.*{dlprim.isa()}"):
            dlprim.Brgemm(1, 1, 1, isa=level)


# ---------------------------------------------------------------- the environment variable


@pytest.mark.any_level
@pytest.mark.parametrize("level", LEVELS)
def test_environment_variable_lowers_the_level(run_python: RunPython, level: str) -> None:
    unlimited = run_python(REPORT, DLPRIM_MAX_ISA=None).stdout.split()[0]
    expected = min(level, unlimited, key=LEVELS.index)
    run = run_python(REPORT, DLPRIM_MAX_ISA=level)
    assert run.stderr == ""
    used, kernel = run.stdout.split()
    if expected in BYTE_LEVELS:  # or a lower one that the CPU has
        assert used in ("avx2", *BYTE_LEVELS)
        assert LEVELS.index(used) <= LEVELS.index(expected)
    else:
        assert used == expected
    assert kernel == level_of_float32(used)


@pytest.mark.any_level
@pytest.mark.parametrize("level", BYTE_LEVELS)
@pytest.mark.skipif(
    LEVELS.index(dlprim.isa()) < LEVELS.index("avx512"),
    reason=f"needs a level above AVX2, and dlprim.isa() is {dlprim.isa()}",
)
def test_level_between_that_the_cpu_lacks_is_a_lower_one(run_python: RunPython, level: str) -> None:
    """One answer for kernels and for the whole process; a kernel of this level runs or is lower."""
    kernel = dlprim.Brgemm(5, 50, 7, "int8", isa=level)
    assert kernel.isa in ("avx2", *BYTE_LEVELS[: BYTE_LEVELS.index(level) + 1])
    used = run_python("import dlprim; print(dlprim.isa())", DLPRIM_MAX_ISA=level).stdout
    assert used == f"{kernel.isa}\n"
    request = f"import dlprim; dlprim.Brgemm(5, 50, 7, 'int8', isa='{level}')"
    reason = run_python(request, DLPRIM_VERBOSE="1", DLPRIM_MAX_ISA=None).stderr
    lowered = "isa='{}' lowered it" if kernel.isa == level else "this CPU lacks '{}'"
    assert f": {kernel.isa} ({lowered.format(level)})" in reason


@pytest.mark.any_level
@pytest.mark.skipif(dlprim.isa() != "amx", reason="no tiles")
@pytest.mark.parametrize("limit", [None, "avx512"])
def test_refused_tiles_are_a_lower_level_with_a_reason(
    run_python: RunPython, limit: str | None
) -> None:
    """Linux refuses them to a thread whose signal stack has no room for their contents."""
    program = """
import ctypes
class SignalStack(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("flags", ctypes.c_int), ("bytes", ctypes.c_size_t)]
memory = ctypes.create_string_buffer(8192)
stack = SignalStack(ctypes.addressof(memory), 0, len(memory))
assert ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None) == 0
import dlprim
print(dlprim.isa(), dlprim.Brgemm(16, 16, 16, "bfloat16").isa)
"""
    run = run_python(program, DLPRIM_VERBOSE="1", DLPRIM_MAX_ISA=limit)
    level, reason = (
        ("avx512", "DLPRIM_MAX_ISA lowered it")
        if limit
        else ("avx512_bf16", "the operating system refused AMX's tiles")
    )
    assert run.stdout == f"{level} {level}\n"
    assert f"this machine has amx, {level} is used: {reason}\n" in run.stderr
    assert f": {level} ({reason}), " in run.stderr


@pytest.mark.any_level
def test_empty_environment_variable_limits_nothing(run_python: RunPython) -> None:
    reports = [run_python(REPORT, DLPRIM_MAX_ISA=value).stdout for value in ("", None)]
    assert reports[0] == reports[1] != ""


@pytest.mark.any_level
def test_lowered_level_also_bounds_requests(run_python: RunPython) -> None:
    run = run_python("import dlprim; dlprim.Brgemm(1, 1, 1, isa='avx2')", DLPRIM_MAX_ISA="scalar")
    assert run.stderr.endswith(
        "ValueError: isa='avx2' is not usable here; the highest level is 'scalar'\n"
    )


@pytest.mark.any_level
@pytest.mark.parametrize("use", ["isa()", "Brgemm(1, 1, 1)", "linear(x, x)"])
@pytest.mark.parametrize("value", ["avx", "AVX2", "512"])
def test_wrong_environment_variable_is_named(run_python: RunPython, value: str, use: str) -> None:
    """On every use, and the import itself works."""
    once = f"""
try:
    dlprim.{use}
except ValueError as error:
    print(error)
"""
    run = run_python(
        f"import numpy, dlprim\nx = numpy.ones((2, 2), numpy.float32)\n{once * 2}",
        DLPRIM_MAX_ISA=value,
    )
    lines = run.stdout.splitlines()
    assert len(lines) == 2, run.stderr
    for line in lines:
        assert line.startswith(
            f"environment variable DLPRIM_MAX_ISA: '{value}' is not an ISA level"
        )
        assert "expected scalar, avx2, avx2_vnni, " in line


# ---------------------------------------------------------------- what a kernel says of itself


@pytest.mark.any_level
def test_properties(isa: str) -> None:
    kernel = dlprim.Brgemm(64, 64, 64, isa=isa)
    rows, vectors = kernel.tile
    assert 1 <= rows <= 31
    assert 1 <= vectors <= 4
    if isa == "scalar":
        assert kernel.code == b""
    else:
        registers = {"avx2": 16, "avx512": 32}[isa]
        assert rows * vectors + vectors + 1 <= registers
        assert rows * vectors >= registers // 2
        assert kernel.code.endswith(b"\xc3")  # RET
        assert f"{rows}x{vectors}" in kernel.plan
    assert kernel.plan.startswith(kernel.name.removeprefix(f"brgemm_{isa}_"))
    assert repr(kernel) == f"<dlprim.Brgemm {kernel.name}>"


@pytest.mark.any_level
def test_name_says_everything_that_was_asked_for(isa: str) -> None:
    kernel = dlprim.Brgemm(
        3, 4, 5, lda=6, ldb=7, ldc=8, trans_a=True, beta=1, addressing="offset", bias=True,
        activation="relu", isa=isa,
    )  # fmt: skip
    expected = f"brgemm_{isa}_f32_m3n4k5_lda6_ldb7_ldc8_transa_offset_beta1_bias_relu"
    assert kernel.name == expected


def test_properties_are_read_only() -> None:
    kernel = dlprim.Brgemm(1, 1, 1)
    for name in ("isa", "tile", "name", "plan", "code"):
        with pytest.raises(AttributeError):
            setattr(kernel, name, None)


@pytest.mark.any_level
def test_same_request_makes_the_same_code(isa: str) -> None:
    first = dlprim.Brgemm(17, 45, 23, isa=isa).code
    dlprim.kernel_cache_clear()
    assert dlprim.Brgemm(17, 45, 23, isa=isa).code == first


MAPS = """
import numpy, dlprim
def mappings():
    return [line.split() for line in open("/proc/self/maps")]
before = {fields[0] for fields in mappings()}
kernels = [dlprim.Brgemm(m, 40, 5) for m in range(1, 60)]
x = numpy.ones((70, 70), numpy.float32)
dlprim.linear(x, x)
after = mappings()
print(sum("w" in rights and "x" in rights for _, rights, *_ in after))
print(sum("x" in rights and any("dlprim-kernels" in field for field in rest)
          for address, rights, *rest in after if address not in before))
print(kernels[0].isa)
"""


def test_no_page_is_writable_and_executable(run_python: RunPython) -> None:
    run = run_python(MAPS)
    assert (run.returncode, run.stderr) == (0, "")
    writable_code, code, level = run.stdout.split()
    assert int(writable_code) == 0
    assert (int(code) > 0) == (level != "scalar")


@pytest.mark.any_level
def test_vectors_cover_the_columns(isa: str) -> None:
    """A single column needs one vector, however wide."""
    lanes = {"scalar": 1, "avx2": 8, "avx512": 16}[isa]
    assert dlprim.Brgemm(1, 1, 1, isa=isa).tile == (1, 1)
    if lanes > 1:
        assert dlprim.Brgemm(1, 2 * lanes, 4, isa=isa).tile[1] <= 2
        assert np.prod(dlprim.Brgemm(1, 4 * lanes, 4, isa=isa).tile) <= 4
