"""Packing against NumPy, between pages that nobody may touch."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from numpy.typing import NDArray

import dlprim
from bfloat16 import bits_of, random_floats, rounded, special_floats
from conftest import RunPython
from guarded import guarded

pytestmark = pytest.mark.every_level

HAS_ML_DTYPES = importlib.util.find_spec("ml_dtypes") is not None

# One below, at and above every vector length and tile (in elements and in groups), and primes.
SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 61, 64, 67, 97, 128, 131]
EDGES = [1, 2, 3, 15, 16, 17, 37]
KINDS = ["bfloat16", "rounded", "int8", "uint8"]
GROUPS = {"bfloat16": 2, "rounded": 2, "int8": 4, "uint8": 4}


def packed(b: NDArray, group: int) -> NDArray:
    """Plain b (..., k, n) in the layout of the contract."""
    *batch, k, n = b.shape
    padded = np.zeros((*batch, -(-k // group) * group, n), b.dtype)
    padded[..., :k, :] = b
    return padded.reshape(*batch, -(-k // group), group, n).swapaxes(-1, -2)


def draw(kind: str, shape: tuple[int, ...], edge: str = "end") -> NDArray:
    """Any bits at all, in guarded memory."""
    random = np.random.default_rng(list(shape))
    element = {"bfloat16": "u2", "rounded": "f4", "int8": "i1", "uint8": "u1"}[kind]
    array = guarded(int(np.prod(shape)), edge, element)
    array.view(np.uint8)[...] = random.integers(0, 256, array.nbytes, np.uint8)
    return array.reshape(shape)


def expected(kind: str, plain: NDArray) -> NDArray:
    values = rounded(np.ascontiguousarray(plain)) if kind == "rounded" else plain
    return packed(values, GROUPS[kind])


def dtype_of(kind: str) -> str:
    return kind if kind.endswith("int8") else "bfloat16"


def check(kind: str, k: int, n: int, transposed: bool, edge: str = "end") -> None:
    b = draw(kind, (n, k) if transposed else (k, n), edge)
    right = expected(kind, b.T if transposed else b)
    out = guarded(right.size, edge, right.dtype).reshape(right.shape)
    out.fill(77)
    if kind == "rounded":
        out = out.view(dlprim.to_bfloat16(np.zeros(1, np.float32)).dtype)
    result = dlprim.pack_b(b, dtype_of(kind), transposed=transposed, out=out)
    assert result is out
    np.testing.assert_array_equal(bits_of(result), right)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_size_between_guard_pages(kind: str, transposed: bool) -> None:
    for k in SIZES:
        for n in SIZES:
            check(kind, k, n, transposed)
    for k in EDGES:
        for n in EDGES:
            check(kind, k, n, transposed, "begin")


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("k", "n"), [(1501, 401), (401, 1501), (70000, 3), (3, 70000)])
def test_same_bits_for_any_number_of_threads(kind: str, transposed: bool, k: int, n: int) -> None:
    b = draw(kind, (n, k) if transposed else (k, n))
    right = expected(kind, b.T if transposed else b)
    for threads in (1, 2, 3, 4):
        with dlprim.threads(threads):
            result = dlprim.pack_b(b, dtype_of(kind), transposed=transposed)
        np.testing.assert_array_equal(bits_of(result), right)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [(0,), (1,), (2, 3), (150,)])
def test_leading_axes_are_a_batch(kind: str, transposed: bool, batch: tuple[int, ...]) -> None:
    b = draw(kind, (*batch, 23, 18))
    result = dlprim.pack_b(b, dtype_of(kind), transposed=transposed)
    right = expected(kind, b.swapaxes(-1, -2) if transposed else b)
    np.testing.assert_array_equal(bits_of(result), right)
    k = 18 if transposed else 23
    plain = dlprim.unpack_b(result, k, dtype=None if kind.endswith("int8") else "bfloat16")
    assert plain.flags.c_contiguous
    values = rounded(b) if kind == "rounded" else b
    np.testing.assert_array_equal(bits_of(plain), values.swapaxes(-1, -2) if transposed else values)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
@pytest.mark.parametrize("transposed", [False, True])
def test_nothing_to_pack(shape: tuple[int, int], transposed: bool) -> None:
    result = dlprim.pack_b(np.zeros(shape, np.int8), transposed=transposed)
    k, n = shape[::-1] if transposed else shape
    assert result.shape == (-(-k // 4), n, 4)
    assert dlprim.unpack_b(result, k).shape == (k, n)


@pytest.mark.parametrize("transposed", [False, True])
def test_padding_is_zero_whatever_was_there(transposed: bool) -> None:
    out = np.full((2, 40, 2), np.nan, np.float32).astype(dlprim.to_bfloat16(np.ones(1, "f4")).dtype)
    b = np.full((40, 3) if transposed else (3, 40), np.nan, np.float32)
    result = bits_of(dlprim.pack_b(b, "bfloat16", transposed=transposed, out=out))
    np.testing.assert_array_equal(result[1, :, 1], 0)
    np.testing.assert_array_equal(result[1, :, 0], 0x7FC0)


@pytest.mark.parametrize("transposed", [False, True])
def test_packing_rounds_every_kind_of_float(transposed: bool) -> None:
    for x in (special_floats(), random_floats(300_002)):
        b = x.reshape(-1, 2) if transposed else x.reshape(2, -1)
        result = dlprim.pack_b(b, "bfloat16", transposed=transposed)
        right = rounded(np.ascontiguousarray(b.T if transposed else b))
        np.testing.assert_array_equal(bits_of(dlprim.unpack_b(result, 2)), right)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_views_are_packed_as_they_look(kind: str, transposed: bool) -> None:
    b = draw(kind, (44, 66))[::-2, 1::3]
    result = dlprim.pack_b(b, dtype_of(kind), transposed=transposed)
    np.testing.assert_array_equal(bits_of(result), expected(kind, b.T if transposed else b))


def test_results_begin_on_a_cache_line() -> None:
    for n in range(1, 20):
        assert dlprim.pack_b(np.zeros((5, n), np.int8)).ctypes.data % 64 == 0


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(5, 7, 3), (6, 33, 17), (16, 64, 32)])
def test_a_bfloat16_kernel_takes_the_packed_form(m: int, n: int, k: int, transposed: bool) -> None:
    random = np.random.default_rng(4)
    a = dlprim.to_bfloat16(random.standard_normal((2, m, k), np.float32))
    b = random.standard_normal((2, n, k) if transposed else (2, k, n), np.float32)
    c = np.empty((m, n), np.float32)
    dlprim.Brgemm(m, n, k, dtype="bfloat16")(
        a, dlprim.pack_b(b, "bfloat16", transposed=transposed), c
    )
    wide_a = dlprim.to_float32(a).astype(np.float64)
    wide_b = dlprim.to_float32(dlprim.to_bfloat16(b)).astype(np.float64)
    if transposed:
        wide_b = wide_b.swapaxes(-1, -2)
    magnitude = (np.abs(wide_a) @ np.abs(wide_b)).sum(0)
    assert np.all(np.abs(c - (wide_a @ wide_b).sum(0)) <= 2 * k * 2.0**-24 * magnitude)


@pytest.mark.parametrize("transposed", [False, True])
def test_an_int8_kernel_takes_the_packed_form(transposed: bool) -> None:
    random = np.random.default_rng(5)
    a = random.integers(0, 256, (6, 19), np.uint8)
    b = random.integers(-128, 128, (33, 19) if transposed else (19, 33), np.int8)
    c = np.empty((6, 33), np.int32)
    dlprim.Brgemm(6, 33, 19, dtype="uint8")(a, dlprim.pack_b(b, transposed=transposed), c)
    np.testing.assert_array_equal(c, a.astype(np.int32) @ (b.T if transposed else b))


def test_without_ml_dtypes_results_are_bits(run_python: RunPython) -> None:
    result = run_python(
        "import sys; sys.modules['ml_dtypes'] = None\n"
        "import numpy as np, dlprim\n"
        "half = dlprim.to_bfloat16(np.array([1, -2], np.float32))\n"
        "assert half.dtype == np.uint16 and half.tolist() == [0x3F80, 0xC000]\n"
        "packed = dlprim.pack_b(np.ones((2, 3), np.float32), 'bfloat16')\n"
        "assert packed.dtype == np.uint16\n"
        "assert dlprim.to_float32(dlprim.unpack_b(packed, 2, dtype='bfloat16'), dtype='bfloat16')"
        ".tolist() == [[1] * 3] * 2\n"
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.skipif(not HAS_ML_DTYPES, reason="ml_dtypes is not installed")
def test_dtypes_of_results() -> None:
    import ml_dtypes

    bits = np.zeros((2, 2), np.uint16)
    assert dlprim.pack_b(bits, "bfloat16").dtype == np.uint16
    assert dlprim.pack_b(bits.view(ml_dtypes.bfloat16)).dtype == ml_dtypes.bfloat16
    assert (
        dlprim.pack_b(np.zeros((2, 2), np.float32), ml_dtypes.bfloat16).dtype == ml_dtypes.bfloat16
    )


FLOATS = np.zeros((4, 6), np.float32)
BYTES = np.zeros((4, 6), np.int8)


@pytest.mark.parametrize(
    ("arguments", "keywords", "error", "message"),
    [
        (([[1]],), {}, TypeError, "b is of type list, expected an array of bfloat16"),
        ((FLOATS,), {}, TypeError, "b has dtype float32, which kernels read without packing"),
        ((FLOATS, "int8"), {}, TypeError, "b has dtype float32 and dtype is int8"),
        ((FLOATS.astype(">f4"), "bfloat16"), {}, TypeError, "b has dtype >f4, expected float32"),
        ((FLOATS, "half of it"), {}, TypeError, "dtype is 'half of it', which is no dtype"),
        ((BYTES.astype(np.int16),), {}, TypeError, "b has dtype int16, expected bfloat16, int8"),
        ((BYTES.astype(np.uint16),), {}, TypeError, "b has dtype uint16, expected bfloat16"),
        ((BYTES, "bfloat16"), {}, TypeError, "b has dtype int8 and dtype is bfloat16"),
        ((BYTES, "uint8"), {}, TypeError, "b has dtype int8 and dtype is uint8, expected bfloat16"),
        ((BYTES[0],), {}, ValueError, r"b has shape \(6,\), expected at least two dimensions"),
        ((BYTES,), {"out": [1]}, TypeError, "out is of type list, expected a NumPy array of int8"),
        ((BYTES,), {"out": np.zeros((1, 6, 4))}, TypeError, "out has dtype float64"),
        ((BYTES,), {"out": BYTES}, ValueError, r"out has shape \(4, 6\), expected \(1, 6, 4\)"),
        (
            (BYTES,),
            {"out": np.zeros((1, 6, 8), np.int8)[..., ::2]},
            ValueError,
            "out has strides .* expected an aligned C-contiguous array",
        ),
        ((BYTES,), {"out": BYTES.reshape(1, 6, 4)}, ValueError, "out shares memory with b"),
    ],
)
def test_pack_b_refuses(arguments, keywords, error, message) -> None:
    with pytest.raises(error, match=message):
        dlprim.pack_b(*arguments, **keywords)


def test_pack_b_refuses_a_read_only_result() -> None:
    out = np.zeros((1, 6, 4), np.int8)
    out.setflags(write=False)
    with pytest.raises(ValueError, match="out is read-only"):
        dlprim.pack_b(BYTES, out=out)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: dlprim.unpack_b(FLOATS, 3), TypeError, "packed has dtype float32"),
        (lambda: dlprim.unpack_b(BYTES, 3), ValueError, "expected at least three dimensions"),
        (lambda: dlprim.unpack_b(BYTES.reshape(2, 3, 4), 9), ValueError, "packed has shape"),
        (lambda: dlprim.unpack_b(BYTES.reshape(2, 3, 4), 4), ValueError, "packed has shape"),
        (lambda: dlprim.unpack_b(BYTES.reshape(2, 3, 4), 1.5), TypeError, "k is of type float"),
    ],
)
def test_unpack_b_refuses(call, error, message) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_negative_k_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^k is -1, expected at least 0"):
        dlprim.unpack_b(np.zeros((1, 2, 4), np.int8), -1)
