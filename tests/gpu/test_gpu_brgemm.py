"""`dlprim.gpu.Brgemm` against float64: drawn shapes, tails, strides, types and epilogues."""

from __future__ import annotations

from typing import Any

import pytest

# isort: split
from gpu_peers import DEVICE, assert_close, drawn, drawn_bytes, exact, torch

from dlprim import gpu
from drawing import RNG

pytestmark = pytest.mark.any_level
SHAPES = [(1, 1, 1), (16, 16, 16), (17, 33, 5), (37, 29, 45), (70, 20, 130), (3, 100, 64)]


def new(*shape: int, dtype: str = "float32") -> Any:
    return torch.full(shape, float("nan"), device=DEVICE).to(getattr(torch, dtype))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_of_products(shape: tuple[int, int, int], dtype: str) -> None:
    m, n, k = shape
    a, b, c = drawn(3, m, k, dtype=dtype), drawn(3, k, n, dtype=dtype), new(m, n)
    gpu.Brgemm(m, n, k, dtype)(a, b, c)
    a, b = exact(a), exact(b)
    assert_close(c, (a @ b).sum(0), (a.abs() @ b.abs()).sum(0), 3 * k)


@pytest.mark.parametrize("split", [1, 3])
@pytest.mark.parametrize("trans", [(False, False), (True, False), (False, True)])
def test_strides_leading_dimensions_and_parts_of_a_sum(
    trans: tuple[bool, bool], split: int
) -> None:
    m, n, k, batch = 21, 18, 40, 5
    shape_a, shape_b = ((k, m) if trans[0] else (m, k)), ((n, k) if trans[1] else (k, n))
    a, b = drawn(9, shape_a[0], shape_a[1] + 3), drawn(9, shape_b[0], shape_b[1] + 2)
    c = drawn(m, n + 7)
    kernel = gpu.Brgemm(
        m, n, k, lda=a.shape[2], ldb=b.shape[2], ldc=c.shape[1], trans_a=trans[0],
        trans_b=trans[1],
    )  # fmt: skip
    kernel.use({"kernel 1 split": str(split), "kernel 1 k": "16"})
    before = c.clone()
    kernel(a, b, c, batch=batch, stride_a=a.stride(0), stride_b=b.stride(0))
    x, y = exact(a[:5, :, : shape_a[1]]), exact(b[:5, :, : shape_b[1]])
    x, y = (x.mT if trans[0] else x), (y.mT if trans[1] else y)
    assert_close(c[:, :n], (x @ y).sum(0), (x.abs() @ y.abs()).sum(0), 5 * k)
    assert torch.equal(c[:, n:], before[:, n:])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_offsets_name_matrices_in_any_order_and_more_than_once(dtype: str) -> None:
    m, n, k = 19, 35, 24
    a, b = drawn(4, m, k, dtype=dtype), drawn(6, k, n, dtype=dtype)
    order_a, order_b = [3, 0, 3], [5, 1, 2]
    places = [torch.tensor(it, device=DEVICE) for it in (order_a, order_b)]
    c = new(m, n)
    kernel = gpu.Brgemm(m, n, k, dtype, addressing="offset")
    kernel(a, b, c, offsets_a=places[0] * m * k, offsets_b=places[1] * k * n)
    x, y = exact(a[order_a]), exact(b[order_b])
    assert_close(c, (x @ y).sum(0), (x.abs() @ y.abs()).sum(0), 3 * k)
    kernel(a, b, c, offsets_a=places[0][:0], offsets_b=places[1][:0])
    assert not c.any()


@pytest.mark.parametrize("out_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("scale", [None, "tensor", "column"])
def test_the_epilogue_in_its_order(scale: str | None, out_dtype: str) -> None:
    m, n, k = 33, 26, 48
    a, b = drawn(2, m, k, dtype="bfloat16"), drawn(2, k, n, dtype="bfloat16")
    c, residual = drawn(m, n, dtype=out_dtype), drawn(m, n, dtype=out_dtype)
    given = {"bias": drawn(n), "residual": residual}
    if scale is not None:
        given["scale"] = drawn(n) if scale == "column" else drawn()
    kernel = gpu.Brgemm(
        m, n, k, "bfloat16", beta=1, bias=True, residual=True, scale=scale, activation="relu",
        out_dtype=out_dtype,
    )  # fmt: skip
    x, y, before = exact(a), exact(b), exact(c)
    kernel(a, b, c, **given)
    by = exact(given["scale"]) if scale else torch.ones((), dtype=torch.float64)
    added = exact(given["bias"]) + exact(residual)
    expected = torch.relu((before + (x @ y).sum(0)) * by + added)
    size = (before.abs() + (x.abs() @ y.abs()).sum(0)) * by.abs() + added.abs()
    assert_close(c, expected, size, 2 * k + 3)


def test_bytes_are_summed_exactly_and_rounded_once() -> None:
    m, n, k = 20, 37, 100
    a, b = drawn_bytes(3, m, k), drawn_bytes(3, k, n)
    c = torch.empty(m, n, dtype=torch.int32, device=DEVICE)
    gpu.Brgemm(m, n, k, "int8")(a, b, c)
    sums = (a.cpu().long() @ b.cpu().long()).sum(0)
    assert torch.equal(c.cpu().long(), sums)
    narrow = torch.empty(m, n, dtype=torch.int8, device=DEVICE)
    scale = torch.full((), 2.0**-9, device=DEVICE)
    gpu.Brgemm(m, n, k, "int8", scale="tensor", out_dtype="int8")(a, b, narrow, scale=scale)
    expected = (sums.double() * 2.0**-9).round().clamp(-128, 127)
    assert torch.equal(narrow.cpu().double(), expected)


def test_tf32_is_a_choice() -> None:
    a, b, c = drawn(1, 64, 64), drawn(1, 64, 64), new(64, 64)
    kernel = gpu.Brgemm(64, 64, 64, tf32=True)
    kernel(a, b, c)
    assert '"tf32"' in kernel.explain()
    x, y = exact(a), exact(b)
    assert_close(c, (x @ y)[0], (x.abs() @ y.abs())[0], 64, "tf32")


def test_nothing_of_c_is_read_without_beta_and_nan_of_operands_stays() -> None:
    a, b, c = drawn(1, 16, 16), drawn(1, 16, 16), new(16, 16)
    a[0, 3, 4] = float("nan")
    gpu.Brgemm(16, 16, 16, activation="relu")(a, b, c)
    assert torch.isnan(c[3]).all()
    assert not torch.isnan(c[:3]).any()


def test_drawn_shapes() -> None:
    for _ in range(12):
        m, n, k, batch = (int(it) for it in RNG.integers(1, 90, 4) // (1, 1, 1, 20) + 1)
        a, b, c = drawn(batch, m, k), drawn(batch, k, n), new(m, n)
        gpu.Brgemm(m, n, k)(a, b, c)
        x, y = exact(a), exact(b)
        assert_close(c, (x @ y).sum(0), (x.abs() @ y.abs()).sum(0), batch * k)


@pytest.mark.parametrize(
    ("arguments", "named", "match"),
    [
        ((0, 1, 1), {}, r"^m is 0, expected an integer of at least 1"),
        ((4, 4, 4), {"dtype": "float64"}, r"^dtype is 'float64', expected one of"),
        ((4, 4, 4), {"out_dtype": "int8"}, r"^out_dtype is 'int8', expected one of"),
        ((4, 4, 4), {"addressing": "address"}, r"^addressing is 'address', expected one of"),
        ((4, 4, 4), {"lda": 3}, r"^lda is 3, expected an integer of at least 4"),
        ((4, 4, 4), {"beta": 2}, r"^beta is 2, expected"),
        ((4, 4, 4), {"dtype": "int8", "bias": True}, r"^out_dtype is int32, which"),
        (
            (4, 4, 4),
            {"dtype": "int8", "beta": 1, "out_dtype": "float32"},
            r"^beta is 1, expe",
        ),
        ((4, 4, 4), {"activation": "soft"}, r"^activation is 'soft', expected"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: Any, named: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        gpu.Brgemm(*arguments, **named)


@pytest.mark.parametrize("addressing", ["stride", "offset"])
def test_sums_in_parts_have_an_epilogue_too(addressing: str) -> None:
    a, b, c, bias = drawn(4, 20, 40), drawn(4, 40, 30), new(20, 30), drawn(30)
    kernel = gpu.Brgemm(20, 30, 40, addressing=addressing, bias=True, activation="relu")
    kernel.use({"kernel 1 split": "4", "kernel 1 k": "16", "kernel 1 m": "16"})
    tables = {"offsets_a": torch.arange(4) * 800, "offsets_b": torch.arange(4) * 1200}
    given = {name: it.to(DEVICE) for name, it in tables.items()} if "offset" in addressing else {}
    kernel(a, b, c, bias=bias, **given)
    sums, size = (exact(a) @ exact(b)).sum(0), (exact(a).abs() @ exact(b).abs()).sum(0)
    assert_close(c, torch.relu(sums + exact(bias)), size + exact(bias).abs(), 160)


def test_batches_lie_behind_each_other_with_all_of_their_rows() -> None:
    a, b, c = drawn(3, 8, 12), drawn(3, 8, 10), new(8, 6)
    gpu.Brgemm(8, 6, 8, lda=12, ldb=10)(a, b, c)
    x, y = exact(a[:, :, :8]), exact(b[:, :, :6])
    assert_close(c, (x @ y).sum(0), (x.abs() @ y.abs()).sum(0), 24)
    gpu.Brgemm(8, 6, 8, lda=12, ldb=10)(a[:, :, :8], b[:, :, :6], c)
    assert_close(c, (x @ y).sum(0), (x.abs() @ y.abs()).sum(0), 24)


def test_bytes_have_an_epilogue_where_the_result_is_real() -> None:
    a, b, bias = drawn_bytes(1, 9, 30) // 16, drawn_bytes(1, 30, 17) // 16, drawn(17)
    residual, c = drawn(9, 17, dtype="float16"), new(9, 17, dtype="float16")
    kernel = gpu.Brgemm(9, 17, 30, "int8", bias=True, residual=True, out_dtype="float16")
    kernel(a, b, c, bias=bias, residual=residual)
    expected = (exact(a) @ exact(b))[0] + exact(bias) + exact(residual)
    torch.testing.assert_close(exact(c), expected, rtol=2.0**-10, atol=1e-2)
    sums = torch.randint(-9, 9, (9, 17), dtype=torch.int32, device=DEVICE)
    before = sums.clone()
    gpu.Brgemm(9, 17, 30, "int8", beta=1)(a, b, sums)
    assert torch.equal(exact(sums - before), (exact(a) @ exact(b))[0])


def test_calls_that_do_not_fit_are_refused_before_anything_is_written() -> None:
    a, b, c = drawn(2, 8, 8), drawn(2, 8, 8), drawn(8, 8)
    before = c.clone()
    kernel = gpu.Brgemm(8, 8, 8)
    with pytest.raises(ValueError, match=r"^a has 128 elements of memory, expected 192$"):
        kernel(a, b, c, batch=3)
    with pytest.raises(TypeError, match=r"^b has dtype bfloat16, expected float32$"):
        kernel(a, b.to(torch.bfloat16), c)
    with pytest.raises(TypeError, match=r"^given were a, b, c, bias, expected a, b, c$"):
        kernel(a, b, c, bias=c)
    with pytest.raises(ValueError, match=r"^a has strides \(64, 1, 8\), expected neighbours in"):
        kernel(a.mT, b, c)
    with pytest.raises(ValueError, match=r"^c has strides \(9, 1\), expected .*, 8 from row to"):
        kernel(a, b, drawn(8, 9)[:, :8])
    biased = gpu.Brgemm(8, 8, 8, bias=True)
    with pytest.raises(ValueError, match=r"^bias has strides \(2,\), expected neighbours in its"):
        biased(a, b, c, bias=drawn(16)[::2])
    assert torch.equal(c, before)
