"""Formulas that are compiled for some arrays, and what happens when they are called on others."""

from __future__ import annotations

import re

import numpy as np
import pytest

import dlprim
from conftest import RunPython
from drawing import RNG


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def test_a_compiled_formula_says_which_arrays_it_takes() -> None:
    layers = dlprim.define("def f(float(N,C) x, float(N,C) z) -> (y) { y(n,c) = x(n,c) - z(n,c) }")
    compiled = layers.f.compile((2, 3), (2, 3))
    with pytest.raises(TypeError, match=r"f was given 1 arrays, expected 2: x, z"):
        compiled(normal(2, 3))
    with pytest.raises(
        ValueError, match=r"z is an array of shape \(3, 2\), strides \(2, 1\) and 4"
    ):
        compiled(normal(2, 3), normal(3, 2))


def test_what_is_called_again_is_held_against_what_it_was_made_for() -> None:
    x, w = normal(6, 8), normal(5, 8)
    formula = "y(n,k) +=! x(n,c) * w(k,c)"
    for again in (x, x[::2], x[:, ::-1], np.asfortranarray(x), x.astype(">f4"), x[:0]):
        dlprim.contract(formula, x, w)
        if again.dtype != np.float32:
            with pytest.raises(TypeError, match="x has dtype >f4"):
                dlprim.contract(formula, again, w)
            continue
        np.testing.assert_allclose(dlprim.contract(formula, again, w), again @ w.T, 1e-4, 1e-4)
    with pytest.raises(TypeError, match="masked"):
        dlprim.contract(formula, np.ma.masked_less(x, 0), w)
    with pytest.raises(TypeError, match="was given 1 arrays, expected 2: x, w"):
        dlprim.contract(formula, x)


def test_explain_prices_ways_of_a_product_and_shows_the_best_few() -> None:
    product = layers_of_a_product()
    few, every = product.explain(), product.explain(all=True)
    prices = [int(price) for price in re.findall(r"(\d+) cycles expected", every)]
    assert prices == sorted(prices)
    assert len(prices) > few.count(" cycles expected") > 1
    for text in (few, every):
        assert text.startswith("statement 1: product of matrices by ")
        assert text.count(" cycles expected, chosen: ") == 1
        assert "rows n (64); columns k (200); sums c (300)\n" in text
    assert re.search(r"\n  and \d+ more\n", few)
    assert not re.search(r"\n  and \d+ more\n", every)


def test_explain_says_what_slides_what_is_outside_and_what_is_no_product() -> None:
    wave = dlprim.define(
        "def f(float(N,G,C,L) x, float(G,K,C,S) w) -> (y) {"
        " y(n,g,k,p) +=! x(n,g,c,p+8*s) * w(g,k,c,s) }"
    )
    text = wave.f.compile((1, 2, 15, 460), (2, 16, 15, 7)).explain()
    assert "outside g (2); s slides along p (A is Toeplitz)\n" in text
    sums = dlprim.define("def f(float(N,C) x) -> (y) { y(n) +=! x(n,c) }").f.compile((4, 5))
    reason = "no product of matrices here, as it multiplies no two arrays"
    assert sums.explain().startswith(f"statement 1: {reason}: rows\n")
    assert sums.explain(instruction="fma8") == f"statement 1: {reason}\n"


@pytest.mark.parametrize("name", ["fma16", "vdpbf16ps", "vpdpbusd", "tdpbf16ps", "mma.m16n8k16"])
def test_instructions_of_any_machine_are_asked_for_by_name(name: str) -> None:
    lines = layers_of_a_product().explain(instruction=name).splitlines()
    assert lines[0].startswith(f"statement 1: product of matrices on {name}: c(")
    assert " instructions, " in lines[1]
    assert "% of whose products are needed" in lines[1]


def test_an_unknown_instruction_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ValueError, match=r"instruction is 'wmma', expected one of scalar, fma8, "):
        layers_of_a_product().explain(instruction="wmma")


def layers_of_a_product() -> dlprim.lang.CompiledFormula:
    layers = dlprim.define(
        "def f(float(N,C) x, float(K,C) w) -> (y) { y(n,k) +=! x(n,c) * w(k,c) }"
    )
    return layers.f.compile((64, 300), (200, 300))


def test_bfloat16_is_known_by_name_before_anything_imported_it(run_python: RunPython) -> None:
    run = run_python(
        "import dlprim\n"
        "text = 'def f(float(M,K) a, float(N,K) b) -> (c) { c(m,n) +=! a(m,k) * b(n,k) }'\n"
        "print(dlprim.define(text).f.compile((3, 4), (5, 4), dtype='bfloat16'))\n"
    )
    assert run.returncode == 0, run.stderr


def test_explain_refuses_what_it_does_not_know_and_says_what_is_empty() -> None:
    layers = dlprim.define(
        "def fc(float(N,C) x, float(K,C) w) -> (y) { y(n,k) +=! x(n,c) * w(k,c) }"
    )
    fc = layers.fc.compile((4, 5), (3, 5))
    with pytest.raises(TypeError, match="all is 'tdpbf16ps', expected True or False"):
        fc.explain(all="tdpbf16ps")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="instruction is 5, expected a str or None"):
        fc.explain(instruction=5)  # type: ignore[arg-type]
    for name in ("", "nope"):
        with pytest.raises(ValueError, match=f"instruction is '{name}', expected one of .*fma16"):
            fc.explain(instruction=name)
    for shapes in (((0, 5), (3, 5)), ((4, 0), (3, 0))):
        empty = layers.fc.compile(*shapes)
        for instruction in (None, "mma.m16n8k16"):
            assert "here, as an index has no values" in empty.explain(instruction=instruction)
