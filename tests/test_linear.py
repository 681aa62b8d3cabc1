"""linear and linear_backward: values, shapes, refusals, and the same bits on any thread count."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dlprim
from cases import LINEAR, Linear
from drawing import RNG
from guarded import guarded
from reference import assert_close, linear, linear_backward

pytestmark = pytest.mark.every_level

F4 = np.float32
EXTENTS = st.one_of(st.sampled_from((0, 1, 15, 16, 17, 63, 64, 65)), st.integers(0, 140))
SHAPES = st.builds(Linear, N=EXTENTS, C=EXTENTS, K=EXTENTS)


def shape_of(case: Linear) -> str:
    return "x".join(map(str, case))


def tensors(shape: Linear, seed: int = 0) -> dict[str, np.ndarray]:
    """Operands of both passes, each next to a page that nobody may touch."""
    random = np.random.default_rng(seed)
    extents = {
        "x": (shape.N, shape.C),
        "w": (shape.K, shape.C),
        "bias": (shape.K,),
        "dy": (shape.N, shape.K),
    }
    values = {name: guarded(math.prod(each)).reshape(each) for name, each in extents.items()}
    for value in values.values():
        value[...] = random.standard_normal(value.shape)
    return values


def in_order(w: np.ndarray, order: str) -> np.ndarray:
    """Its values in C's or Fortran's order, next to a page that nobody may touch."""
    if order == "C":
        return w
    stored = guarded(w.size).reshape(w.shape[::-1])
    stored[...] = w.T
    return stored.T


def check(
    shape: Linear, with_bias: bool, activation: str | None, seed: int = 0, order: str = "C"
) -> None:
    """Forward and backward against float64."""
    t = tensors(shape, seed)
    t["w"] = in_order(t["w"], order)
    bias = t["bias"] if with_bias else None
    y = guarded(shape.N * shape.K).reshape(shape.N, shape.K)
    y.fill(math.nan)
    assert dlprim.linear(t["x"], t["w"], bias, activation=activation, out=y) is y
    assert_close(y, linear(t["x"], t["w"], bias, activation))
    saved = y if activation else None
    gradients = dlprim.linear_backward(t["dy"], t["x"], t["w"], y=saved, activation=activation)
    expected = linear_backward(t["dy"], t["x"], t["w"], y if activation else None)
    dx, dw, db = gradients
    assert_close(dx, expected[0])
    assert_close(dw, expected[1])
    assert_close(db[None], expected[2])


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("shape", LINEAR, ids=shape_of)
def test_shape(shape: Linear, with_bias: bool, activation: str | None) -> None:
    check(shape, with_bias, activation)


@given(
    shape=SHAPES,
    with_bias=st.booleans(),
    activation=st.sampled_from((None, "relu")),
    seed=st.integers(0, 2**32 - 1),
)
def test_random_shape(shape: Linear, with_bias: bool, activation: str | None, seed: int) -> None:
    check(shape, with_bias, activation, seed)


@pytest.mark.parametrize("leading", [(), (1,), (2, 3), (2, 0, 3), (2, 1, 3, 2)], ids=str)
def test_leading_axes(leading: tuple[int, ...]) -> None:
    shape = Linear(math.prod(leading), 7, 20)
    t = tensors(shape)
    x, dy = t["x"].reshape(*leading, 7), t["dy"].reshape(*leading, 20)
    y = dlprim.linear(x, t["w"], t["bias"])
    assert y.shape == (*leading, 20)
    assert_close(y.reshape(-1, 20), linear(t["x"], t["w"], t["bias"]))
    dx, dw, db = dlprim.linear_backward(dy, x, t["w"])
    assert (dx.shape, dw.shape, db.shape) == (x.shape, (20, 7), (20,))
    expected = linear_backward(t["dy"], t["x"], t["w"])
    assert_close(dx.reshape(-1, 7), expected[0])
    assert_close(dw, expected[1])


def test_more_samples_than_a_kernel_takes_as_leading_dimension() -> None:
    n = 2**24 + 1
    ones = np.ones((n, 1), F4)
    dx, dw, db = dlprim.linear_backward(ones, ones, np.full((1, 1), 2, F4))
    assert (dx == 2).all()
    assert (dw[0, 0], db[0]) == (pytest.approx(n, rel=1e-6), pytest.approx(n, rel=1e-6))


def test_operands_that_are_not_contiguous_are_copied() -> None:
    t = tensors(Linear(20, 30, 40))
    x, w, bias = t["x"][::-2, ::3], np.asfortranarray(t["w"][:, ::3]), t["bias"][::-1]
    assert_close(dlprim.linear(x, w, bias), linear(x, w, bias))
    dx, _, db = dlprim.linear_backward(t["dy"][::2], x, w)
    expected = linear_backward(t["dy"][::2], x, w)
    assert_close(dx, expected[0])
    assert_close(db[None], expected[2])


def test_nan_and_infinity_pass_relu_as_ieee_says() -> None:
    x = np.array([[math.nan, 1], [math.inf, 1], [-math.inf, 1], [1, 1]], np.float32)
    w = np.array([[1, 1], [-1, 1]] * 9, np.float32)
    expected = np.array([[math.nan, math.nan], [math.inf, 0], [0, math.inf], [2, 0]], np.float32)
    y = dlprim.linear(x, w, activation="relu")
    np.testing.assert_array_equal(y, np.tile(expected, 9))


def test_gradient_passes_where_relu_did_and_where_its_result_is_nan() -> None:
    y = np.array([[math.nan, 0, -0.0, 1e-45, math.inf]], np.float32)
    dy = np.full((1, 5), 2, np.float32)
    x, w = np.ones((1, 3), np.float32), np.ones((5, 3), np.float32)
    dx, _, db = dlprim.linear_backward(dy, x, w, y=y, activation="relu")
    np.testing.assert_array_equal(db, [2, 0, 0, 2, 2])
    np.testing.assert_array_equal(dx, np.full((1, 3), 6))
    dy[0, 1:3] = math.nan  # stopped by relu, must not reach any result
    dx, dw, db = dlprim.linear_backward(dy, x, w, y=y, activation="relu")
    np.testing.assert_array_equal(db, [2, 0, 0, 2, 2])
    assert np.isfinite(dx).all()
    assert np.isfinite(dw).all()


@pytest.mark.parametrize("activation", [None, "relu"])
def test_agrees_with_torch(activation: str | None) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    t = tensors(Linear(33, 70, 19))
    theirs = {name: torch.from_numpy(each).requires_grad_() for name, each in t.items()}
    y_torch = torch.nn.functional.linear(theirs["x"], theirs["w"], theirs["bias"])
    if activation == "relu":
        y_torch = torch.relu(y_torch)
    y_torch.backward(theirs["dy"].detach())
    y = dlprim.linear(t["x"], t["w"], t["bias"], activation=activation)
    close = {"rtol": 1e-4, "atol": 1e-4}  # two float32 sums in different orders
    np.testing.assert_allclose(y, y_torch.detach().numpy(), **close)
    saved = y if activation else None
    gradients = dlprim.linear_backward(t["dy"], t["x"], t["w"], y=saved, activation=activation)
    for gradient, name in zip(gradients, ("x", "w", "bias"), strict=True):
        np.testing.assert_allclose(gradient, theirs[name].grad.numpy(), **close)


def test_torch_tensors_are_viewed() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    t = tensors(Linear(5, 6, 7))
    theirs = {name: torch.from_numpy(each) for name, each in t.items()}
    y = dlprim.linear(theirs["x"], theirs["w"], theirs["bias"])
    np.testing.assert_array_equal(y, dlprim.linear(t["x"], t["w"], t["bias"]))
    with pytest.raises(TypeError, match=r"^w of type Tensor cannot be viewed.*detach"):
        dlprim.linear(theirs["x"], theirs["w"].requires_grad_())


# ---------------------------------------------------------------- the same bits


@pytest.mark.parametrize("shape", [Linear(300, 70, 200), Linear(3, 2100, 130)], ids=shape_of)
def test_same_bits_for_any_number_of_threads(shape: Linear) -> None:
    t = tensors(shape)

    def results() -> list[bytes]:
        y = dlprim.linear(t["x"], t["w"], t["bias"], activation="relu")
        gradients = dlprim.linear_backward(t["dy"], t["x"], t["w"], y=y, activation="relu")
        return [each.tobytes() for each in (y, *gradients)]

    with dlprim.threads(1):
        expected = results()
    for threads in range(1, 9):
        with dlprim.threads(threads):
            assert [results(), results()] == [expected, expected]


# ---------------------------------------------------------------- out


@pytest.mark.parametrize("inputs", [10, 64, 100, 512])
@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_a_sample_has_the_same_bits_wherever_it_stands(inputs: int, outputs: int) -> None:
    """Of few outputs, whose sums run along the rows of several samples at a time."""
    w = RNG.standard_normal((outputs, inputs), np.float32)
    for samples in (5, 7, 13, 20):
        x = np.repeat(RNG.standard_normal((1, inputs), np.float32), samples, axis=0)
        y = dlprim.linear(x, w)
        np.testing.assert_array_equal(y, np.repeat(y[:1], samples, axis=0))


def test_result_goes_to_out() -> None:
    t = tensors(Linear(9, 20, 33))
    out = np.full((3, 3, 33), np.nan, np.float32)
    y = dlprim.linear(t["x"].reshape(3, 3, 20), t["w"], t["bias"], activation="relu", out=out)
    assert y is out
    assert_close(out.reshape(9, 33), linear(t["x"], t["w"], t["bias"], "relu"))


def read_only(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array


WRONG_OUT = [
    (lambda t: np.zeros((4, 4)), TypeError, r"^out has dtype float64, expected float32"),
    (lambda t: np.zeros((4, 4), ">f4"), TypeError, r"^out has dtype >f4"),
    (lambda t: [[0.0] * 4] * 4, TypeError, r"^out is of type list"),
    (lambda t: np.zeros((4, 5), F4), ValueError, r"^out has shape \(4, 5\), expected \(4, 4\)"),
    (lambda t: np.zeros(16, F4), ValueError, r"^out has shape \(16,\)"),
    (lambda t: np.zeros((4, 4), F4).T, ValueError, r"^out has strides"),
    (lambda t: np.zeros((4, 8), F4)[:, ::2], ValueError, r"^out has strides"),
    (lambda t: np.zeros(66, "u1")[2:].view(F4).reshape(4, 4), ValueError, r"^out has strides"),
    (lambda t: read_only(np.zeros((4, 4), F4)), ValueError, r"^out is read-only"),
    (lambda t: t["x"], ValueError, r"^out shares memory with x"),
    (lambda t: t["w"][::-1][::-1], ValueError, r"^out shares memory with w"),
    (lambda t: t["bias"].base, ValueError, r"^out shares memory with bias"),
]


@pytest.mark.parametrize(("wrong", "error", "match"), WRONG_OUT)
def test_out_is_refused_unless_it_fits(
    wrong: Callable[[dict[str, np.ndarray]], Any], error: type[Exception], match: str
) -> None:
    t = tensors(Linear(4, 4, 4))
    t["bias"] = np.zeros((4, 4), F4)[3]
    out = wrong(t)
    before = np.array(out, F4)
    with pytest.raises(error, match=match):
        dlprim.linear(t["x"], t["w"], t["bias"], out=out)
    np.testing.assert_array_equal(np.array(out, F4), before)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"x": np.zeros((3, 4))}, TypeError, r"^x has dtype float64, expected float32"),
        ({"x": np.zeros((3, 4), int)}, TypeError, r"^x has dtype int64"),
        ({"x": np.zeros((3, 4), ">f4")}, TypeError, r"^x has dtype >f4"),
        ({"x": [[0.0] * 4]}, TypeError, r"^x is of type list"),
        ({"x": None}, TypeError, r"^x is of type NoneType"),
        ({"x": np.zeros((3, 5), F4)}, ValueError, r"^x has shape \(3, 5\), expected \(\.\.\., 4\)"),
        ({"x": np.zeros((), F4)}, ValueError, r"^x has shape \(\)"),
        ({"w": np.zeros((5, 4))}, TypeError, r"^w has dtype float64"),
        ({"w": np.zeros(4, F4)}, ValueError, r"^w has shape \(4,\), expected two dimensions"),
        ({"w": np.zeros((1, 5, 4), F4)}, ValueError, r"^w has shape"),
        ({"bias": np.zeros(5)}, TypeError, r"^bias has dtype float64"),
        ({"bias": np.zeros(4, F4)}, ValueError, r"^bias has shape \(4,\), expected \(5,\)"),
        ({"bias": np.zeros((1, 5), F4)}, ValueError, r"^bias has shape"),
        ({"bias": 0.0}, TypeError, r"^bias is of type float"),
        ({"activation": "softmax"}, ValueError, r"^activation is 'softmax', expected one of"),
        ({"activation": ""}, ValueError, r"^activation is ''"),
    ],
)
def test_linear_refuses(change: dict[str, Any], error: type[Exception], match: str) -> None:
    out = np.full((3, 5), 7, F4)
    fine: dict[str, Any] = {"x": np.zeros((3, 4), F4), "w": np.zeros((5, 4), F4), "out": out}
    with pytest.raises(error, match=match):
        dlprim.linear(**(fine | change))
    np.testing.assert_array_equal(out, 7)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"dy": np.zeros((3, 5))}, TypeError, r"^dy has dtype float64"),
        ({"dy": np.zeros((3, 4), F4)}, ValueError, r"^dy has shape \(3, 4\), expected \(3, 5\)"),
        ({"dy": np.zeros(15, F4)}, ValueError, r"^dy has shape"),
        ({"x": np.zeros((2, 4), F4)}, ValueError, r"^dy has shape \(3, 5\), expected \(2, 5\)"),
        ({"x": np.zeros((3, 4))}, TypeError, r"^x has dtype"),
        ({"w": np.zeros((5, 3), F4)}, ValueError, r"^x has shape"),
        ({"activation": "relu"}, ValueError, r"^y is missing: .* needs the result of linear$"),
        ({"activation": "gelu"}, ValueError, r"^z is missing: .* what the activation was applied"),
        ({"activation": "gelu", "y": np.zeros((3, 5), F4)}, ValueError, r"^y is given, but .* z, "),
        ({"activation": "tanh", "z": np.zeros((3, 5), F4)}, ValueError, r"^z is given, but .* y, "),
        ({"activation": "swish", "z": np.zeros((3, 4), F4)}, ValueError, r"^z has shape \(3, 4\)"),
        ({"z": np.zeros((3, 5), F4)}, ValueError, r"^z is given and activation is None, expected"),
        ({"y": np.zeros((3, 5), F4)}, ValueError, r"^y is given and activation is None, expected"),
        ({"activation": "relu", "y": np.zeros((3, 4), F4)}, ValueError, r"^y has shape \(3, 4\)"),
        ({"activation": "relu", "y": np.zeros((3, 5))}, TypeError, r"^y has dtype float64"),
        ({"activation": "elu?"}, ValueError, r"^activation is 'elu\?'"),
    ],
)
def test_backward_refuses(change: dict[str, Any], error: type[Exception], match: str) -> None:
    fine = {"dy": np.zeros((3, 5), F4), "x": np.zeros((3, 4), F4), "w": np.zeros((5, 4), F4)}
    with pytest.raises(error, match=match):
        dlprim.linear_backward(**(fine | change))
