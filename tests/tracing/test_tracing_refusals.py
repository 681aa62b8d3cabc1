"""What cannot be traced is refused in one sentence that names the line of the function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim.tracing import TraceError

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def branch(x: Any) -> Any:
    if x[0, 0] > 0:
        return x
    return -x


def loop(x: Any) -> Any:
    while np.any(x > 1):
        x = x / 2
    return x


def written(x: Any) -> Any:
    x[0] = 1
    return x


def added(x: Any) -> Any:
    x += 1
    return x


def filled(x: Any) -> Any:
    y = np.zeros((3, 4))
    y[0] = x[0]
    return y


def seen_twice(x: Any) -> Any:
    y = x * 2
    row = y[0]
    y += 1
    return row


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "if": (branch, TraceError, "an if, while, and, or or not asks for the truth"),
    "while": (loop, TraceError, "asks for the truth"),
    "and": (lambda x: (x[0] > 0).all() and x, TraceError, "asks for the truth"),
    "setitem": (written, TraceError, r"elements of argument x are written"),
    "in place": (added, TraceError, r"np.add writes into argument x"),
    "out": (lambda x: np.add(x, 1, out=np.empty((3, 4))), TraceError, "into one of NumPy's"),
    "setitem of zeros": (filled, TraceError, "a traced array is made one of NumPy's"),
    "a view": (seen_twice, TraceError, "writes into memory that another array has too"),
    "sort": (lambda x: np.sort(x), TraceError, "np.sort cannot be traced"),
    "method": (lambda x: x.sort(), TraceError, "sort of a traced array is not there"),
    "inv": (lambda x: np.linalg.inv(x), TraceError, "np.linalg.inv cannot be traced"),
    "ufunc": (lambda x: np.spacing(x), TraceError, "np.spacing cannot be traced"),
    "at": (lambda x: np.add.at(x, 0, 1), TraceError, "np.add.at cannot be traced"),
    "ufunc where": (lambda x: np.add(x, 1, where=x > 0), TraceError, "np.add is called with where"),
    "array": (lambda x: np.array([x, x]), TraceError, "np.stack"),
    "asarray": (lambda x: np.asarray(x), TraceError, "a traced array is made one of NumPy's"),
    "float": (lambda x: float(x[0, 0]), TraceError, r"float\(\) or math asks for an element"),
    "math": (lambda x: math.sqrt(x.sum()), TraceError, "functions of NumPy"),
    "int": (lambda x: x[int(x.sum())], TraceError, r"int\(\) or an index asks for an element"),
    "range": (lambda x: [x for _ in range(np.argmax(x))], TraceError, "an index asks for"),
    "item": (lambda x: x.item(), TraceError, r"item\(\) asks for an element"),
    "tolist": (lambda x: x.tolist(), TraceError, r"tolist\(\) asks for elements"),
    "in": (lambda x: 1 in x, TraceError, "in asks for elements"),
    "mask": (lambda x: x[x > 0], TraceError, "a traced mask picks elements"),
    "slice": (lambda x: x[: np.argmax(x)], TraceError, "an index|slice"),
    "where of one": (lambda x: np.where(x > 0), TraceError, "np.where of a condition alone"),
    "subtract of bool": (lambda x: (x > 0) - (x > 1), TraceError, "np.subtract is applied to bool"),
    "reduce where": (lambda x: np.sum(x, where=x > 0), TraceError, "np.sum is called with where"),
    "complex": (lambda x: x + np.array(1j), TraceError, "an array of complex128 is used"),
    "text": (lambda x: {"a": x, "b": object()}, TraceError, "a result is of type object"),
    "dlprim": (lambda x: dlprim.quantize(x, 0.1), TraceError, "dlprim.quantize cannot be traced"),
    "training": (
        lambda x: dlprim.gru(x[None], np.ones((6, 4)), np.ones((6, 2)), training=True),
        TraceError,
        "dlprim.gru is called with training=True, expected False: gradients come by dlprim.grad",
    ),
    "bool of a cell": (
        lambda x: dlprim.gru(x[None] > 0, np.ones((6, 4)), np.ones((6, 2))),
        TypeError,
        "x has dtype bool, expected float32",
    ),
    "backward": (lambda x: dlprim.relu_backward(x, x), TraceError, "dlprim.relu_backward cannot"),
    "out of dlprim": (lambda x: dlprim.relu(x, out=X), TraceError, "called with out"),
    "shapes": (lambda x: x + np.ones((2, 4)), ValueError, "cannot be broadcast"),
    "matmul": (lambda x: x @ x, ValueError, r"matrices of \[3, 4\] and \[3, 4\]"),
    "reshape": (lambda x: x.reshape(5, -1), ValueError, "cannot reshape"),
    "axis": (lambda x: x.sum(axis=2), ValueError, "axis 2 is out of bounds"),
    "index": (lambda x: x[3], IndexError, "index 3 is out of bounds for axis 0 with size 3"),
    "places": (lambda x: x[[0, 9]], IndexError, "are out of bounds for axis 0 with size 3"),
    "many indices": (lambda x: x[0, 0, 0], IndexError, "too many indices"),
    "float index": (lambda x: x[1.5], IndexError, "an index is of type float"),
    "concatenate": (lambda x: np.concatenate([x, x[0]]), ValueError, "cannot be joined"),
    "stack": (lambda x: np.stack([x, x[0]]), ValueError, "must have the same shape"),
    "split": (lambda x: np.split(x, 2), ValueError, "equal division"),
    "einsum": (lambda x: np.einsum("ij,jk->ik", x, x), ValueError, "j of einsum is 4 and 3"),
    "powers": (lambda x: np.argmax(x, 1) ** -1, ValueError, "integers to negative powers"),
    "linear": (lambda x: dlprim.linear(x, x[:, :2]), ValueError, "x has shape"),
    "softmax": (lambda x: dlprim.softmax(x, 5), ValueError, "axis is 5"),
    "layer_norm": (lambda x: dlprim.layer_norm(x, x[0, :2]), ValueError, "weight has shape"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_sentence_names_the_line(name: str) -> None:
    function, error, words = REFUSED[name]
    with pytest.raises(error, match=words) as found:
        dlprim.compile(function)(X)
    text = str(found.value)
    assert f"{__file__}, line " in text
    line = int(text.partition(", line ")[2].partition(":")[0])
    first = function.__code__.co_firstlineno
    assert first <= line <= first + 6
    assert text.count(", line ") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((X.astype(np.float64),), "x has dtype float64, expected float32 or bfloat16"),
        ((X.astype(np.float16),), "x has dtype float16"),
        ((X.astype(np.complex64),), "x has dtype complex64, expected floats, integers or bool"),
        ((np.array(["a"]),), "x has dtype <U1"),
        (({"w": [X, object()]},), r"x\['w'\]\[1\] is of type object, expected arrays"),
        ((np.ma.masked_array(X, X > 0),), "x is a masked array|masked"),
    ],
)
def test_arguments_are_refused_by_name(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        dlprim.compile(lambda x: x)(*arguments)


def test_an_error_of_the_function_stays_what_it_is() -> None:
    def function(x: Any) -> Any:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match=r"^mine$"):
        dlprim.compile(function)(X)


def test_arrays_of_another_trace() -> None:
    kept: list[Any] = []

    def keeps(x: Any) -> Any:
        kept.append(x)
        return x

    dlprim.compile(keeps)(X)
    with pytest.raises(TraceError, match="an array of another trace is used"):
        dlprim.compile(lambda x: x + kept[0])(X)
    assert repr(kept[0]) == "<traced float32[3, 4]>"


def test_places_outside_are_found_in_a_run() -> None:
    take = dlprim.compile(lambda x, places: x[places])
    assert take(X, np.array([2, -1])).shape == (2, 4)
    with pytest.raises(IndexError, match="3"):
        take(X, np.array([3, 0]))
    rows = dlprim.compile(lambda x, i, j: x[i, j])
    with pytest.raises(IndexError, match="4"):
        rows(X, np.array([0, 1]), np.array([1, 4]))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: x * 2, "returns float32 of shape .3, 4., expected a scalar"),
        (lambda x: np.argmax(x), "returns int64 of shape .., expected a scalar of floats"),
        (lambda x: 1.0, "returns 1.0, expected a scalar that is computed"),
        (lambda x: (x.sum(), x), "returns several arrays, expected one scalar"),
    ],
)
def test_what_has_no_gradient(function: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(TraceError, match=words) as found:
        dlprim.grad(function)(X)
    assert f"{__file__}, line {function.__code__.co_firstlineno}" in str(found.value)


def test_arguments_of_gradients() -> None:
    mean = dlprim.value_and_grad(lambda p, places: np.mean(p["w"][places]), wrt=(0, 1))
    with pytest.raises(TypeError, match="places has dtype int64, of which there is no gradient"):
        mean({"w": X}, np.array([0, 1]))
    with pytest.raises(ValueError, match="wrt has 3, but the call has no such argument"):
        dlprim.grad(lambda x: x.sum(), wrt=3)(X)
    with pytest.raises(TypeError, match="wrt is of type str"):
        dlprim.grad(lambda x: x.sum(), wrt="x")
    with pytest.raises(TypeError, match="f is of type int, expected a function"):
        dlprim.compile(3)
    with pytest.raises(TypeError, match="dtype is float64, expected float32 or bfloat16"):
        dlprim.compile(lambda x: x, dtype=np.float64)
    with pytest.raises(ValueError, match="kept_shapes is 0"):
        dlprim.compile(lambda x: x, kept_shapes=0)


def test_pullbacks_check_what_they_are_given() -> None:
    _, pullback = dlprim.vjp(lambda x: {"y": x * 2}, X)
    with pytest.raises(TypeError, match="nested otherwise"):
        pullback(X)
    with pytest.raises(ValueError, match=r"gradient\['y'\] is float32 of shape \(4,\)"):
        pullback({"y": X[0]})
    with pytest.raises(TypeError, match="is float64 of shape"):
        pullback({"y": X.astype(np.float64)})
