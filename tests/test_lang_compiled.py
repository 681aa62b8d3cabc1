"""Formulas that are compiled for some arrays, and what happens when they are called on others."""

from __future__ import annotations

import re

import numpy as np
import pytest

import dlprim

RNG = np.random.default_rng(3)


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


def test_explain_prices_every_way_of_a_product() -> None:
    layers = dlprim.define(
        "def f(float(N,C) x, float(K,C) w) -> (y) { y(n,k) +=! x(n,c) * w(k,c) }"
    )
    text = layers.f.compile((64, 300), (200, 300)).explain()
    assert text.count(" cycles expected: ") > 1
    prices = [int(price) for price in re.findall(r"(\d+) cycles expected", text)]
    assert prices == sorted(prices)


def layers_of_a_product() -> dlprim.lang.CompiledFormula:
    layers = dlprim.define(
        "def f(float(N,C) x, float(K,C) w) -> (y) { y(n,k) +=! x(n,c) * w(k,c) }"
    )
    return layers.f.compile((64, 300), (200, 300))
