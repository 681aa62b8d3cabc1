"""Definitions and formulas as objects: arrays by name, copies, pickles, what is printed of them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim.lang.definitions import contraction
from drawing import RNG

pytestmark = pytest.mark.any_level

TEXT = """
def fcrelu(float(B,I) x, float(O,I) w, float(O) b) -> (y) {
    y(n,o) +=! x(n,i) * w(o,i)
    y(n,o) = fmax(y(n,o) + b(o), 0)
}
def doubled(float(N) x) -> (y, z) { y(n) = 2 * x(n)  z(n) = y(n) }
"""


def arrays() -> dict[str, Any]:
    shapes = {"x": (3, 5), "w": (4, 5), "b": (4,)}
    return {name: RNG.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def test_arrays_by_name() -> None:
    layer, given = dlprim.define(TEXT).fcrelu, arrays()
    x, w, b = given.values()
    expected = np.maximum(x.astype(float) @ w.T + b, 0)
    out = np.empty((3, 4), np.float32)
    for found in (
        layer(x, w, b),
        layer(x, w, b=b),
        layer(x, b=b, w=w),
        layer(b=b, w=w, x=x, out=out),
        layer.compile(b=(4,), w=(4, 5), x=(3, 5))(x, w=w, b=b),
        layer.compile((3, 5), (4, 5), b=(4,))(**given),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert out is layer(**given, out=out)


def test_sizes_stand_beside_arrays_by_name() -> None:
    layer = dlprim.define("def f(float(N) x) -> (y) { y(n,k) = x(n) }").f
    x = RNG.standard_normal(3, np.float32)
    np.testing.assert_array_equal(layer(x=x, k=2), np.stack([x, x], 1))
    np.testing.assert_array_equal(layer.compile(x=(3,), k=2)(x=x), np.stack([x, x], 1))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda f, it: f(it["x"], x=it["x"], w=1, b=1), "fcrelu was given x twice, by position an"),
        (lambda f, it: f(it["x"], b=it["b"]), "fcrelu was not given w, expected an array for each"),
        (lambda f, it: f(it["x"]), "fcrelu was given 1 arrays, expected 3: x, w, b"),
        (
            lambda f, it: f.compile((3, 5), (4, 5), (4,))(**it, q=1),
            "fcrelu has no array q, expected x, w, b: sizes are those that it was compiled for",
        ),
    ],
)
def test_wrong_names(call: Any, match: str) -> None:
    with pytest.raises(TypeError, match=match):
        call(dlprim.define(TEXT).fcrelu, arrays())


def again(it: Any) -> tuple[Any, ...]:
    return pickle.loads(pickle.dumps(it)), copy.copy(it), copy.deepcopy(it)


def test_definitions_and_formulas_come_back() -> None:
    layers, given = dlprim.define(TEXT), list(arrays().values())
    expected = layers.fcrelu(*given)
    for other in again(layers):
        assert [it.name for it in other] == ["fcrelu", "doubled"]
        np.testing.assert_array_equal(other.fcrelu(*given), expected)
    for other in again(layers.fcrelu):
        np.testing.assert_array_equal(other(*given), expected)
    gradient, dy = layers.fcrelu.gradient("w"), np.ones((3, 4), np.float32)
    for other in again(gradient):
        np.testing.assert_array_equal(other(*given, dy), gradient(*given, dy))
    compiled = layers.fcrelu.compile((3, 5), (4, 5), (4,))
    for other in again(compiled):
        np.testing.assert_array_equal(other(*given), compiled(*given))
        assert other.schedule == compiled.schedule
    product = contraction("y(n,k) +=! x(n,c) * w(k,c)")
    for other in again(product):
        np.testing.assert_array_equal(other(*given[:2]), product(*given[:2]))


def test_what_is_printed() -> None:
    layers = dlprim.define(TEXT)
    assert repr(layers) == "<dlprim.Definitions fcrelu, doubled>"
    assert repr(layers.doubled) == "<dlprim.Definition doubled(x) -> (y, z)>"
    compiled = layers.doubled.compile((3,))
    assert repr(compiled) == "<dlprim.CompiledFormula doubled(x: float32[3])>"


WRONG = [
    ("def f(float(N) x) -> (y) { y(n) = z(n) }", "The name z is no tensor and no function", 35),
    ("def f(float(N) x) -> (y) { y(n) = sinus(x(n)) }", "name sinus is no tensor and no funct", 35),
    ("def f(float(N,C) x) -> (y) { y(n) = x(n) }", "tensor x has 2 dimensions, expected as", 37),
    ("def f(float(N) x) -> (y, z) { y(n) = x(n) }", "The result z is never written", None),
    ("def f(float(N,C) x) -> (y) { y(n) = x(n,c) }", "index c stands on the right only", None),
    ("def f(float(N) x) -> (y) { y(n) = fmax(x(n)) }", "fmax has 1 operand, expected 2", 35),
    ("def f(float(N) x, float(N) i) -> (y) { y(n) = x(i(n)) }", "A place of x is no integer", None),
    ("def f(float(N) x) -> (y) { y(n) = x(n) ? 1 : 0 }", "A number stands where a condition", None),
    ("def f(float(N) x) -> (y) { x(n) = 1 }", "The parameter x is written", None),
    ("def f(float(N) x, float(N) x) -> (y) { y(n) = x(n) }", "The name x is defined twice", None),
    (2 * "def f(float(N) x) -> (y) { y(n) = x(n) }", "The name f is defined twice", None),
]


@pytest.mark.parametrize(("text", "match", "column"), WRONG)
def test_definitions_are_checked_when_they_are_written(
    text: str, match: str, column: int | None
) -> None:
    with pytest.raises(ValueError, match=match) as caught:
        dlprim.define(text)
    *_, quoted, mark = str(caught.value).splitlines()
    assert mark.strip() == "^"
    assert quoted.strip() in text
    if column is not None:
        assert f"column {column})" in str(caught.value)
    good = "def g(float(N) x) -> (y) { y(n) = x(n) }\n"
    with pytest.raises(ValueError, match=match):
        dlprim.define(good + text)


def test_contractions_are_checked_before_arrays_are_looked_at() -> None:
    with pytest.raises(ValueError, match="index c stands on the right only"):
        dlprim.contract("y(n) = x(n,c)", None)


def test_no_word_of_cpp() -> None:
    layer = dlprim.define(TEXT).fcrelu
    calls: list[Any] = [
        lambda: layer.gradient("q"),
        lambda: layer(**arrays(), q=3),
        lambda: layer.compile((3, 5), (4, 5), (4,), O=7),
        lambda: layer.compile((3, 5), (4,), (4,)),
    ]
    for call in calls:
        with pytest.raises((TypeError, ValueError)) as caught:
            call()
        assert "::" not in str(caught.value)
