"""Kernels of every type and every part of the epilogue, called from Python.

Values are small integers, for which every order of summation is exact, so results are equal to
the float64 oracle's or one rounding away.
"""

from __future__ import annotations

import math
import os

import numpy as np
import pytest

import dlprim
from conftest import LEVELS, runs

pytestmark = pytest.mark.any_level

BATCH, M, N, K = 3, 5, 37, 7
DTYPES = ["float32", "bfloat16", "uint8", "int8"]


@pytest.fixture(params=LEVELS[:-1])  # there are no AMX kernels
def level(request: pytest.FixtureRequest) -> str:
    if not runs(request.param):
        pytest.skip(f"{request.param} kernels do not run here: dlprim.isa() is {dlprim.isa()}")
    return request.param


def operands(dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """a, b as the kernel wants them, and the exact sum of products."""
    random = np.random.default_rng(5)
    low = 0 if dtype == "uint8" else -4
    a = random.integers(low, 5, (BATCH, M, K))
    b = random.integers(-4, 5, (BATCH, K, N))
    exact = np.einsum("bmk,bkn->mn", a, b).astype(np.float64)
    if dtype in ("float32", "bfloat16"):
        a, b = a.astype(np.float32), b.astype(np.float32)
        if dtype == "bfloat16":
            return dlprim.to_bfloat16(a), dlprim.pack_b(b, dtype="bfloat16"), exact
        return a, b, exact
    return a.astype(dtype), dlprim.pack_b(b.astype(np.int8)), exact


def as_float(c: np.ndarray) -> np.ndarray:
    return dlprim.to_float32(c, dtype="bfloat16") if c.dtype.itemsize == 2 else c


@pytest.mark.parametrize("dtype", DTYPES)
def test_sum(dtype: str, level: str) -> None:
    a, b, exact = operands(dtype)
    kernel = dlprim.Brgemm(M, N, K, dtype, isa=level)
    c = np.full((M, N), 99, np.float32 if dtype in ("float32", "bfloat16") else np.int32)
    kernel(a, b, c)
    assert (c == exact).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_epilogue_in_its_order(dtype: str, level: str) -> None:
    a, b, exact = operands(dtype)
    random = np.random.default_rng(6)
    scale = 2.0 ** random.integers(-3, 1, N).astype(np.float32)
    bias = random.integers(-8, 9, N).astype(np.float32)
    residual = random.integers(-8, 9, (M, N)).astype(np.float32)
    kernel = dlprim.Brgemm(
        M, N, K, dtype, out_dtype=np.float32, bias=True, activation="relu", scale="column",
        residual=True, relu_mask=True, isa=level,
    )  # fmt: skip
    c = np.empty((M, N), np.float32)
    mask = np.full((M, (N + 7) // 8), 0xA5, np.uint8)
    kernel(a, b, c, bias=bias, scale=scale, residual=residual, relu_mask=mask)
    before_relu = exact * scale + bias + residual
    assert (c == np.maximum(before_relu, 0)).all()
    bits = np.unpackbits(mask, axis=1, bitorder="little")
    assert (bits[:, :N] == (before_relu > 0)).all()
    assert not bits[:, N:].any()


@pytest.mark.parametrize("out_dtype", ["uint8", "int8"])
def test_saturation(out_dtype: str, level: str) -> None:
    a, b, exact = operands("int8")
    kernel = dlprim.Brgemm(M, N, K, "int8", out_dtype=out_dtype, scale="tensor", isa=level)
    c = np.empty((M, N), out_dtype)
    kernel(a, b, c, scale=3.5)
    limits = np.iinfo(out_dtype)
    assert (c == np.clip(np.rint(exact * 3.5), limits.min, limits.max)).all()
    assert limits.min in c
    assert limits.max in c or exact.max() * 3.5 < limits.max


def test_nan_saturates_to_the_lowest_value(level: str) -> None:
    a, b, _ = operands("uint8")
    for out_dtype in ("uint8", "int8"):
        kernel = dlprim.Brgemm(M, N, K, "uint8", out_dtype=out_dtype, bias=True, isa=level)
        c = np.empty((M, N), out_dtype)
        kernel(a, b, c, bias=np.full(N, np.nan, np.float32))
        assert (c == np.iinfo(out_dtype).min).all()


def test_zero_points(level: str) -> None:
    random = np.random.default_rng(7)
    a = random.integers(-128, 128, (BATCH, M, K)).astype(np.int8)
    b = random.integers(-128, 128, (BATCH, K, N)).astype(np.int8)
    kernel = dlprim.Brgemm(M, N, K, "int8", zero_point_a=True, zero_point_b=True, isa=level)
    c = np.empty((M, N), np.int32)
    kernel(a, dlprim.pack_b(b), c, zero_point_a=-17, zero_point_b=101)
    assert (c == np.einsum("bmk,bkn->mn", a.astype(int) + 17, b.astype(int) - 101)).all()


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (5, 37, 7), (17, 16, 64), (32, 67, 131)])
def test_unsigned_b(dtype: str, m: int, n: int, k: int, level: str) -> None:
    random = np.random.default_rng(8)
    limits = np.iinfo(dtype)
    a = random.integers(limits.min, limits.max + 1, (BATCH, m, k)).astype(dtype)
    b = random.integers(0, 256, (BATCH, k, n)).astype(np.uint8)
    exact = np.einsum("bmk,bkn->mn", a.astype(int), b.astype(int))
    packed = dlprim.pack_b(b)
    c = np.empty((m, n), np.int32)
    dlprim.Brgemm(m, n, k, dtype, b_dtype="uint8", isa=level)(a, packed, c)
    assert (c == exact).all()
    turned = dlprim.pack_b(np.ascontiguousarray(a.swapaxes(1, 2)))
    dlprim.Brgemm(m, n, k, dtype, b_dtype=np.uint8, trans_a=True, isa=level)(turned, packed, c)
    assert (c == exact).all()
    zeros = {"zero_point_a": True, "zero_point_b": True}
    kernel = dlprim.Brgemm(m, n, k, dtype, b_dtype="uint8", isa=level, **zeros)
    kernel(a, packed, c, zero_point_a=-17, zero_point_b=131)
    assert (c == np.einsum("bmk,bkn->mn", a.astype(int) + 17, b.astype(int) - 131)).all()
    with pytest.raises(TypeError, match=r"^b has dtype int8, expected uint8"):
        kernel(a, packed.view(np.int8), c, zero_point_a=0, zero_point_b=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_transposed_a(dtype: str, level: str) -> None:
    a, b, exact = operands(dtype)
    transposed = np.ascontiguousarray(a.swapaxes(1, 2))
    if dtype != "float32":
        transposed = dlprim.pack_b(transposed)
    c = np.empty((M, N), np.float32 if dtype in ("float32", "bfloat16") else np.int32)
    dlprim.Brgemm(M, N, K, dtype, trans_a=True, isa=level)(transposed, b, c)
    assert (c == exact).all()


def test_bfloat16_specials_propagate(level: str) -> None:
    """NaN whatever its payload, infinities, and infinity times zero."""
    a = np.zeros((1, 4, 3), np.float32)
    a[0, 0, 1], a[0, 1, 2], a[0, 2, 0] = np.nan, np.inf, -np.inf
    b = np.ones((1, 3, 20), np.float32)
    b[0, :, 7] = 0
    payload = dlprim.to_bfloat16(a).view(np.uint16)
    payload[0, 0, 1] = 0xFFC5
    c = np.empty((4, 20), np.float32)
    kernel = dlprim.Brgemm(4, 20, 3, "bfloat16", isa=level)
    kernel(payload, dlprim.pack_b(b, dtype="bfloat16"), c)
    assert np.isnan(c[0]).all()
    assert np.isnan(c[1:3, 7]).all()
    plain = np.arange(20) != 7
    assert (c[1, plain] == np.inf).all()
    assert (c[2, plain] == -np.inf).all()
    assert (c[3] == 0).all()
    narrow = dlprim.Brgemm(4, 20, 3, "bfloat16", out_dtype="bfloat16", isa=level)
    result = np.empty((4, 20), np.uint16)
    narrow(payload, dlprim.pack_b(b, dtype="bfloat16"), result)
    assert np.array_equal(as_float(result), c, equal_nan=True)


def test_bfloat16_bias_is_accepted(level: str) -> None:
    a, b, exact = operands("bfloat16")
    bias = np.arange(N, dtype=np.float32) / 4
    kernel = dlprim.Brgemm(M, N, K, "bfloat16", bias=True, isa=level)
    c = np.empty((M, N), np.float32)
    rounded = dlprim.to_bfloat16(bias)
    if rounded.dtype == np.uint16:
        pytest.skip("without ml_dtypes there is no bfloat16 array to tell from uint16")
    kernel(a, b, c, bias=rounded)
    assert (c == exact + dlprim.to_float32(rounded)).all()


@pytest.mark.parametrize(
    "activation",
    ["relu6", "sigmoid", "hardsigmoid", "tanh", "gelu", "gelu_tanh", "swish", "hardswish"],
)
def test_activation(activation: str, level: str) -> None:
    def reference(x: float) -> float:
        cube = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return {
            "relu6": lambda: min(max(x, 0), 6),
            "hardsigmoid": lambda: min(max(x + 3, 0), 6) / 6,
            "hardswish": lambda: x * min(max(x + 3, 0), 6) / 6,
            "sigmoid": lambda: 1 / (1 + math.exp(-x)),
            "tanh": lambda: math.tanh(x),
            "gelu": lambda: 0.5 * x * math.erfc(-x / math.sqrt(2)),
            "gelu_tanh": lambda: x / (1 + math.exp(-2 * cube)),
            "swish": lambda: x / (1 + math.exp(-x)),
        }[activation]()

    x = np.linspace(-7, 7, M * N).astype(np.float32).reshape(M, N)
    kernel = dlprim.Brgemm(M, N, 1, beta=1, activation=activation, isa=level)
    c = x.copy()
    kernel(np.empty((0, M, 1), np.float32), np.empty((0, 1, N), np.float32), c)
    exact = np.array([reference(float(value)) for value in x.ravel()]).reshape(M, N)
    assert (np.abs(c - exact) <= 4 * np.spacing(np.abs(exact).astype(np.float32))).all()


FULL = {"bias": True, "scale": "column", "residual": True, "activation": "relu", "relu_mask": True}
GOOD = {
    "bias": np.zeros(N, np.float32),
    "scale": np.ones(N, np.float32),
    "residual": np.zeros((M, N), np.float32),
    "relu_mask": np.zeros((M, (N + 7) // 8), np.uint8),
}


@pytest.mark.parametrize(
    ("changed", "error", "match"),
    [
        ({"residual": None}, ValueError, "^residual is missing"),
        ({"residual": np.zeros((0, M, N), np.float32)}, ValueError, "^residual has .*two dim"),
        ({"residual": np.zeros((7, M, N), np.float32)}, ValueError, "^residual has .*two dim"),
        ({"residual": np.zeros((M, N - 1), np.float32)}, ValueError, "^residual has shape"),
        ({"residual": np.zeros((M, N))}, TypeError, "^residual has dtype float64"),
        ({"relu_mask": np.zeros((0, M, 5), np.uint8)}, ValueError, "^relu_mask has .*two dim"),
        ({"relu_mask": np.zeros((M, 4), np.uint8)}, ValueError, "^relu_mask has shape"),
        ({"relu_mask": np.zeros((M, 5), np.int8)}, TypeError, "^relu_mask has dtype int8"),
        ({"scale": np.ones(1, np.float32)}, ValueError, "^scale has shape"),
        ({"scale": 2.0}, TypeError, "^scale is of type float"),
        ({"bias": np.zeros(N + 1, np.float32)}, ValueError, "^bias has shape"),
        ({"zero_point_a": 3}, ValueError, "^zero_point_a is given"),
        ({"offset": 3}, TypeError, "no argument 'offset'"),
    ],
)
def test_wrong_argument_is_refused(changed: dict, error: type[Exception], match: str) -> None:
    kernel = dlprim.Brgemm(M, N, K, **FULL)
    a, b, _ = operands("float32")
    c = np.full((M, N), 7, np.float32)
    mask = GOOD["relu_mask"].copy()
    with pytest.raises(error, match=match):
        kernel(a, b, c, **{**GOOD, "relu_mask": mask, **changed})
    assert (c == 7).all()
    assert not mask.any()


def test_results_may_not_overlap() -> None:
    kernel = dlprim.Brgemm(M, N, K, **FULL)
    a, b, _ = operands("float32")
    c = np.zeros((M, N), np.float32)
    with pytest.raises(ValueError, match=r"^c shares memory with residual"):
        kernel(a, b, c, **{**GOOD, "residual": c})
    inside_c = c.reshape(-1).view(np.uint8)[: M * 5].reshape(M, 5)
    with pytest.raises(ValueError, match=r"^relu_mask shares memory with c"):
        kernel(a, b, c, **{**GOOD, "relu_mask": inside_c})


def test_a_list_that_changes_while_it_is_read_is_safe() -> None:
    class Clearing:
        def __dlpack__(self, **_: object) -> None:
            items.clear()
            raise BufferError("changed")

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    items: list[object] = [Clearing(), np.zeros((2, 2), np.float32)]
    kernel = dlprim.Brgemm(2, 2, 2, addressing="address")
    c = np.zeros((2, 2), np.float32)
    with pytest.raises(TypeError, match=r"^a of type Clearing"):
        kernel(items, [np.zeros((2, 2), np.float32)] * 2, c)


def test_byte_swapped_bfloat16_is_refused() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="bfloat16 arrays come from ml_dtypes")
    swapped = np.zeros((2, 2), np.dtype(ml_dtypes.bfloat16).newbyteorder(">"))
    kernel = dlprim.Brgemm(2, 2, 2, "bfloat16")
    with pytest.raises(TypeError, match=r"^a has dtype"):
        kernel(
            swapped,
            dlprim.pack_b(np.zeros((2, 2), np.float32), "bfloat16"),
            np.zeros((2, 2), np.float32),
        )


def test_many_slabs_keep_no_file_descriptors() -> None:
    kernels = [dlprim.Brgemm(64, 64, k) for k in range(400, 700)]
    open_files = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                  if os.path.islink(f"/proc/self/fd/{fd}")]  # fmt: skip
    assert sum("dlprim-kernels" in name for name in open_files) <= 1
    assert len(kernels) == 300
