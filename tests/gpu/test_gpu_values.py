"""What formulas on a GPU compute with: functions, bytes, tables, and arrays of other libraries."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

# isort: split
from gpu_peers import DEVICE, assert_close, drawn, drawn_bytes, exact, torch

import dlprim
from dlprim import gpu
from dlprim.gpu.functions import REAL

pytestmark = [
    pytest.mark.any_level,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # of NumPy, in the interpreter
]
LAYERS = dlprim.define("""
def tables(float(E,D) x, int64(B,L) i, float(F,D) z, int64(B,M) j) -> (a, b) {
    a(n,d) +=! x(i(n,k),d)
    b(n,d) +=! z(j(n,k),d)
}
""")


def test_bytes() -> None:
    x, w = drawn_bytes(20, 50), drawn_bytes(17, 50)
    y = gpu.contract("y(n,k) +=! x(n,c) * w(k,c)", x, w)
    assert torch.equal(y.cpu().long(), x.cpu().long() @ w.cpu().long().T)
    scale = drawn(50)
    found = gpu.contract("y(n,c) = (x(n,c) - 128) * scale(c)", x, scale)
    assert_close(found, (exact(x) - 128) * exact(scale), 300 * exact(scale).abs(), 2)
    with pytest.raises(ValueError, match=r"^y is a reduction of int32, expected arrays of floats"):
        gpu.contract("y(n) +=! x(n,c)", x)


@pytest.mark.parametrize("name", sorted(REAL))
def test_functions_are_what_they_are_on_the_cpu(name: str) -> None:
    count = {"pow": 2, "hypot": 2, "fdim": 2, "fmax": 2, "fmin": 2, "fdivide": 2,
             "fma": 3}.get(name, 1)  # fmt: skip
    values = np.concatenate([np.linspace(-4, 4, 801), [0.0, -0.0, 1e-6, 1e-3, 30, -30, np.nan]])
    values = values.astype(np.float32)
    arrays = [values, np.roll(values, 100), np.roll(values, 200)][:count]
    formula = f"y(n) = {name}({', '.join(f'{it}(n)' for it in 'abc'[:count])})"
    expected = dlprim.contract(formula, *arrays)
    given = [torch.from_numpy(it).to(DEVICE) for it in arrays]
    found = gpu.contract(formula, *given).cpu().numpy()
    bound = {"exp10": 2e-5, "mish": 1e-5}.get(name, 3e-6)
    np.testing.assert_allclose(found, expected, rtol=bound, atol=3e-7)


def test_tables_and_places_outside_them() -> None:
    x, z = drawn(50, 12), drawn(30, 12)
    i, j = (torch.arange(12, device=DEVICE).reshape(4, 3) * by for by in (3, 2))
    a, b = gpu.contract(LAYERS.tables, x, i, z, j)
    assert_close(a, exact(x)[i.cpu()].sum(1), exact(x)[i.cpu()].abs().sum(1), 3)
    assert_close(b, exact(z)[j.cpu()].sum(1), exact(z)[j.cpu()].abs().sum(1), 3)
    i[1, 1] = 50
    assert torch.isnan(gpu.contract("y(n,d) = x(i(n,1),d)", x, i)).any(1).tolist() == [
        False, True, False, False,
    ]  # fmt: skip
    assert not torch.isnan(gpu.contract("y(n,d) = x?(i(n,1),d)", x, i)).any()


def test_arrays_of_other_libraries_come_back_as_such() -> None:
    if DEVICE != "cpu":
        pytest.skip("on a GPU, which NumPy's arrays do not lie on, this has nothing to convert")
    x, w = (np.random.default_rng(0).standard_normal((8, 8), np.float32) for _ in range(2))
    y = gpu.contract("y(n,k) +=! x(n,c) * w(k,c)", x, w)
    assert isinstance(y, np.ndarray)
    np.testing.assert_allclose(y, x @ w.T, rtol=1e-5, atol=1e-5)


def test_numbers_are_scalars_and_places() -> None:
    x = drawn(7, 12)
    row = dlprim.define("def f(float(N,D) x, int32 i) -> (y) { y(d) = x(i,d) }").f
    assert torch.equal(gpu.contract(row, x, 3), x[3])
    layer = dlprim.define("def f(float a, float(N) x) -> (y) { y(n) = a * x(n) }").f
    assert torch.equal(gpu.contract(layer, 2, x[0]), 2 * x[0])


def test_what_a_definition_says_of_types_holds() -> None:
    layer = dlprim.define("def f(float(E,D) x, int32(N) i) -> (y) { y(n,d) = x(i(n),d) }").f
    x, i = drawn(5, 3), torch.tensor([3, 1], device=DEVICE)
    with pytest.raises(TypeError, match=r"^i has dtype float32, expected int32 or int64$"):
        gpu.contract(layer, x, drawn(2))
    with pytest.raises(TypeError, match=r"^x has dtype int64, expected float32 or bfloat16 or f"):
        gpu.contract(layer, i[:, None], i)
    with pytest.raises(TypeError, match=r"^x has dtype int8, expected float32 or bfloat16 or f"):
        gpu.contract(layer, drawn_bytes(5, 3), i)
    with pytest.raises(TypeError, match=r"^w has dtype int64, expected float32 or bfloat16 or f"):
        gpu.linear(x, i[:, None])


def test_sums_of_bytes_are_real_where_the_result_is() -> None:
    layer = dlprim.define("""
def f(int8(N,C) x, int8(K,C) w, float(K) b) -> (y) {
    y(n,k) +=! x(n,c) * w(k,c)
    y(n,k) = y(n,k) / 2 + b(k)
}
""").f
    x, w, b = drawn_bytes(6, 40), drawn_bytes(7, 40), drawn(7)
    expected = exact(x) @ exact(w).T / 2 + exact(b)
    torch.testing.assert_close(exact(gpu.contract(layer, x, w, b)), expected, rtol=1e-6, atol=1e-3)
    products = gpu.contract("y(n,c) = x(n,c) * z(n,c)", x, x)
    assert torch.equal(exact(products), exact(x) * exact(x))
    with pytest.raises(ValueError, match=r"^y is int32, expected arrays of floats, or a sum of"):
        gpu.contract("y(n,c) = x(n,c) / 2", x)


def test_results_that_lie_on_operands_are_refused() -> None:
    x = drawn(8, 8)
    with pytest.raises(ValueError, match=r"^y shares memory with x, expected separate arrays$"):
        gpu.contract("y(i,j) = x(j,i)", x, out=x)
    with pytest.raises(ValueError, match=r"^y has elements on each other, expected an array of"):
        gpu.contract("y(i,j) = x(j,i)", x, out=drawn(1, 8).expand(8, 8))
    with pytest.raises(ValueError, match=r"^c shares memory with a, expected separate arrays$"):
        gpu.Brgemm(8, 8, 8)(x, drawn(8, 8), x)


def test_contract_takes_arrays_of_a_gpu_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnGpu:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

    taken = []
    monkeypatch.setattr(gpu, "contract", lambda *given, **named: taken.append((given, named)))
    it = OnGpu()
    dlprim.contract("y(n,c) = x(n,0) + 0 * c", it, sizes={"c": 3})
    LAYERS.tables(it, it, it, it)
    assert [given[1:] for given, _ in taken] == [(it,), (it,) * 4]
    assert taken[0][1] == {"out": None, "c": 3}
    assert taken[1][0][0] is LAYERS.tables


def test_dlprim_alone_imports_neither_triton_nor_torch() -> None:
    code = (
        "import sys, dlprim; assert not {'torch', 'triton', 'dlprim.gpu'} & sys.modules.keys()\n"
        "sys.modules['triton'] = None\n"
        "try: import dlprim.gpu\n"
        "except ImportError as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == (
        "dlprim.gpu needs Triton and PyTorch, and triton is not installed: expected `pip install "
        '"dlprim[gpu]"`\n'
    )
