"""Formulas on a GPU: those of the papers and of the documents against float64, and the plan."""

from __future__ import annotations

import re
from typing import Any

import pytest

# isort: split
from gpu_peers import assert_close, drawn, exact, torch

import dlprim
from dlprim import gpu
from dlprim.bench.workloads import definitions

pytestmark = [
    pytest.mark.any_level,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # of NumPy, in the interpreter
]
EINSUMS = [
    ("mk,nk->mn", (33, 20), (17, 20)),
    ("bnk,bkm->bnm", (3, 26, 12), (3, 12, 26)),
    ("km,kn->mn", (70, 40), (70, 33)),
    ("bqhd,bkhd->bhqk", (2, 19, 3, 16), (2, 21, 3, 16)),
    ("bi,ijk->bjk", (6, 8), (8, 7, 5)),
    ("aibj,cjdi->abcd", (5, 6, 7, 8), (4, 8, 9, 6)),
    ("iij->j", (9, 9, 40)),
    ("ij,ij->i", (30, 70), (30, 70)),
    ("ijk->ik", (5, 6, 7)),
    ("i,j->ij", (30,), (40,)),
    ("ij,j->i", (40, 50), (50,)),
    ("nc,rc,kr->nk", (20, 30), (4, 30), (25, 4)),
    ("mk,kn->mn", (0, 8), (8, 3)),
    ("mk,kn->mn", (4, 0), (0, 3)),
    ("ij,k->i", (4, 5), (6,)),
]
LAYERS = dlprim.define(
    definitions.LAYERS
    + """
def layer_norm(float(N,D) x, float(D) g, float(D) b) -> (y) {
    mean(n) +=! x(n,d) / D
    var(n) +=! (x(n,d) - mean(n)) * (x(n,d) - mean(n)) / D
    y(n,d) = (x(n,d) - mean(n)) * rsqrt(var(n) + 1e-5) * g(d) + b(d)
}
def turned(float(N) x) -> (x_, y) {
    x_(n) = 2 * x(n)
    y(n) = x_(N-1-n) + 1
    x_(n) = 0
}
def lstm_cell(float(N,C) x, float(K,C) w, float(N,K) c) -> (h) {
    i(n,k) +=! x(n,c_) * w(k,c_)
    h(n,k) = tanh(c(n,k) * sigmoid(i(n,k)))
}
"""
)
SHAPES: dict[str, list[tuple[int, ...]]] = {
    "fcrelu": [(33, 40), (21, 40), (21,)],
    "softmax": [(19, 70)],
    "layer_norm": [(19, 70), (70,), (70,)],
    "group_norm": [(2, 3, 4, 5, 6), (3, 4), (3, 4)],
    "separable": [(2, 6, 7, 8), (6, 3, 3), (10, 6)],
    "attention": [(2, 3, 18, 16), (2, 3, 20, 16), (2, 3, 20, 16)],
    "lstm_cell": [(17, 20), (30, 20), (17, 30)],
}


def formula_of(spec: str) -> str:
    """einsum's subscripts as a formula."""
    operands, result = spec.split("->")
    reads = [f"t{i}({','.join(it)})" for i, it in enumerate(operands.split(","))]
    return f"y({','.join(result)}) +=! {' * '.join(reads)}"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", EINSUMS, ids=lambda it: it[0])
def test_contractions(case: Any, dtype: str) -> None:
    spec, *shapes = case
    arrays = [drawn(*shape, dtype=dtype) for shape in shapes]
    found = gpu.contract(formula_of(spec), *arrays)
    expected = torch.einsum(spec, *map(exact, arrays))
    size = torch.einsum(spec, *(exact(it).abs() for it in arrays))
    assert_close(found, expected, size, 200)


@pytest.mark.parametrize("k", [40, 64])
def test_strides_and_broadcast_axes_are_used_where_they_lie(k: int) -> None:
    strided, row = drawn(k, 30, 2)[:, ::2, 1].T, drawn(1, 25).expand(k, 25)
    every = drawn(1, 1).expand(16, k), drawn().expand(k, 32)
    for a, b in ((strided, row), (every[0], row), (strided, every[1])):
        found = gpu.contract("y(m,n) +=! a(m,k) * b(k,n)", a, b)
        x, y = exact(a), exact(b)
        assert_close(found, x @ y, x.abs() @ y.abs(), k)
    x = drawn().expand(9, 7)
    assert torch.equal(gpu.contract("y(m,n) = 2 * x(m,n)", x), 2 * x)


ONE_LINES = [
    ("y(n) max=! x(n,c)", [(6, 8)], lambda x: x.amax(1), {}),
    ("y(n) min=! x(n,c)", [(6, 8)], lambda x: x.amin(1), {}),
    ("y(n) *=! x(n,c)", [(6, 8)], lambda x: x.prod(1), {}),
    ("y() +=! x(n,c)", [(60, 800)], lambda x: x.sum(), {}),
    ("y(c) +=! x(n,c)", [(300, 40)], lambda x: x.sum(0), {}),
    ("y(n,c) = x(n,c) * sigmoid(x(n,c))", [(6, 8)], lambda x: x * torch.sigmoid(x), {}),
    ("y(i,j) = i >= j ? x(i,j) : 0", [(8, 8)], torch.tril, {}),
    ("y(i) = x(i,i)", [(8, 8)], torch.diag, {}),
    ("y(n,c) = x(n,7-c)", [(6, 8)], lambda x: x.flip(1), {"c": 8}),
    ("y(i,2*j+k) = x(i,j) where k in 0:2", [(6, 8)], lambda x: x.repeat_interleave(2, 1), {}),
    ("y(i,j) = x(i/2,j%4) where i in 0:9, j in 0:7", [(5, 4)],
     lambda x: x[torch.arange(9) // 2][:, torch.arange(7) % 4], {}),
    ("y(n) +=! (x(n,c) - z(n,c)) * (x(n,c) - z(n,c))", [(6, 8), (6, 8)],
     lambda x, z: ((x - z) ** 2).sum(1), {}),
    ("y(n,g,k,i) +=! x(n,g,c,i) * w(g,k,c)", [(2, 3, 4, 5), (3, 6, 4)],
     lambda x, w: torch.einsum("ngci,gkc->ngki", x, w), {}),
    ("y(n,k,p) +=! x(n,c,p+8*s) * w(k,c,s)", [(1, 4, 50), (5, 4, 3)],
     lambda x, w: torch.nn.functional.conv1d(x, w, dilation=8), {}),
    ("y(n,c,p,q) max=! x(n,c,2*p+r,2*q+s) where r in 0:2, s in 0:2", [(2, 3, 8, 6)],
     lambda x: torch.nn.functional.max_pool2d(x, 2), {}),
    ("y(c) +=! x(n,c)", [(700, 70)], lambda x: x.sum(0), {}),
    ("y(a,c) max=! x(a,n,c)", [(2, 300, 7)], lambda x: x.amax(1), {}),
    ("y(n,c,p) +=! x?(n,c,2*p+r-1) / 3 where r in 0:3, p in 0:5", [(2, 3, 9)],
     lambda x: torch.nn.functional.avg_pool1d(x, 3, 2, 1), {}),
    ("y(n) +=! x(n,c)", [(5, 0)], lambda x: x.sum(1), {}),
    ("y(i) = i > 0 ? x(i-1) : 7 where i in 0:9", [(8,)],
     lambda x: torch.cat([torch.full((1,), 7.0), x]), {}),
    ("y(i) = i < 8 ? x(i) : -1 where i in 0:90000", [(8,)],
     lambda x: torch.cat([x, torch.full((89992,), -1.0)]), {}),
    ("y(i) = x(i) + (3 + 4) / 2 - i / 2", [(8,)], lambda x: x + 3 - torch.arange(8) // 2, {}),
    ("y(i,j) = 3", [], lambda: torch.full((4, 5), 3.0).double(), {"i": 4, "j": 5}),
]  # fmt: skip


@pytest.mark.parametrize("case", ONE_LINES, ids=lambda it: it[0])
def test_what_fits_a_line(case: Any) -> None:
    formula, shapes, function, sizes = case
    if not shapes:
        formula, shapes = formula.replace("3", "3 + 0 * x(i)"), [(4,)]
        function = lambda x: torch.full((4, 5), 3.0).double()  # noqa: E731
        sizes = {"j": 5}
    arrays = [drawn(*shape) for shape in shapes]
    found = gpu.contract(formula, *arrays, **sizes)
    expected = function(*map(exact, arrays))
    size = function(*(exact(it).abs() for it in arrays)).abs().amax(0, keepdim=True) + 1
    if "max" in formula or "min" in formula or "(x(n,c) - z" in formula or "*=" in formula:
        size = expected.abs() + 1
    assert_close(found, expected, size.amax(), 800)


def reference(name: str, arrays: list[Any]) -> Any:
    functional = torch.nn.functional
    x, *rest = arrays
    if name == "fcrelu":
        return torch.relu(functional.linear(x, *rest))
    if name == "softmax":
        return torch.softmax(x, 1)
    if name == "layer_norm":
        return functional.layer_norm(x, x.shape[1:], *rest)
    if name == "group_norm":
        flat = x.reshape(x.shape[0], -1, *x.shape[3:])
        made = functional.group_norm(flat, x.shape[1], *(it.reshape(-1) for it in rest))
        return made.reshape(x.shape)
    if name == "separable":
        m = functional.conv2d(x, rest[0][:, None], padding=1, groups=x.shape[1])
        return torch.relu(functional.conv2d(torch.relu(m), rest[1][:, :, None, None]))
    if name == "attention":
        return functional.scaled_dot_product_attention(x, *rest, scale=0.125)
    return torch.tanh(rest[1] * torch.sigmoid(x @ rest[0].T))


@pytest.mark.parametrize("name", SHAPES)
def test_layers_and_their_gradients(name: str) -> None:
    layer = getattr(LAYERS, name)
    arrays = [drawn(*shape) for shape in SHAPES[name]]
    own = [exact(it).requires_grad_() for it in arrays]
    y = reference(name, own)
    found = gpu.contract(layer, *arrays)
    torch.testing.assert_close(exact(found), y.detach(), rtol=2e-5, atol=2e-5)
    dy = drawn(*y.shape)
    expected = torch.autograd.grad(y, own, exact(dy))
    for parameter, it in zip(layer.parameters, expected, strict=True):
        gradient = gpu.contract(layer.gradient(parameter), *arrays, dy)
        torch.testing.assert_close(exact(gradient), it, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", SHAPES)
def test_what_the_planner_of_the_cpu_fuses_is_fused_and_products_are_the_mapper_s(
    name: str,
) -> None:
    layer, shapes = getattr(LAYERS, name), SHAPES[name]
    told = layer.compile(*shapes).explain()
    own = gpu.compile(layer, *(drawn(*shape) for shape in shapes)).explain()
    heads = r"^ *statements? (\d+)(?: (?:to|and) (\d+))?: (.*)"
    mine = [range(int(a), int(b or a) + 1) for a, b, _ in re.findall(heads, own, re.M)]
    for first, last, what in re.findall(heads, told, re.M):
        group = set(range(int(first), int(last or first) + 1))
        if "product of matrices by" in what or "as one program" in what:
            assert any(group <= set(it) for it in mine), (group, mine)
    cuts = r"rows ([^;\n]*); columns ([^;\n]*);"
    names = [[re.findall(r"(\w+) \(", it) for it in cut] for cut in re.findall(cuts, own)]
    for rows, columns, _ in re.findall(r"^ *rows ([^;]*); columns ([^;]*); sums (.*)", told, re.M):
        pair = [re.findall(r"(\w+) \(", it) for it in (rows, columns)]
        assert any({*it[0]} == {*pair[0]} and {*it[1]} == {*pair[1]} for it in names), pair


def test_what_others_read_yet_is_not_overwritten() -> None:
    x = drawn(3000)
    zeros, y = gpu.contract(LAYERS.turned, x)
    assert torch.equal(y, 2 * x.flip(0) + 1)
    assert not zeros.any()


def test_what_is_written_in_part_keeps_the_rest() -> None:
    layers = dlprim.define("""
def rows(float(N,D) x) -> (y) {
    y(n,d) = x(n,d)
    y(n,d) = 0 where n in 0:3
}
def sums(float(N) x, float(N,K) w, float(K,D) v) -> (y) {
    y(n,d) +=! w(n,k) * v(k,d)
    y(n,d) = x(n) where n in 0:3
}
""")
    x = drawn(7, 5)
    y = gpu.contract(layers.rows, x)
    assert torch.equal(y[3:], x[3:])
    assert not y[:3].any()
    v, w = drawn(9, 5), drawn(7, 9)
    y = gpu.contract(layers.sums, x[:, 0], w, v)
    assert_close(y[3:], exact(w[3:]) @ exact(v), exact(w[3:]).abs() @ exact(v).abs(), 9)
    assert torch.equal(y[:3], x[:3, :1].expand(3, 5))


@pytest.mark.parametrize("shape", [(5, 0), (0, 5), (0, 0)], ids=str)
@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_arrays_without_elements(name: str, shape: tuple[int, int]) -> None:
    x, others = drawn(*shape), [drawn(shape[1]) for _ in SHAPES[name][1:]]
    layer = getattr(LAYERS, name)
    assert gpu.contract(layer, x, *others).shape == shape
    assert gpu.contract(layer.gradient("x"), x, *others, x).shape == shape


def test_rows_that_registers_do_not_hold_are_walked() -> None:
    x = drawn(2, 9000)
    found = gpu.contract(LAYERS.softmax, x)
    torch.testing.assert_close(exact(found), torch.softmax(exact(x), 1), rtol=1e-4, atol=1e-7)


def test_integers_may_be_places_of_others() -> None:
    layer = dlprim.define("""
def every_other(float(N,D) x) -> (y) {
    t(n) = 2 * n where n in 0:3
    y(n,d) = x(t(n),d) where n in 0:3
}
""").every_other
    x = drawn(6, 4)
    assert torch.equal(gpu.contract(layer, x), x[::2])


def test_conditions_are_arrays_too() -> None:
    layer = dlprim.define("""
def chosen(float(N,D) x) -> (y) {
    is(n,d) = x(n,d) > 0 && x(n,d) < 1
    y(n,d) = is(n,D-1-d) || !is(n,d) ? x(n,d) : -1
}
""").chosen
    x = drawn(6, 9)
    is_ = (x > 0) & (x < 1)
    expected = torch.where(is_.flip(1) | ~is_, x, torch.full_like(x, -1))
    assert torch.equal(gpu.contract(layer, x), expected)


def test_results_that_are_added_to_and_arrays_for_results() -> None:
    x, w, y = drawn(20, 30), drawn(25, 30), drawn(20, 25)
    expected = exact(y) + exact(x) @ exact(w).T
    size = exact(y).abs() + exact(x).abs() @ exact(w).abs().T
    assert gpu.contract("y(n,k) += x(n,c) * w(k,c)", x, w, out=y) is y
    assert_close(y, expected, size, 31)
    with pytest.raises(ValueError, match=r"^y is read before it is written, expected an array"):
        gpu.contract("y(n,k) += x(n,c) * w(k,c)", x, w, n=20, k=25)
    turned = drawn(25, 20).T
    gpu.contract("y(n,k) +=! x(n,c) * w(k,c)", x, w, out=turned)
    assert_close(turned, exact(x) @ exact(w).T, size, 31)


def test_a_nan_reaches_its_row_and_no_other() -> None:
    x = drawn(9, 40)
    x[4, 7] = float("nan")
    assert torch.isnan(gpu.contract(LAYERS.softmax, x)).any(1).nonzero().tolist() == [[4]]
    assert torch.isnan(gpu.contract("y(n) max=! x(n,c)", x)).nonzero().tolist() == [[4]]
