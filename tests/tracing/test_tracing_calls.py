"""Calls of compiled functions: types, nesting, what is kept, threads."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections import namedtuple
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dlprim
from dlprim.tracing import CompiledFunction
from drawing import RNG

F = np.float32
Point = namedtuple("Point", ["x", "y"])


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(F)


# ---------------------------------------------------------------- types


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_numbers_take_the_type_of_arrays(dtype: Any) -> None:
    x = floats(3, 4).astype(dtype)
    made = dlprim.compile(
        lambda x: (x * 2, x + 0.5, 1 / x, x**2, np.maximum(x, 0), x.mean(), x / np.sqrt(4.0), -x)
    )(x)
    assert {it.dtype for it in made} == {np.dtype(dtype)}


def test_numbers_among_arguments_take_the_type_of_arrays() -> None:
    scaled = dlprim.compile(lambda x, rate: (x * rate, rate * 2))
    x = floats(3).astype(ml_dtypes.bfloat16)
    made, rate = scaled(x, 0.5)
    assert made.dtype == ml_dtypes.bfloat16
    assert rate.dtype == F
    assert scaled(x, 0.25)[1] == 0.5
    assert scaled(x, np.float64(2))[1] == 4
    assert len(scaled._networks._kinds) == 1


def test_arrays_that_the_function_makes_are_float32() -> None:
    made = dlprim.compile(
        lambda x: (
            x.astype(ml_dtypes.bfloat16) + np.zeros(3),
            x + np.arange(3),
            np.arange(3) + np.argmax(x),
            np.linspace(0, 1, 3),
            np.arange(3),
            x.sum(dtype=np.float64),
            np.ones(3, bool),
        )
    )(floats(3))
    names = ["float32", "float32", "int64", "float32", "int64", "float32", "bool"]
    assert [it.dtype.name for it in made] == names


def test_types_of_different_arrays() -> None:
    half, single, whole = floats(3).astype(ml_dtypes.bfloat16), floats(3), RNG.integers(0, 9, 3)
    small = whole.astype(np.int32)
    made = dlprim.compile(
        lambda h, s, i, j: (h + s, h + i, s + i, i + j, j + j, i / j, i * True, h * np.float32(2))
    )(half, single, whole + 1, small + 1)
    names = ["float32", "bfloat16", "float32", "int64", "int32", "float32", "int64", "float32"]
    assert [it.dtype.name for it in made] == names


@pytest.mark.parametrize("dtype", [np.float32, "float32", "bfloat16"])
def test_float64_is_converted_where_a_type_is_said(dtype: Any) -> None:
    x, w = RNG.standard_normal((4, 32)), RNG.standard_normal((32, 8))
    for _ in range(2):  # the second one is a known call
        y = dlprim.compile(lambda x, w: x @ w, dtype=dtype)(x, w)
        assert y.dtype == F
        tolerance = 0.05 if dtype == "bfloat16" else 1e-5
        np.testing.assert_allclose(y, x @ w, rtol=0, atol=tolerance * np.abs(x @ w).max())
    value, gradient = dlprim.value_and_grad(lambda w, x: np.mean((x @ w) ** 2), dtype=dtype)(w, x)
    assert value.dtype == gradient.dtype == F
    expected = 2 * x.T @ (x @ w) / (4 * 8)
    np.testing.assert_allclose(
        gradient, expected, rtol=0, atol=3 * tolerance * np.abs(expected).max()
    )


def test_products_in_bfloat16_are_asked_for() -> None:
    plain, half = (dlprim.compile(lambda x, w: x @ w, dtype=it) for it in (None, "bfloat16"))
    x, w = floats(64, 64), floats(64, 64)
    assert "bfloat16" not in plain.explain(x, w)
    assert "bfloat16" in half.explain(x, w)


def test_scalars_are_numpys() -> None:
    total = dlprim.compile(lambda x: {"sum": x.sum(), "count": (x > 0).sum()})(floats(3))
    assert type(total["sum"]) is np.float32
    assert type(total["count"]) is np.int64
    assert f"{total['sum']:.3f}"


# ---------------------------------------------------------------- nesting


def test_arguments_and_results_are_nested() -> None:
    def function(p: Any, pair: Any, *more: Any, named: Any = None, how: str = "sum") -> Any:
        y = p["layers"][0]["w"] * pair.x + pair.y + sum(more)
        return {"y": (y, [y * 2, None]), "p": Point(y if named is None else y + named, how)}

    p = {"layers": [{"w": floats(3)}, ()], "b": None}
    pair, more = Point(floats(3), floats(3)), floats(3)
    compiled = dlprim.compile(function)
    for _ in range(3):
        for named in ({}, {"named": floats(3)}, {"how": "mean"}):
            found = compiled(p, pair, more, more, **named)
            expected = function(p, pair, more, more, **named)
            assert type(found["p"]) is Point
            assert found["p"].y == expected["p"].y
            assert found["y"][1][1] is None
            for one, other in (
                (found["y"][0], expected["y"][0]),
                (found["y"][1][0], expected["y"][1][0]),
                (found["p"].x, expected["p"].x),
            ):
                np.testing.assert_allclose(one, other, rtol=1e-6)


def test_calls_that_only_look_alike() -> None:
    """What is taken quickly is what was traced, and nothing else."""
    double = dlprim.compile(lambda tree, flag=False: (tree["a"] * 2, flag))
    x = floats(3)
    assert double({"a": x})[1] is False
    assert double({"a": x}, True)[1] is True
    assert double({"a": x}, 1)[1] == 1
    assert type(double({"a": x}, 1)[1]) is int
    np.testing.assert_array_equal(double({"a": x, "b": x})[0], x * 2)
    np.testing.assert_array_equal(double({"a": x.astype(np.float16).astype(F)})[0].dtype, F)
    with pytest.raises(TypeError, match=r"tree\['a'\] has dtype float64"):
        double({"a": x.astype(np.float64)})
    with pytest.raises(TypeError):
        double({"a": object()})
    with pytest.raises(KeyError):
        double({"b": x})
    assert double({"a": 2.0})[0] == 4
    assert double({"a": 2})[0] == 4


def test_arrays_of_any_layout() -> None:
    double = dlprim.compile(lambda x: x * 2 + 1)
    x = floats(6, 8)
    for view in (x, x.T, x[::2], x[:, ::-1], np.asfortranarray(x), x[0], x[:0]):
        for _ in range(2):
            np.testing.assert_allclose(double(view), view * 2 + 1, rtol=1e-6)


def test_results_are_new_arrays() -> None:
    same = dlprim.compile(lambda x: (x, x.T, x[0], x))
    x = floats(3, 3)
    found = same(x)
    assert not any(np.shares_memory(it, x) for it in found)
    found[0][:] = 0
    np.testing.assert_array_equal(same(x)[0], x)


def test_functions_within_functions() -> None:
    square = dlprim.compile(lambda x: x * x)
    outer = dlprim.compile(lambda x: square(x) + square(x + 1))
    x = floats(4)
    np.testing.assert_allclose(outer(x), x * x + (x + 1) ** 2, rtol=1e-5)
    assert "steps in Python: 0 of" in outer.explain(x)
    assert isinstance(dlprim.compile(square), CompiledFunction)


def test_what_a_function_reads_from_outside_is_as_it_was() -> None:
    w = floats(3)
    before = w.copy()
    scaled = dlprim.compile(lambda x: x * w)
    x = floats(3)
    scaled(x)
    w[:] = 0
    np.testing.assert_allclose(scaled(x), x * before, rtol=1e-6)


def test_decorated_functions_keep_their_names() -> None:
    @dlprim.compile(dtype="float32")
    def named(x: Any) -> Any:
        """What it is."""
        return x

    assert (named.__name__, named.__doc__) == ("named", "What it is.")
    assert repr(named) == "<dlprim.CompiledFunction of named>"
    assert named.profile(floats(3)).seconds >= 0
    with pytest.raises(TypeError, match="argument"):
        named()


@dlprim.compile
def tripled(x: Any) -> Any:
    return x * 3


def total(x: Any) -> Any:
    return np.sum(x * x)


def test_functions_travel() -> None:
    assert pickle.loads(pickle.dumps(tripled)) is tripled
    assert copy.deepcopy(tripled) is tripled
    x = floats(3)
    for made in (dlprim.compile(total), dlprim.value_and_grad(total), dlprim.grad(total)):
        expected = made(x)
        for other in (pickle.loads(pickle.dumps(made)), copy.copy(made)):
            np.testing.assert_equal(other(x), expected)


# ---------------------------------------------------------------- what is kept


def test_few_networks_are_kept() -> None:
    double = dlprim.compile(lambda x: np.tanh(x) * 2 + x.shape[0], kept_shapes=3)
    for count in (*range(1, 30), 5, 6, 5):
        x = floats(count, 2)
        np.testing.assert_allclose(double(x), np.tanh(x) * 2 + count, rtol=1e-5, atol=1e-6)
        assert len(double._networks._kept) <= 3
    for axes in range(1, 8):
        double(np.ones((1,) * axes, F))
        double(np.ones((2,) * axes, F))
        assert len(double._known) <= 3
        assert len(double._exact) <= 3
        assert len(double._networks._kinds) <= 3


def test_a_network_serves_many_shapes() -> None:
    """The function is run for a few of them, and what was recorded for the others."""
    runs = []

    def function(x: Any, w: Any) -> Any:
        runs.append(x.shape)
        h = np.maximum(x @ w, 0)
        return h.mean(), h.reshape(-1), np.concatenate([h, h], 1), x[:, 1] * 2

    compiled, w = dlprim.compile(function), floats(5, 3)
    for count in range(2, 40):
        x = floats(count, 5)
        expected = function(x, w)
        runs.pop()
        for one, other in zip(compiled(x, w), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert len(runs) < 20


def test_nothing_is_left_of_a_function() -> None:
    w = floats(1000)

    def function(x: Any) -> Any:
        return x * w

    compiled = dlprim.compile(function)
    compiled(w)
    gone = weakref.ref(compiled), weakref.ref(function)
    del compiled, function
    gc.collect()
    assert [it() for it in gone] == [None, None]


def test_threads_share_a_function() -> None:
    step = dlprim.value_and_grad(lambda w, x: np.mean(np.tanh(x @ w) ** 2))
    w, failures = floats(4, 3), []

    def run(number: int) -> None:
        rng = np.random.default_rng(number)
        try:
            for _ in range(30):
                x = rng.standard_normal((int(rng.integers(1, 9)), 4)).astype(F)
                value, gradient = step(w, x)
                h = np.tanh(x @ w)
                np.testing.assert_allclose(value, np.mean(h**2), rtol=1e-4)
                expected = x.T @ (2 * h * (1 - h**2)) / h.size
                np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-5)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for it in threads:
        it.start()
    for it in threads:
        it.join()
    assert failures == []


def test_the_same_bits_for_any_number_of_threads() -> None:
    step = dlprim.grad(lambda w, x: np.mean(np.tanh(x @ w) ** 2))
    w, x = floats(64, 48), floats(96, 64)
    found = []
    for count in (1, 2, 3):
        with dlprim.threads(count):
            found.append(step(w, x))
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()


def test_a_run_may_not_take_too_much() -> None:
    outer = dlprim.compile(lambda x: np.exp(np.add.outer(x, x)) @ x, max_bytes=1 << 16)
    assert outer(floats(16)).shape == (16,)
    with pytest.raises(ValueError, match="max_bytes"):
        outer(floats(1000))
