"""Gradients of definitions: against differences of a float64 evaluation in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim.lang.definitions import contraction
from drawing import RNG

LAYERS = """
def fcrelu(float(B,I) x, float(O,I) w, float(O) b) -> (y) {
    y(n,o) +=! x(n,i) * w(o,i)
    y(n,o) = fmax(y(n,o) + b(o), 0)
}
def softmax(float(N,D) x) -> (y) {
    highest(n) max=! x(n,d)
    power(n,d) = exp(x(n,d) - highest(n))
    total(n) +=! power(n,d)
    y(n,d) = power(n,d) / total(n)
}
def layer_norm(float(N,K) x, float(K) gamma, float(K) beta) -> (y) {
    mean(n) +=! x(n,k) / K
    centered(n,k) = x(n,k) - mean(n)
    variance(n) +=! centered(n,k) * centered(n,k) / K
    y(n,k) = gamma(k) * centered(n,k) * rsqrt(variance(n) + 1e-5) + beta(k)
}
def sgemm(float a, float b, float(N,M) A, float(M,K) B) -> (C) {
    C(i,j) = b * C(i,j)
    C(i,j) += a * A(i,k) * B(k,j)
}
def conv(float(N,C,H,W) x, float(M,C,R,S) w, float(M) b) -> (y) {
    y(n,m,p,q) +=! x(n,c,p+r,q+s) * w(m,c,r,s)
    y(n,m,p,q) = gelu(y(n,m,p,q) + b(m))
}
def strided(float(N,C,H,W) x, float(M,C,3,3) w) -> (y) {
    y(n,m,p,q) +=! x?(n,c,2*p+r-1,2*q+s-1) * w(m,c,r,s) where p in 0:(H+1)/2, q in 0:(W+1)/2
}
def max_pool(float(N,C,H,W) x) -> (y) {
    y(n,c,p,q) max=! x(n,c,2*p+r,2*q+s) where r in 0:2, s in 0:2
}
def mean_pool(float(N,C,H) x) -> (y) { y(n,c,p) +=! x(n,c,3*p+r) / 3 where r in 0:3 }
def chain(float(I,J) a, float(J,K) b, float(K,L) c) -> (y) { y(i,l) +=! a(i,j) * b(j,k) * c(k,l) }
def product(float(N,K) x) -> (y) { y(n) *=! x(n,k) }
"""


def softmax(x: Any) -> Any:
    power = np.exp(x - x.max(1, keepdims=True))
    return power / power.sum(1, keepdims=True)


def layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
    centered = x - x.mean(1, keepdims=True)
    return gamma * centered / np.sqrt((centered**2).mean(1, keepdims=True) + 1e-5) + beta


def windows(x: Any, extents: tuple[int, int], stride: int) -> Any:
    found = np.lib.stride_tricks.sliding_window_view(x, extents, (2, 3))
    return found[:, :, ::stride, ::stride]


def gelu(x: Any) -> Any:
    return x * (0.5 + 0.5 * np.vectorize(math.erf)(x / np.sqrt(2)))


def conv(x: Any, w: Any, b: Any) -> Any:
    product = np.einsum("ncpqrs,mcrs->nmpq", windows(x, w.shape[2:], 1), w)
    return gelu(product + b[:, None, None])


def strided(x: Any, w: Any) -> Any:
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return np.einsum("ncpqrs,mcrs->nmpq", windows(x, (3, 3), 2), w)


CASES: dict[str, tuple[Callable[..., Any], dict[str, tuple[int, ...]]]] = {
    "fcrelu": (lambda x, w, b: np.maximum(x @ w.T + b, 0), {"x": (5, 7), "w": (6, 7), "b": (6,)}),
    "softmax": (softmax, {"x": (4, 9)}),
    "layer_norm": (layer_norm, {"x": (4, 8), "gamma": (8,), "beta": (8,)}),
    "sgemm": (
        lambda a, b, A, B, C: b * C + a * (A @ B),
        {"a": (), "b": (), "A": (3, 4), "B": (4, 5), "C": (3, 5)},
    ),
    "conv": (conv, {"x": (2, 3, 6, 5), "w": (4, 3, 3, 2), "b": (4,)}),
    "strided": (strided, {"x": (2, 3, 8, 7), "w": (4, 3, 3, 3)}),
    "max_pool": (lambda x: windows(x, (2, 2), 2).max((4, 5)), {"x": (2, 3, 6, 5)}),
    "mean_pool": (
        lambda x: x[:, :, :6].reshape(2, 3, 2, 3).mean(3),
        {"x": (2, 3, 8)},
    ),
    "chain": (lambda a, b, c: a @ b @ c, {"a": (3, 4), "b": (4, 5), "c": (5, 6)}),
    "product": (lambda x: x.prod(1), {"x": (3, 5)}),
}
PAIRS = [(name, parameter) for name, (_, shapes) in CASES.items() for parameter in shapes]


def differences(
    function: Callable[..., Any], arrays: dict[str, Any], parameter: str, d_y: Any
) -> Any:
    """The float64 gradient of the sum of ``d_y`` times the function."""
    exact = {name: array.astype(np.float64) for name, array in arrays.items()}
    gradient, step = np.empty(arrays[parameter].shape), 1e-6
    for place in np.ndindex(gradient.shape):
        sides = []
        for sign in (1, -1):
            moved = exact[parameter].copy()
            moved[place] += sign * step
            sides.append(float((function(**exact | {parameter: moved}) * d_y).sum()))
        gradient[place] = (sides[0] - sides[1]) / (2 * step)
    return gradient


def from_kinks(name: str, arrays: dict[str, Any]) -> float:
    """How far a function is from where it has two slopes: an argument of 0, or two maxima."""
    if name == "fcrelu":
        return float(np.abs(arrays["x"] @ arrays["w"].T + arrays["b"]).min())
    if name == "max_pool":
        found = windows(arrays["x"], (2, 2), 2)
        ordered = np.sort(found.reshape(*found.shape[:4], 4), axis=-1)
        return float((ordered[..., -1] - ordered[..., -2]).min())
    return math.inf


def arrays_of(name: str) -> tuple[dict[str, Any], Any]:
    """Farther from kinks than bfloat16 rounds: within that either slope is right."""
    function, shapes = CASES[name]
    distance = 0.0
    while distance < 0.04:
        arrays = {it: RNG.standard_normal(shape) for it, shape in shapes.items()}
        arrays = {it: np.asarray(array, np.float32) for it, array in arrays.items()}
        distance = from_kinks(name, arrays)
    d_y = RNG.standard_normal(function(**arrays).shape).astype(np.float32)
    return arrays, d_y


@pytest.mark.parametrize(("name", "parameter"), PAIRS)
def test_a_gradient_is_what_differences_say(name: str, parameter: str) -> None:
    arrays, d_y = arrays_of(name)
    gradient = getattr(dlprim.define(LAYERS), name).gradient(parameter)
    found = gradient(*arrays.values(), d_y)
    expected = differences(CASES[name][0], arrays, parameter, d_y)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(("name", "parameter"), PAIRS)
def test_a_gradient_of_bfloat16(name: str, parameter: str) -> None:
    arrays, d_y = arrays_of(name)
    halves = {it: dlprim.to_bfloat16(array) for it, array in arrays.items()}
    half = dlprim.to_bfloat16(d_y)
    if half.dtype == np.uint16:
        pytest.skip("without ml_dtypes there is no bfloat16 array that a formula takes")
    found = getattr(dlprim.define(LAYERS), name).gradient(parameter)(*halves.values(), half)
    assert found.dtype == half.dtype
    exact = {it: array.astype(np.float32) for it, array in halves.items()}
    expected = differences(CASES[name][0], exact, parameter, half.astype(np.float64))
    bound = 0.1 * (1 + np.abs(expected).max())
    assert np.abs(found.astype(np.float64) - expected).max() <= bound


def test_what_a_gradient_refuses() -> None:
    layers = dlprim.define(LAYERS)
    with pytest.raises(ValueError, match="no parameter z, expected one of x, w, b"):
        layers.conv.gradient("z")
    with pytest.raises(TypeError, match="parameter is of type int, expected a str"):
        layers.conv.gradient(3)
    arrays, d_y = arrays_of("conv")
    with pytest.raises(ValueError, match="d_y has a dimension 2 of 3, expected 4"):
        layers.conv.gradient("x")(*arrays.values(), d_y[:, :, 1:])


def test_gradients_are_kept_and_have_gradients() -> None:
    square = dlprim.define("def square(float(N) x) -> (y) { y(n) = pow(x(n), 3) }").square
    assert square.gradient("x") is square.gradient("x")
    twice = square.gradient("x").gradient("x")
    x, one = np.arange(1, 5, dtype=np.float32), np.ones(4, np.float32)
    np.testing.assert_allclose(twice(x, one, one), 6 * x, rtol=1e-6)


def test_gradients_of_one_statement_alone() -> None:
    x, w = (RNG.standard_normal(shape).astype(np.float32) for shape in ((4, 5), (3, 5)))
    d_y = RNG.standard_normal((4, 3)).astype(np.float32)
    by_x = contraction("y(n,k) +=! x(n,c) * w(k,c)").gradient("x")
    np.testing.assert_allclose(by_x(x, w, d_y), d_y @ w, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("function", ["fmin", "fmax"])
def test_of_equal_operands_the_first_has_the_gradient(function: str) -> None:
    text = f"def it(float(N) a, float(N) b) -> (y) {{ y(n) = {function}(a(n), b(n)) }}"
    it, x, d_y = dlprim.define(text).it, np.ones(3, np.float32), np.arange(3, dtype=np.float32)
    assert it.gradient("a")(x, x, d_y).tolist() == [0, 1, 2]
    assert it.gradient("b")(x, x, d_y).tolist() == [0, 0, 0]
