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
