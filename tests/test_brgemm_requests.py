"""Making a kernel: what is refused, what a kernel says of itself; and the function brgemm()."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import dlprim
from conftest import RunPython
from reference import assert_close, brgemm

pytestmark = pytest.mark.any_level

REFUSED_REQUESTS = [
    *[({name: 0}, ValueError, f"^{name}=0, expected.* 1 to") for name in "mnk"],
    *[({name: -5}, ValueError, f"^{name}=-5, expected.* 1 to") for name in "mnk"],
    *[({name: 2**31}, ValueError, f"^{name}.*2147483648.*expected") for name in "mnk"],
    *[({name: 2**70}, ValueError, f"^{name}") for name in "mnk"],
    *[({name: 4.0}, TypeError, f"^{name} is of type float") for name in "mnk"],
    *[({name: "4"}, TypeError, f"^{name} is of type str") for name in "mnk"],
    *[({name: None}, TypeError, f"^{name} is of type NoneType") for name in "mnk"],
    ({"lda": 2}, ValueError, "^lda is 2, expected at least the row length 3"),
    ({"lda": 4, "trans_a": True}, ValueError, "^lda is 4, expected at least the row length 5"),
    ({"ldb": 6}, ValueError, "^ldb is 6, expected at least the row length 7"),
    ({"ldc": 6}, ValueError, "^ldc is 6, expected at least the row length 7"),
    *[({name: 0}, ValueError, f"^{name} is 0") for name in ("lda", "ldb", "ldc")],
    *[({name: -1}, ValueError, f"^{name} is -1") for name in ("lda", "ldb", "ldc")],
    *[({name: 2**24 + 1}, ValueError, f"^{name}=.*2\\^24") for name in ("lda", "ldb", "ldc")],
    *[({name: 2**70}, ValueError, f"^{name}") for name in ("lda", "ldb", "ldc")],
    *[({name: 8.0}, TypeError, f"^{name} is of type float") for name in ("lda", "ldb", "ldc")],
    *[({"beta": value}, ValueError, f"^beta=? ?.*{value}") for value in (-1, 2, 2**40)],
    ({"beta": 1.0}, TypeError, "^beta is of type float"),
    ({"addressing": "pointer"}, ValueError, "^addressing is 'pointer', expected one of 'stride'"),
    ({"addressing": None}, ValueError, "^addressing is None"),
    ({"activation": "tanhh"}, ValueError, "^activation is 'tanhh', expected one of 'relu'"),
    ({"activation": "none"}, ValueError, "^activation is 'none'"),
    ({"activation": 1}, ValueError, "^activation is 1"),
    *[({"dtype": dtype}, TypeError, "^dtype is ") for dtype in ("f8", ">f4", "i4", "nonsense")],
    ({"dtype": None}, TypeError, "^dtype is "),
    *[({"out_dtype": dtype}, TypeError, "^out_dtype is ") for dtype in ("f8", ">f4", "nonsense")],
    ({"b_dtype": "uint8"}, TypeError, "^b_dtype is uint8, expected float32$"),
    (
        {"dtype": "uint8", "b_dtype": "float32"},
        TypeError,
        "^b_dtype is float32, expected int8 or uint8$",
    ),
    ({"dtype": "int8", "b_dtype": "nonsense"}, TypeError, "^b_dtype is 'nonsense', which is no"),
    ({"isa": "sse"}, ValueError, "isa.*'sse'.*expected scalar, avx2, avx2_vnni, "),
    ({"isa": ""}, ValueError, "isa.*''.*expected scalar"),
    ({"isa": 5}, TypeError, "^isa is of type int"),
]


@pytest.mark.parametrize(("change", "error", "match"), REFUSED_REQUESTS, ids=str)
def test_request_is_refused(change: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        dlprim.Brgemm(**{"m": 5, "n": 7, "k": 3, **change})


def test_unknown_and_missing_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="alpha"):
        dlprim.Brgemm(1, 1, 1, alpha=2)
    with pytest.raises(TypeError, match="'k'"):
        dlprim.Brgemm(1, 1)
    with pytest.raises(TypeError, match="called with 1 arguments by position, expected a, b and c"):
        dlprim.Brgemm(1, 1, 1)(np.ones(1, np.float32))


@pytest.mark.parametrize("dtype", [np.float32, "float32", "f4", np.dtype("f4"), "<f4"])
def test_names_of_float32(dtype: object) -> None:
    assert dlprim.Brgemm(2, 2, 2, dtype=dtype, out_dtype=dtype).isa


def test_integers_of_numpy_are_integers() -> None:
    kernel = dlprim.Brgemm(np.int64(2), np.uint8(3), np.int32(4), lda=np.int16(9))
    assert "_m2n3k4_lda9_" in kernel.name


HALF_MADE = """
import sys, dlprim
bare = dlprim.Brgemm.__new__(dlprim.Brgemm)
try:
    dlprim.Brgemm(2, 2, 2, beta=2)
except ValueError:  # what a debugger or a traceback with local variables sees
    refused = sys.exc_info()[2].tb_next.tb_frame.f_locals["self"]
for kernel in (bare, refused):
    for use in (repr, lambda k: k.isa, lambda k: k.code, lambda k: k.tile, lambda k: k(1, 2, 3)):
        try:
            use(kernel)
        except (TypeError, ValueError):
            continue
        raise AssertionError("a kernel that was never made could be used")
"""


def test_kernel_whose_init_did_not_finish_does_not_crash(run_python: RunPython) -> None:
    run = run_python(HALF_MADE)
    assert (run.returncode, run.stderr) == (0, "")


def test_kernel_is_not_pickled() -> None:
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(dlprim.Brgemm(1, 1, 1))


# ---------------------------------------------------------------- brgemm()


def operands(random: np.random.Generator, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    batch, m, n, k = shape
    a = random.standard_normal((batch, m, k), np.float32)
    return a, random.standard_normal((batch, k, n), np.float32)


@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("with_c", [False, True])
@pytest.mark.parametrize(
    "shape",
    [(3, 5, 7, 4), (1, 1, 1, 1), (2, 17, 33, 15), (0, 3, 4, 5), (2, 3, 4, 0), (0, 1, 1, 0)],
)
def test_function(
    random: np.random.Generator,
    shape: tuple[int, ...],
    with_c: bool,
    with_bias: bool,
    activation: str | None,
) -> None:
    a, b = operands(random, *shape)
    _, m, n, _ = shape
    c = random.standard_normal((m, n), np.float32) if with_c else None
    bias = random.standard_normal(n, np.float32) if with_bias else None
    expected = brgemm(a, b, c, bias, activation)
    result = dlprim.brgemm(a, b, c=c, bias=bias, activation=activation)
    assert c is None or result is c
    assert_close(result, expected)


@pytest.mark.parametrize("shape", [(2, 0, 4, 3), (2, 4, 0, 3), (0, 0, 0, 0)])
def test_function_with_nothing_to_do(random: np.random.Generator, shape: tuple[int, ...]) -> None:
    result = dlprim.brgemm(*operands(random, *shape))
    assert result.shape == shape[1:3]
    assert result.dtype == np.float32


def test_function_copies_operands_that_are_not_contiguous(random: np.random.Generator) -> None:
    a, b = operands(random, 4, 6, 10, 14)
    a, b = a[::2, ::-1, ::2], np.asfortranarray(b)[::-2, ::2]
    assert_close(dlprim.brgemm(a, b), brgemm(a, b))


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"a": [[[1.0]]]}, TypeError, "^a is of type list"),
        ({"a": np.zeros((2, 3, 4))}, TypeError, "^a has dtype float64"),
        ({"b": np.zeros((2, 4, 5), ">f4")}, TypeError, "^b has dtype >f4"),
        ({"a": np.zeros((3, 4), "f4")}, ValueError, r"^a has shape \(3, 4\)"),
        ({"b": np.zeros((3, 4, 5), "f4")}, ValueError, r"^b has shape \(3, 4, 5\)"),
        ({"b": np.zeros((2, 5, 5), "f4")}, ValueError, r"^b has shape \(2, 5, 5\)"),
        ({"b": np.zeros((4, 5), "f4")}, ValueError, "^b has shape"),
        ({"c": [[0.0] * 5] * 3}, TypeError, "^c is of type list"),
        ({"c": np.zeros((3, 5))}, TypeError, "^c has dtype float64"),
        ({"c": np.zeros((5, 3), "f4")}, ValueError, r"^c has shape \(5, 3\)"),
        ({"c": np.zeros((3, 10), "f4")[:, ::2]}, ValueError, "^c has shape"),
        ({"bias": np.zeros(4, "f4")}, ValueError, "^bias has shape"),
        ({"bias": 1.0}, TypeError, "^bias is of type float"),
        ({"activation": "gelu!"}, ValueError, "^activation is 'gelu!'"),
    ],
)
def test_function_refuses(change: dict[str, Any], error: type[Exception], match: str) -> None:
    values = {"a": np.zeros((2, 3, 4), np.float32), "b": np.zeros((2, 4, 5), np.float32)}
    with pytest.raises(error, match=match):
        dlprim.brgemm(**(values | change))


def test_function_refuses_a_wrong_result_when_there_is_nothing_to_do() -> None:
    nothing = np.zeros((2, 0, 4), np.float32)
    b = np.zeros((2, 4, 5), np.float32)
    with pytest.raises(TypeError, match=r"^c has dtype float64"):
        dlprim.brgemm(nothing, b, c=np.zeros((0, 5)))
    with pytest.raises(ValueError, match=r"^activation is 'gelu!'"):
        dlprim.brgemm(nothing, b, activation="gelu!")
    with pytest.raises(ValueError, match=r"^bias has shape"):
        dlprim.brgemm(nothing, b, bias=np.zeros(4, np.float32))


# ---------------------------------------------------------------- arrays of others


def test_torch_tensors_are_viewed(random: np.random.Generator) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    a, b = (torch.from_numpy(each) for each in operands(random, 2, 5, 20, 6))
    bias = torch.ones(20)
    c = torch.full((5, 20), torch.nan)
    dlprim.Brgemm(5, 20, 6, bias=True)(a, b, c, bias=bias)
    assert_close(c.numpy(), brgemm(a.numpy(), b.numpy(), bias=bias.numpy()))
    np.testing.assert_array_equal(dlprim.brgemm(a, b, bias=bias), c.numpy())


def test_torch_tensors_that_cannot_be_viewed_are_refused() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    kernel = dlprim.Brgemm(2, 2, 2)
    fine, c = np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)
    with pytest.raises(TypeError, match=r"^b of type Tensor cannot be viewed.*detach"):
        kernel(fine, torch.ones(2, 2, requires_grad=True), c)
    with pytest.raises(TypeError, match=r"^a of type Tensor cannot be viewed"):
        kernel(torch.ones(2, 2, dtype=torch.bfloat16), fine, c)
    with pytest.raises(TypeError, match=r"^a has dtype float64"):
        kernel(torch.ones(2, 2, dtype=torch.float64), fine, c)
    with pytest.raises(TypeError, match=r"^a of type Tensor cannot be viewed.*detach"):
        dlprim.brgemm(torch.ones(1, 2, 2, requires_grad=True), fine[None])
    np.testing.assert_array_equal(c, 0)
