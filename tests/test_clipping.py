"""Limits on gradients: against float64, and against PyTorch where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn
from dlprim.optim import SGD, clip_grad_norm, clip_grad_value

SHAPES = [(3, 5), (17,), (1,), (4096,), (9, 10001), (0, 4), ()]


def drawn(seed: int = 0) -> list[nn.Parameter]:
    random, found = np.random.default_rng(seed), []
    for shape in SHAPES:
        it = nn.Parameter(np.zeros(shape, np.float32))
        it.gradient[...] = random.standard_normal(shape, np.float32)
        found.append(it)
    return found


def together(parameters: list[nn.Parameter]) -> Any:
    return np.concatenate([it.gradient.ravel() for it in parameters]).astype(np.float64)


def norm_of(x: Any, exponent: float) -> float:
    return float(np.linalg.norm(x, exponent))


@pytest.mark.parametrize("exponent", [2, 2.0, np.inf, 1, 3.5])
@pytest.mark.parametrize("share", [0.5, 2.0])
def test_the_norm_is_what_is_asked_for(exponent: float, share: float) -> None:
    parameters = drawn()
    before = together(parameters)
    norm = norm_of(before, exponent)
    assert clip_grad_norm(parameters, share * norm, exponent) == pytest.approx(norm, rel=1e-6)
    expected = before * share * norm / (norm + 1e-6) if share < 1 else before
    np.testing.assert_allclose(together(parameters), expected, 1e-6)


@pytest.mark.parametrize("limit", [0.5, 0, 100.0, np.inf])
def test_values_are_within_what_is_asked_for(limit: float) -> None:
    parameters = drawn()
    expected = np.clip(together(parameters), -limit, limit)
    assert clip_grad_value(parameters, limit) is None  # type: ignore[func-returns-value]
    np.testing.assert_allclose(together(parameters), expected, 1e-7)


def test_one_parameter_an_iterator_none_and_one_that_comes_twice() -> None:
    one = nn.Parameter(np.zeros(2, np.float32))
    for given in (one, iter([one]), (one,), [one, one]):
        one.gradient[...] = [3, -4]
        assert clip_grad_norm(given, 2.5) == 5
        np.testing.assert_allclose(one.gradient, [1.5, -2], 1e-6)
        clip_grad_value([one], 1.75)
        np.testing.assert_allclose(one.gradient, [1.5, -1.75], 1e-6)
    assert clip_grad_norm([], 1) == 0
    assert clip_grad_norm(drawn()[-2:-1], 1, np.inf) == 0  # of no elements


def test_what_is_not_finite() -> None:
    def of(*values: float) -> nn.Parameter:
        it = nn.Parameter(np.zeros(len(values), np.float32))
        it.gradient[...] = values
        return it

    for exponent in (2.0, np.inf, 3.0):
        bad, fine = of(1, np.nan), of(1, 2)
        with pytest.raises(RuntimeError, match=r"^The norm of all gradients is nan, expected a fi"):
            clip_grad_norm([bad, fine], 1.0, exponent, error_if_nonfinite=True)
        assert fine.gradient.tolist() == [1, 2]
        assert np.isnan(clip_grad_norm([bad, fine], 1.0, exponent))
        assert np.isnan(fine.gradient).all()
        bad, fine = of(1, -np.inf), of(1, 2)
        with pytest.raises(RuntimeError, match=r"^The norm of all gradients is inf, expected a fi"):
            clip_grad_norm([bad, fine], 1.0, exponent, error_if_nonfinite=True)
        assert clip_grad_norm([bad, fine], 1.0, exponent) == np.inf
        assert fine.gradient.tolist() == [0, 0]
        assert np.isnan(bad.gradient).tolist() == [False, True]
    bad = of(np.nan, np.inf, -np.inf, 0.5)
    clip_grad_value(bad, 2.0)
    np.testing.assert_array_equal(bad.gradient, np.array([np.nan, 2, -2, 0.5], np.float32))


def test_threads_do_not_change_a_bit() -> None:
    found = []
    for threads in (1, 3):
        with dlprim.threads(threads):
            parameters = drawn()
            norm = clip_grad_norm(parameters, 1.0)
            clip_grad_value(parameters, 1e-3)
            found.append((norm, together(parameters).tobytes()))
    assert found[0] == found[1]


def test_between_backward_and_step() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    optimizer = SGD(model.parameters(), 1.0)
    y = model(np.ones((5, 3), np.float32))
    model.backward(np.full_like(y, 100))
    before = [it.value.copy() for it in model.parameters()]
    assert clip_grad_norm(model.parameters(), 0.25) > 0.25
    optimizer.step()
    moved = [it.value - old for it, old in zip(model.parameters(), before, strict=True)]
    norm = np.sqrt(sum(np.square(it.astype(np.float64)).sum() for it in moved))
    assert norm == pytest.approx(0.25, rel=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: clip_grad_norm(p, -1), "max_norm is -1, expected a finite number >= 0"),
        (lambda p: clip_grad_norm(p, np.nan), "max_norm is nan, expected a finite number >= 0"),
        (lambda p: clip_grad_norm(p, 1, 0), "norm_type is 0, expected a number above 0, or infini"),
        (lambda p: clip_grad_norm(p, 1, -np.inf), "norm_type is -inf, expected a number above 0"),
        (lambda p: clip_grad_norm(p, 1, "inf"), "norm_type is 'inf', expected a finite number"),
        (
            lambda p: clip_grad_norm(p, 1, error_if_nonfinite=1),
            "error_if_nonfinite is 1, expected True or False",
        ),
        (lambda p: clip_grad_value(p, -1), "clip_value is -1, expected a finite number >= 0"),
        (
            lambda p: clip_grad_norm([p[0], p[0].gradient], 1),
            r"parameters\[1\] is of type ndarray, expected a dlprim\.nn\.Parameter, whose gradient",
        ),
        (
            lambda p: clip_grad_value(p[0].gradient, 1),
            r"parameters is of type ndarray, expected a dlprim\.nn\.Parameter or a list",
        ),
    ],
)
def test_refusals(call: Callable[[Any], Any], message: str) -> None:
    parameters = drawn()
    before = together(parameters).tobytes()
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        call(parameters)
    assert together(parameters).tobytes() == before


@pytest.mark.parametrize("exponent", [2.0, np.inf, 1.0])
def test_against_pytorch(exponent: float) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    parameters = [it for it in drawn() if it.gradient.size]  # of none PyTorch has no norm
    tensors = [torch.nn.Parameter(torch.zeros(it.shape)) for it in parameters]
    for tensor, it in zip(tensors, parameters, strict=True):
        tensor.grad = torch.from_numpy(it.gradient.copy())
    expected = torch.nn.utils.clip_grad_norm_(tensors, 1.0, exponent)
    assert clip_grad_norm(parameters, 1.0, exponent) == pytest.approx(float(expected), rel=1e-5)
    torch.nn.utils.clip_grad_value_(tensors, 1e-3)
    clip_grad_value(parameters, 1e-3)
    for tensor, it in zip(tensors, parameters, strict=True):
        np.testing.assert_allclose(it.gradient, tensor.grad.numpy(), 1e-5)


@pytest.mark.parametrize("size", [1e-4, 1e4])
def test_powers_stay_within_range(size: float) -> None:
    parameter = nn.Parameter(np.zeros(3, np.float32))
    parameter.gradient[...] = [size, -size, 0]
    assert clip_grad_norm([parameter], size / 4, 100.0) == pytest.approx(size, rel=0.01)
    assert np.abs(parameter.gradient).max() == pytest.approx(size / 4, rel=0.05)
    parameter.gradient[...] = 0
    assert np.copysign(1, clip_grad_norm([parameter], 1.0, np.float32(np.inf))) == 1
