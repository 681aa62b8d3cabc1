"""Definitions of many statements, and names that other libraries have for functions."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import dlprim

pytestmark = pytest.mark.any_level

STATEMENTS = 700


def layer(statements: list[str], result: str = "y") -> Any:
    text = "\n".join(statements)
    return dlprim.define(f"def f(float(N,C) x, float(C,C) w) -> ({result}) {{\n{text}\n}}").f


def operands() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    return random.standard_normal((3, 8), np.float32), np.eye(8, dtype=np.float32)


def test_chains_of_maps() -> None:
    x, w = operands()
    lines = ["t0(n,c) = x(n,c)"]
    lines += [f"t{i}(n,c) = fmax(t{i - 1}(n,c) - 0.25, {-i})" for i in range(1, STATEMENTS)]
    found = layer([*lines, f"y(n,c) = t{STATEMENTS - 1}(n,c) + x(n,c)"])(x, w)
    expected = x.astype(np.float64)
    for i in range(1, STATEMENTS):
        expected = np.fmax(expected - 0.25, -i)
    np.testing.assert_allclose(found, expected + x, rtol=1e-4, atol=1e-3)


def test_chains_of_products_with_what_is_read_far_behind() -> None:
    x, w = operands()
    lines = ["t0(n,k) +=! x(n,c) * w(k,c)"]
    for i in range(1, STATEMENTS // 4):
        lines.append(f"t{i}(n,k) +=! t{i - 1}(n,c) * w(k,c)")
        lines.append(f"t{i}(n,k) = t{i}(n,k) + t{i // 2}(n,k) * 0.001")
    found = layer([*lines, f"y(n,c) = t{i}(n,c)"])(x, w)
    known = [x.astype(np.float64)]
    for i in range(1, STATEMENTS // 4):
        known.append(known[-1])
        known[-1] = known[-1] + 0.001 * known[i // 2]
    np.testing.assert_allclose(found, known[-1], rtol=1e-4)


def test_a_sum_of_deeply_nested_functions() -> None:
    x, w = operands()
    nested, expected = "x(n,c)", x.astype(np.float64)
    for _ in range(150):
        nested, expected = f"sin({nested})", np.sin(expected)
    found = layer([f"y(n) +=! {nested}"])(x, w)
    np.testing.assert_allclose(found, expected.sum(axis=1), rtol=1e-4, atol=1e-5)


def test_statements_that_nothing_reads_together() -> None:
    x, w = operands()
    lines = [f"t{i}(n,c) = x(n,c) * {i}" for i in range(STATEMENTS)]
    lines += ["s(n) +=! t3(n,c)", f"y(n,c) = t{STATEMENTS - 1}(n,c) + s(n) + t17(c,n)"]
    square = np.tile(x[:1], (8, 1))
    found = layer(lines)(square, w)
    right = (STATEMENTS - 1) * square + 3 * square.sum(1, keepdims=True) + 17 * square.T
    np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-3)


def test_a_group_ends_where_a_tensor_is_written_along_another_place() -> None:
    """Whatever was read of it before it is written again."""
    x = np.random.default_rng(1).standard_normal((300, 300)).astype(np.float32)
    lines = [
        "a(i,j) = 2 * x(i,j)",
        "b(i,j) = a(i,j) + 1",
        "a(j,i) = b(i,j)",
        "y(i,j) = a(i,j) - b(i,j)",
    ]
    expected = (2 * x + 1).T - (2 * x + 1)
    np.testing.assert_allclose(layer(lines)(x, x), expected, rtol=1e-5, atol=1e-5)


def test_other_threads_run_while_a_definition_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose turn comes by itself only after an hour."""
    interval = sys.getswitchinterval()
    turns, ended = [0], threading.Event()

    def count() -> None:
        while not ended.is_set():
            turns[0] += 1
            time.sleep(0)

    slow = layer([f"t{i}(n,c) = x(n,c) * {i}" for i in range(STATEMENTS)] + ["y(n,c) = t9(n,c)"])
    other = threading.Thread(target=count)
    sys.setswitchinterval(3600)
    try:
        other.start()
        time.sleep(0.01)
        before = turns[0]
        slow.compile((3, 8), (8, 8))
        assert turns[0] > before + 10
    finally:
        ended.set()
        sys.setswitchinterval(interval)
        other.join()


SPELLED = {
    "maximum(x(n,c), 0)": ("maximum", r"fmax\(a, b\)"),
    "square(x(n,c))": ("square", r"pow\(a, 2\)"),
    "power(x(n,c), 2)": ("power", r"pow\(a, b\)"),
    "reciprocal(x(n,c))": ("reciprocal", r"1 / a"),
    "clip(x(n,c), 0, 1)": ("clip", r"fmin\(fmax\(a, low\), high\)"),
}


@pytest.mark.parametrize("value", SPELLED)
def test_names_of_functions_of_other_libraries_are_told_those_of_here(value: str) -> None:
    name, here = SPELLED[value]
    with pytest.raises(
        ValueError, match=f"The name {name} is no tensor and no .*, expected {here}"
    ):
        layer([f"y(n,c) = {value}"])
    with pytest.raises(TypeError, match=f"; as a function, {name} is written {here}$"):
        dlprim.contract(f"y(n,c) = {value}", operands()[0])


def test_such_names_are_those_of_tensors() -> None:
    x, w = operands()
    found = layer(["power(n,c) = x(n,c) * x(n,c)", "y(n) +=! power(n,c)"])(x, w)
    np.testing.assert_allclose(found, (x * x).sum(1), rtol=1e-5)
    square = dlprim.contract("y(n) +=! square(n,c)", x)
    np.testing.assert_allclose(square, x.sum(1), rtol=1e-4, atol=1e-5)


MANY = (29, 41, 200)  # reads: more than one program has operands


def reading(count: int, body: str, returns: str = "y") -> Any:
    """A definition of parameters a0, a1, ..; `body` has their sum where it says SUM."""
    parameters = ", ".join(f"float(I,J) a{i}" for i in range(count))
    sum_of_all = " + ".join(f"a{i}(i,j)" for i in range(count))
    body = body.replace("SUM", sum_of_all)
    return dlprim.define(f"def f({parameters}) -> ({returns}) {{ {body} }}").f


def many_arrays(count: int, shape: tuple[int, int] = (7, 19)) -> list[Any]:
    random = np.random.default_rng(count)
    return list(random.standard_normal((count, *shape), np.float32))


def one_after_the_other(arrays: list[Any]) -> Any:
    total = arrays[0]
    for it in arrays[1:]:
        total = total + it
    return total


@pytest.mark.parametrize("count", MANY)
def test_a_map_of_many_reads_is_added_in_float32_in_its_order(count: int) -> None:
    arrays = many_arrays(count)
    found = reading(count, "y(i,j) = SUM")(*arrays)
    np.testing.assert_array_equal(found, one_after_the_other(arrays))


@pytest.mark.parametrize("count", MANY)
def test_a_map_of_many_reads_of_bfloat16_is_rounded_once(count: int) -> None:
    halves = [dlprim.to_bfloat16(it) for it in many_arrays(count)]
    if halves[0].dtype == np.uint16:
        pytest.skip("without ml_dtypes there is no bfloat16 array that a formula takes")
    found = reading(count, "y(i,j) = SUM")(*halves)
    expected = dlprim.to_bfloat16(one_after_the_other([dlprim.to_float32(it) for it in halves]))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.view(np.uint16), expected.view(np.uint16))


def test_products_of_many_reads_and_their_sums_are_rounded_as_in_float32() -> None:
    arrays = many_arrays(41)
    products = [f"a{i}(i,j) * a{i + 1}(i,j)" for i in range(1, 41, 2)]
    found = reading(41, f"y(i,j) = a0(i,j) + {' + '.join(products)}")(*arrays)
    pairs = zip(arrays[1::2], arrays[2::2], strict=True)
    expected = one_after_the_other([arrays[0], *(a * b for a, b in pairs)])
    np.testing.assert_array_equal(found, expected)
    factors = " * ".join(f"a{i}(i,j)" for i in range(1, 41))
    product = arrays[1]
    for it in arrays[2:]:
        product = product * it
    for operation, expected in {"+": arrays[0] + product, "-": arrays[0] - product}.items():
        found = reading(41, f"y(i,j) = a0(i,j) {operation} {factors}")(*arrays)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("count", [*range(25, 30), *MANY[1:]])
@pytest.mark.parametrize("shape", [(7, 19), (300, 5), (1, 40000)], ids=str)
def test_reductions_of_many_reads(count: int, shape: tuple[int, int]) -> None:
    arrays = many_arrays(count, shape)
    total = one_after_the_other([it.astype(np.float64) for it in arrays])
    for body, expected in {
        "y(i) +=! SUM": total.sum(1),
        "y(j) +=! SUM": total.sum(0),
        "y() +=! SUM": total.sum(),
        "y(i) max=! SUM": total.max(1),
        "y(j) min=! SUM": total.min(0),
        "y(j) = a0(0,j) y(j) += SUM": total.sum(0) + arrays[0][0],
        "y(i,j) = a0(i,j) y(i,j) += SUM": total + arrays[0],
        "y(j,i) = SUM": total.T,
    }.items():
        found = reading(count, body)(*arrays)
        bound = 1e-5 * (1 + np.abs(expected).max()) * shape[1] ** 0.5
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=bound)
    found = reading(count, "y(i) *=! (SUM) * 0.01 where j in 0:4")(*arrays)
    np.testing.assert_allclose(found, (0.01 * total[:, :4]).prod(1), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("count", MANY)
def test_many_reads_of_rows_of_columns_and_of_numbers(count: int) -> None:
    random = np.random.default_rng(count)
    kinds = [("float(I,J)", "(i,j)", (6, 9)), ("float(J)", "(j)", (9,)), ("float(I)", "(i)", (6,))]
    kinds.append(("float", "", ()))
    names = [f"a{i}" for i in range(count)]
    parameters = ", ".join(f"{kinds[i % 4][0]} {it}" for i, it in enumerate(names))
    value = " + ".join(f"{it}{kinds[i % 4][1]}" for i, it in enumerate(names))
    arrays = [np.asarray(random.standard_normal(kinds[i % 4][2]), np.float32) for i in range(count)]
    wide = [it[:, None] if it.shape == (6,) else it for it in arrays]
    map_of, sum_of = f"y(i,j) = {value}", f"y(i) +=! {value}"
    found = dlprim.define(f"def f({parameters}) -> (y) {{ {map_of} }}").f(*arrays)
    np.testing.assert_array_equal(found, one_after_the_other(wide))
    found = dlprim.define(f"def f({parameters}) -> (y) {{ {sum_of} }}").f(*arrays)
    np.testing.assert_allclose(found, one_after_the_other(wide).sum(1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("count", MANY)
def test_many_shifted_reads_go_as_far_as_the_statement(count: int) -> None:
    x = many_arrays(1, (count + 3, 19))[0]
    shifts = [f"x(i+{k},j)" for k in range(count)] + [f"x?(i-{k},j+1)" for k in range(3)]
    text = "def f(float(I,J) x) -> (y) { y(i,j) = SHIFTS where i in 0:4 }"
    found = dlprim.define(text.replace("SHIFTS", " + ".join(shifts))).f(x)
    read = [x[k : k + 4] for k in range(count)]
    outside = np.pad(x, ((3, 0), (0, 1)))
    read += [outside[3 - k : 7 - k, 1:] for k in range(3)]
    np.testing.assert_array_equal(found, one_after_the_other(read))


def test_many_reads_that_repeat_and_whole_numbers_of_them() -> None:
    arrays = many_arrays(32)
    exact = [it.astype(np.float64) for it in arrays]
    pairs = [(p, q) for p in range(32) for q in range(p)]
    value = " + ".join(f"a{p}(i,j) * a{q}(i,j)" for p, q in pairs)
    expected = sum(exact[p] * exact[q] for p, q in pairs)
    found = reading(32, f"y(i,j) = {value}")(*arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    found = reading(32, f"y(i) +=! {value}")(*arrays)
    np.testing.assert_allclose(found, np.sum(expected, 1), rtol=1e-4, atol=1e-3)
    counted = " + ".join(f"(a{i}(i,j) < 0 ? i + 1 : 0)" for i in range(32))
    found = reading(32, f"y(i,j) = ({counted}) / 7")(*arrays)
    negative = sum((it < 0).astype(np.int64) for it in arrays)
    np.testing.assert_array_equal(found, negative * np.arange(1, 8)[:, None] // 7)
    all_of = " && ".join(f"a{i}(i,j) < 2" for i in range(32))
    found = reading(32, f"y(i,j) = {all_of} ? a0(i,j) : -1")(*arrays)
    is_small = np.all(np.array(arrays) < 2, axis=0)
    np.testing.assert_array_equal(found, np.where(is_small, arrays[0], -1))


@pytest.mark.parametrize("count", MANY)
def test_a_gradient_by_one_of_many_reads(count: int) -> None:
    arrays = [it / count for it in many_arrays(count)]
    d_y = np.arange(1, 8, dtype=np.float32)
    found = reading(count, "y(i) +=! exp(SUM) * a3(i,j)").gradient("a3")(*arrays, d_y)
    power = np.exp(one_after_the_other([it.astype(np.float64) for it in arrays]))
    np.testing.assert_allclose(found, d_y[:, None] * power * (1 + arrays[3]), rtol=1e-4, atol=1e-6)


def test_an_end_of_a_product_with_many_reads() -> None:
    arrays = many_arrays(41, (64, 64))
    body = "y(i,j) +=! a0(i,k) * a1(j,k) y(i,j) = y(i,j) + SUM"
    exact = [it.astype(np.float64) for it in arrays]
    expected = exact[0] @ exact[1].T + one_after_the_other(exact)
    np.testing.assert_allclose(reading(41, body)(*arrays), expected, rtol=1e-5, atol=1e-4)
