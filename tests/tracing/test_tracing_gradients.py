"""`value_and_grad`, `grad` and `vjp`: what they are called with, and what they give."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import dlprim
from drawing import RNG

F = np.float32


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(F)


def loss(p: Any, x: Any, y: Any) -> Any:
    h = np.tanh(x @ p["layers"][0]["w"] + p["layers"][0]["b"])
    return np.mean((h @ p["v"] * p["scale"] - y) ** 2)


def parameters() -> Any:
    layer = {"w": floats(4, 5), "b": floats(5)}
    return {"layers": [layer], "v": floats(5, 2), "scale": 0.7, "name": "net"}


def test_gradients_are_nested_as_arguments() -> None:
    p, x, y = parameters(), floats(6, 4), floats(6, 2)
    value, found = dlprim.value_and_grad(loss)(p, x, y)
    np.testing.assert_allclose(value, loss(p, x, y), rtol=1e-5)
    assert list(found) == list(p)
    assert found["name"] is None
    assert found["scale"].shape == ()
    h = np.tanh(x @ p["layers"][0]["w"] + p["layers"][0]["b"])
    rest = 2 * (h @ p["v"] * 0.7 - y) / y.size
    np.testing.assert_allclose(found["v"], 0.7 * h.T @ rest, rtol=1e-4, atol=1e-6)
    inner = 0.7 * rest @ p["v"].T * (1 - h**2)
    np.testing.assert_allclose(found["layers"][0]["b"], inner.sum(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found["layers"][0]["w"], x.T @ inner, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found["scale"], np.sum(rest * (h @ p["v"])), rtol=1e-4)


def test_places() -> None:
    def function(a: Any, b: Any, c: Any = 1.0) -> Any:
        return np.sum(a * b * b * c)

    a, b = floats(3), floats(3)
    np.testing.assert_allclose(dlprim.grad(function)(a, b), b * b, rtol=1e-5)
    np.testing.assert_allclose(dlprim.grad(function, 1)(a, b), 2 * a * b, rtol=1e-5)
    np.testing.assert_allclose(dlprim.grad(function, 1)(a, b=b), 2 * a * b, rtol=1e-5)
    both = dlprim.grad(function, (1, 0))(a, b)
    assert type(both) is tuple
    np.testing.assert_allclose(both[1], b * b, rtol=1e-5)
    (one,) = dlprim.grad(function, [0])(a, b)
    np.testing.assert_allclose(one, b * b, rtol=1e-5)
    last = dlprim.grad(function, -1)(a, b, c=2.0)
    np.testing.assert_allclose(last, np.sum(a * b * b), rtol=1e-5)


def test_the_same_array_for_two_arguments() -> None:
    x = floats(4)
    found = dlprim.grad(lambda a, b: np.sum(a * b * b), (0, 1))(x, x)
    np.testing.assert_allclose(found[0], x * x, rtol=1e-5)
    np.testing.assert_allclose(found[1], 2 * x * x, rtol=1e-5)


def test_others_beside_the_scalar() -> None:
    def function(w: Any, x: Any) -> Any:
        y = x @ w
        return np.sum(y**2), {"y": y, "count": len(x), "w": w}

    w, x = floats(4), floats(3, 4)
    (value, others), gradient = dlprim.value_and_grad(function, has_aux=True)(w, x)
    np.testing.assert_allclose(others["y"], x @ w, rtol=1e-5)
    np.testing.assert_array_equal(others["w"], w)
    assert others["count"] == 3
    np.testing.assert_allclose(value, np.sum((x @ w) ** 2), rtol=1e-5)
    alone, again = dlprim.grad(function, has_aux=True)(w, x)
    np.testing.assert_array_equal(alone, gradient)
    np.testing.assert_array_equal(again["y"], others["y"])


def test_what_does_not_matter_has_zeros() -> None:
    a, b = floats(3), floats(2, 2)
    found = dlprim.grad(lambda a, b: np.sum(a) + np.sum(np.floor(b)), (0, 1))(a, b)
    np.testing.assert_array_equal(found[0], np.ones(3))
    np.testing.assert_array_equal(found[1], np.zeros((2, 2)))


def test_rounded_arrays_have_rounded_gradients() -> None:
    import ml_dtypes

    w = floats(3).astype(ml_dtypes.bfloat16)
    value, found = dlprim.value_and_grad(lambda w: np.sum(w * w))(w)
    assert found.dtype == value.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(found.astype(F), 2 * w.astype(F), rtol=1e-2)


def test_gradients_of_gradients() -> None:
    x = floats(5)
    cube = dlprim.grad(lambda x: np.sum(x**3))
    np.testing.assert_allclose(dlprim.grad(lambda x: np.sum(cube(x)))(x), 6 * x, rtol=1e-4)
    slope = dlprim.grad(lambda x: np.sum(np.tanh(x)))
    penalty = dlprim.value_and_grad(lambda x: np.sum(slope(x) ** 2))
    value, found = penalty(x)
    t = np.tanh(x)
    np.testing.assert_allclose(value, np.sum((1 - t * t) ** 2), rtol=1e-4)
    np.testing.assert_allclose(found, -4 * t * (1 - t * t) ** 2, rtol=1e-3, atol=1e-5)


def test_a_gradient_within_a_trace_is_by_the_argument_alone() -> None:
    def function(x: Any) -> Any:
        double = x * 2
        inner = dlprim.grad(lambda y: np.sum(y * double))(x)  # double is no part of y
        value, slope = dlprim.value_and_grad(lambda y: np.sum(y * y))(double)
        return inner, value, slope

    x = floats(4)
    known = dlprim.compile(
        lambda x: dlprim.grad(lambda w, x: np.sum(w * w * x), (0, 1))(floats(4), x)
    )
    assert [it.shape for it in known(x)] == [(4,), (4,)]
    inner, value, slope = dlprim.compile(function)(x)
    np.testing.assert_allclose(inner, x * 2, rtol=1e-6)
    np.testing.assert_allclose(value, np.sum(4 * x * x), rtol=1e-5)
    np.testing.assert_allclose(slope, 4 * x, rtol=1e-6)


def test_pullbacks() -> None:
    def function(a: Any, b: Any, places: Any) -> Any:
        y = np.tanh(a @ b)
        return {"y": y, "rows": [y[places], np.argmax(y), 3]}

    a, b, places = floats(3, 4), floats(4, 2), np.array([0, 2])
    for _ in range(2):
        value, pullback = dlprim.vjp(function, a, b, places)
        t = np.tanh(a @ b)
        np.testing.assert_allclose(value["y"], t, rtol=1e-5)
        assert value["rows"][2] == 3
        kept = a.copy()
        a[:] = 0  # which the pullback does not see
        for scale in (1, 2):
            dy, rows = floats(3, 2) * F(scale), floats(2, 2)
            found = pullback({"y": dy, "rows": [rows, 0, 0]})
            whole = dy.copy()
            np.add.at(whole, places, rows)
            inner = whole * (1 - t**2)
            assert len(found) == 3
            assert found[2] is None
            np.testing.assert_allclose(found[0], inner @ b.T, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(found[1], kept.T @ inner, rtol=1e-4, atol=1e-5)
        a[:] = kept


def test_pullbacks_of_what_is_simple() -> None:
    x = floats(3)
    y, pullback = dlprim.vjp(lambda x: x, x)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(pullback(x * 2)[0], x * 2)
    y, pullback = dlprim.vjp(lambda x: (x, x), x)
    np.testing.assert_array_equal(pullback((x, x))[0], x + x)
    y, pullback = dlprim.vjp(np.sum, x)
    np.testing.assert_array_equal(pullback(2.0)[0], np.full(3, 2))
    y, pullback = dlprim.vjp(np.sum, x.astype(np.float64), dtype=F)
    assert y.dtype == pullback(np.float32(1))[0].dtype == F


def test_a_network_learns() -> None:
    """Two interleaved rings, by gradients and nothing else of dlprim."""

    def scores(p: Any, x: Any) -> Any:
        for w, b in p[:-1]:
            x = np.tanh(x @ w + b)
        w, b = p[-1]
        return x @ w + b

    def objective(p: Any, x: Any, labels: Any) -> Any:
        logits = scores(p, x)
        high = logits.max(-1, keepdims=True)
        logs = logits - high - np.log(np.sum(np.exp(logits - high), -1, keepdims=True))
        return -np.mean(logs[np.arange(len(x)), labels])

    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 256)
    radius = 1 + labels + rng.normal(0, 0.1, 256)
    angle = rng.uniform(0, 2 * np.pi, 256)
    x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).astype(F)
    sizes = (2, 16, 16, 2)
    p = [(rng.normal(0, n**-0.5, (n, m)).astype(F), np.zeros(m, F)) for n, m in pairwise(sizes)]
    step = dlprim.value_and_grad(objective)
    first, _ = step(p, x, labels)
    for _ in range(300):
        value, gradient = step(p, x, labels)
        p = [(w - dw, b - db) for (w, b), (dw, db) in zip(p, gradient, strict=True)]
    assert value < 0.1 < first
    assert np.mean(np.argmax(scores(p, x), -1) == labels) > 0.97


@pytest.mark.parametrize("shape", [(0,), (0, 3)])
def test_gradients_of_nothing(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, F)
    value, found = dlprim.value_and_grad(lambda x: np.sum(np.exp(x)))(x)
    assert value == 0
    assert found.shape == shape
