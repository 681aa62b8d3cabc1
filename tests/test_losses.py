"""mse_loss, binary_cross_entropy_with_logits and their gradients: against float64, every form of
weights and reductions, both dtypes, in place."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import dlprim
import row_reference
from bfloat16 import bits_of, rounded
from dlprim import nn

pytestmark = pytest.mark.every_level

REDUCTIONS = ["mean", "sum", "none"]
SHAPES = [(4, 8), (1,), (), (3, 5), (2, 3, 33), (4096,), (4097,), (2, 9001), (5000, 3)]
BCE, BCE_BACKWARD = (
    dlprim.binary_cross_entropy_with_logits,
    dlprim.binary_cross_entropy_with_logits_backward,
)
# Of operands (3, 4, 5); None is no weight.
WEIGHTS = [None, (), (1,), (5,), (4, 5), (1, 1, 5), (3, 4, 5), (3, 1, 1), (4, 1)]


def normal(shape: Any, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def uniform(shape: Any, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(0, 1, shape).astype(np.float32)


def reduced(loss: Any, reduction: str) -> Any:
    return loss if reduction == "none" else getattr(np, reduction)(loss)


def squares(x: Any, y: Any) -> tuple[Any, Any]:
    """The loss of each element and its slope."""
    difference = x.astype(np.float64) - y
    return difference**2, 2 * difference


def logistic(x: Any, t: Any, weight: Any = None, pos_weight: Any = None) -> tuple[Any, Any]:
    x, t = x.astype(np.float64), t.astype(np.float64)
    w, p = (1.0 if it is None else it.astype(np.float64) for it in (weight, pos_weight))
    value = w * (p * t * np.logaddexp(0, -x) + (1 - t) * np.logaddexp(0, x))
    above, below = row_reference.sigmoid(x), row_reference.sigmoid(-x)
    return value, w * ((1 - t) * above - p * t * below)


def gradient_of(slope: Any, dy: Any, reduction: str) -> Any:
    return slope * dy / (max(slope.size, 1) if reduction == "mean" else 1)


def check(found: Any, expected: Any, x: Any) -> None:
    assert np.shape(found) == np.shape(expected)
    if np.ndim(expected):
        assert found.dtype == x.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients(shape: tuple[int, ...], reduction: str) -> None:
    x, y = 3 * normal(shape), uniform(shape, 1)
    dy = normal(shape, 2) if reduction == "none" else 0.75
    for (value, backward), exact, criterion in (
        ((dlprim.mse_loss, dlprim.mse_loss_backward), squares, nn.MSELoss(reduction=reduction)),
        ((BCE, BCE_BACKWARD), logistic, nn.BCEWithLogitsLoss(reduction=reduction)),
    ):
        loss, slope = exact(x, y)
        found = value(x, y, reduction=reduction)
        check(found, reduced(loss, reduction), x)
        check(backward(dy, x, y, reduction=reduction), gradient_of(slope, dy, reduction), x)
        both = criterion(x, y)
        np.testing.assert_array_equal(both.loss, found)
        check(both.dx, gradient_of(slope, 1, reduction), x)
        assert isinstance(found, np.ndarray if reduction == "none" else float)


@pytest.mark.parametrize(("weight", "pos_weight"), list(itertools.product(WEIGHTS, WEIGHTS)))
def test_weights_of_every_shape(weight: Any, pos_weight: Any) -> None:
    x, t = 3 * normal((3, 4, 5)), uniform((3, 4, 5), 1)
    w = None if weight is None else uniform(weight, 2)
    p = None if pos_weight is None else 1 + uniform(pos_weight, 3)
    loss, slope = logistic(x, t, w, p)
    for reduction in REDUCTIONS:
        dy = normal(x.shape, 4) if reduction == "none" else -2.0
        more: dict[str, Any] = {"pos_weight": p, "reduction": reduction}
        check(BCE(x, t, w, **more), reduced(loss, reduction), x)
        check(BCE_BACKWARD(dy, x, t, w, **more), gradient_of(slope, dy, reduction), x)
        both = nn.BCEWithLogitsLoss(w, **more)(x, t)
        check(both.loss, reduced(loss, reduction), x)
        check(both.dx, gradient_of(slope, 1, reduction), x)


@pytest.mark.parametrize("shape", [(5000, 3), (3, 4095), (2, 4097), (4097, 1), (1, 9001)])
def test_weights_of_columns_beyond_a_part(shape: tuple[int, int]) -> None:
    x, t = 3 * normal(shape), uniform(shape, 1)
    w, p = uniform(shape[1:], 2), 1 + uniform(shape[1:], 3)
    for weight, pos_weight in (
        (w, p),
        (None, p),
        (uniform(shape, 4), p),
        (uniform(shape, 4), None),
    ):
        loss, slope = logistic(x, t, weight, pos_weight)
        check(BCE(x, t, weight, pos_weight=pos_weight), loss.mean(), x)
        found = BCE_BACKWARD(1, x, t, weight, pos_weight=pos_weight, reduction="sum")
        check(found, slope, x)
        check(BCE(x, t, weight, pos_weight=pos_weight, reduction="none"), loss, x)


def test_gradients_are_those_of_the_values() -> None:
    x, t = normal((3, 5)), uniform((3, 5), 1)
    w, p = uniform((3, 5), 2), 1 + uniform(5, 3)
    for exact in (squares, lambda x, t: logistic(x, t, w, p)):
        _, slope = exact(x, t)
        above, _ = exact(x.astype(np.float64) + 1e-5, t)
        below, _ = exact(x.astype(np.float64) - 1e-5, t)
        np.testing.assert_allclose((above - below) / 2e-5, slope, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(4, 8), (2, 4097)])
def test_bfloat16_is_float32_rounded_once(shape: tuple[int, ...], reduction: str) -> None:
    x, y, dy = (dlprim.to_bfloat16(normal(shape, seed)) for seed in range(3))
    wide = [dlprim.to_float32(it) for it in (x, y, dy)]
    w = uniform(shape[1:], 4)
    for value, backward, weights in (
        (dlprim.mse_loss, dlprim.mse_loss_backward, ()),
        (BCE, BCE_BACKWARD, ()),
        (BCE, BCE_BACKWARD, (w,)),
    ):
        expected = value(*wide[:2], *weights, reduction=reduction)
        found = value(x, y, *weights, reduction=reduction)
        if reduction == "none":
            np.testing.assert_array_equal(bits_of(found), rounded(expected))
        else:
            assert found == expected
        one = dy if reduction == "none" else 0.5
        other = wide[2] if reduction == "none" else 0.5
        slope = backward(one, x, y, *weights, reduction=reduction)
        exact = backward(other, *wide[:2], *weights, reduction=reduction)
        np.testing.assert_array_equal(bits_of(slope), rounded(exact))
    narrow = BCE(x, y, dlprim.to_bfloat16(w), reduction=reduction)
    same = BCE(x, y, dlprim.to_float32(dlprim.to_bfloat16(w)), reduction=reduction)
    np.testing.assert_array_equal(np.asarray(narrow), np.asarray(same))


def test_in_place_and_views() -> None:
    x, y, dy, w = (*(normal((40, 60), seed) for seed in range(3)), uniform(60, 3))
    for value, backward, weights in (
        (dlprim.mse_loss, dlprim.mse_loss_backward, ()),
        (BCE, BCE_BACKWARD, (w,)),
    ):
        loss = value(x, y, *weights, reduction="none")
        dx, dx_sum = (
            backward(dy, x, y, *weights, reduction="none"),
            backward(2, x, y, *weights, reduction="sum"),
        )
        for view in (np.asfortranarray(x), np.repeat(x, 2, 1)[:, ::2]):
            assert value(view, y, *weights) == value(x, y, *weights)
            np.testing.assert_array_equal(
                backward(1, y, view, *weights), backward(1, y, x, *weights)
            )
        for place in range(2):
            operands = [x.copy(), y.copy()]
            out = operands[place]
            assert value(*operands, *weights, reduction="none", out=out) is out
            np.testing.assert_array_equal(out, loss)
        for place in range(3):
            operands = [dy.copy(), x.copy(), y.copy()]
            out = operands[place]
            assert backward(*operands, *weights, reduction="none", out=out) is out
            np.testing.assert_array_equal(out, dx)
        for place in range(2):
            operands = [x.copy(), y.copy()]
            out = operands[place]
            assert backward(2, *operands, *weights, reduction="sum", out=out) is out
            np.testing.assert_array_equal(out, dx_sum)
    before, criterion = x.copy(), nn.MSELoss()
    expected = criterion(x, y)
    found = criterion(x, y, out=x)
    assert found.dx is x
    assert found.loss == expected.loss
    np.testing.assert_array_equal(x, expected.dx)
    assert criterion(before, y, gradient=False) == (expected.loss, None)


@pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0)])
def test_nothing(shape: tuple[int, ...]) -> None:
    empty = normal(shape)
    for value, backward, weights in (
        (dlprim.mse_loss, dlprim.mse_loss_backward, ()),
        (BCE, BCE_BACKWARD, (normal(shape[1:]),)),
    ):
        assert np.isnan(value(empty, empty, *weights))
        assert value(empty, empty, *weights, reduction="sum") == 0
        assert value(empty, empty, *weights, reduction="none").shape == shape
        assert backward(1, empty, empty, *weights).shape == shape
        assert backward(empty, empty, empty, *weights, reduction="none").shape == shape


def test_what_is_large_and_what_is_not_finite() -> None:
    x = np.array([-100, -20, 20, 100, 3e38, -3e38], np.float32)
    for t in (0, 0.25, 1):
        targets = np.full_like(x, t)
        loss, slope = logistic(x, targets)
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(
                BCE(x, targets, reduction="none"), loss, rtol=1e-6, atol=1e-43
            )
        found = BCE_BACKWARD(1, x, targets, reduction="sum")
        np.testing.assert_allclose(found, slope, rtol=1e-6, atol=1e-43)
    x = np.array([np.inf, -np.inf, np.nan, np.inf, -np.inf, 0, 1], np.float32)
    t = np.array([0, 1, 0, 1, 0, np.nan, 1], np.float32)
    loss, slope = BCE(x, t, reduction="none"), BCE_BACKWARD(1, x, t, reduction="sum")
    expected = [np.inf, np.inf, np.nan, np.nan, np.nan, np.nan, np.logaddexp(0, -1)]
    np.testing.assert_allclose(loss, np.array(expected, np.float32), rtol=1e-6)
    gradient = [1, -1, np.nan, 0, 0, np.nan, 1 / (1 + np.e**-1) - 1]
    np.testing.assert_allclose(slope, np.array(gradient, np.float32), rtol=1e-6)
    assert np.isnan(BCE(x, t))
    x[2] = 1
    squared = dlprim.mse_loss(x[:4], np.array([0, 0, np.nan, np.inf], np.float32), reduction="none")
    np.testing.assert_array_equal(squared, np.array([np.inf, np.inf, np.nan, np.nan], np.float32))


def test_threads_do_not_change_a_bit() -> None:
    x, t, w, p = normal((700, 333)), uniform((700, 333), 1), uniform((700, 333), 2), uniform(333, 3)
    found = []
    for threads in (1, 3):
        with dlprim.threads(threads):
            losses = [dlprim.mse_loss(x, t), BCE(x, t, w, pos_weight=p), BCE(x, t, p), BCE(x, t)]
            both = nn.BCEWithLogitsLoss(w, pos_weight=p)(x, t)
            slope = BCE_BACKWARD(1, x, t, p)
            found.append([*losses, both.loss, both.dx.tobytes(), slope.tobytes()])
    assert found[0] == found[1]


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_against_pytorch(reduction: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an optional peer")
    functional = torch.nn.functional
    x, t = 3 * normal((3, 4, 50)), uniform((3, 4, 50), 1)
    w, p = uniform((4, 50), 2), 1 + uniform(50, 3)
    dy = normal(x.shape, 4) if reduction == "none" else 1.5
    tensors = [torch.from_numpy(it) for it in (t, w, p)]
    for ours, theirs in (
        (nn.MSELoss(reduction=reduction), functional.mse_loss),
        (nn.BCEWithLogitsLoss(reduction=reduction), functional.binary_cross_entropy_with_logits),
    ):
        leaf = torch.from_numpy(x).requires_grad_()
        expected = theirs(leaf, tensors[0], reduction=reduction)
        expected.sum().backward()
        loss, dx = ours(x, t)
        np.testing.assert_allclose(loss, expected.detach().numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(dx, leaf.grad.numpy(), rtol=1e-5, atol=1e-6)
    leaf = torch.from_numpy(x).requires_grad_()
    expected = functional.binary_cross_entropy_with_logits(
        leaf, tensors[0], tensors[1], pos_weight=tensors[2], reduction=reduction
    )
    expected.backward(torch.as_tensor(dy))
    more: dict[str, Any] = {"pos_weight": p, "reduction": reduction}
    found = BCE(x, t, w, **more)
    np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    found = BCE_BACKWARD(dy, x, t, w, **more)
    np.testing.assert_allclose(found, leaf.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_nothing_that_counts_has_no_mean() -> None:
    weight = np.array([0, 1, 1], np.float32)
    logits, targets = np.zeros((1, 3), np.float32), np.array([0])
    found = dlprim.softmax_cross_entropy(logits, targets, weight=weight, label_smoothing=0.1)
    assert np.isnan(found.loss)


def test_a_gradient_beyond_float32_is_refused() -> None:
    x = np.ones(2, np.float32)
    with pytest.raises(ValueError, match=r"dy is 1e\+39, expected a number within float32's range"):
        dlprim.mse_loss_backward(1e39, x, x, reduction="sum")
