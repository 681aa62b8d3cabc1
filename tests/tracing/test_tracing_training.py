"""What training has and inference does not, in a trace: dropout, losses with their gradients."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import dlprim
from drawing import RNG

X = RNG.standard_normal((7, 90)).astype(np.float32)


def test_dropout_is_the_function_of_arrays() -> None:
    for seed, offset, p in ((0, 0, 0.5), (2**64 - 1, 2**63 + 1, 0.1), (5, 3, 1.0), (5, 3, 0.0)):
        layer = functools.partial(dlprim.dropout, p=p, seed=seed, offset=offset)
        np.testing.assert_array_equal(dlprim.compile(layer)(X), layer(X))


def test_a_step_draws_by_its_number_without_another_network() -> None:
    """And drops the same places forward and backward."""

    def loss(x: Any, step: Any) -> Any:
        return np.sum(dlprim.dropout(x, 0.25, seed=9, offset=step) ** 2)

    slope = dlprim.grad(loss)
    for step in (0, 1, -1, 2**62):
        kept = dlprim.dropout(X, 0.25, seed=9, offset=step % 2**64)
        expected = 2 * dlprim.dropout(kept, 0.25, seed=9, offset=step % 2**64)
        np.testing.assert_allclose(slope(X, np.asarray(step)), expected, rtol=1e-6)
    text = slope.explain(X, np.asarray(1))
    assert text.count(": dropout(") == 2
    assert "steps in Python: 0 of" in text


def test_dropout_of_bfloat16_drops_the_same_places() -> None:
    def layer(x: Any, w: Any) -> Any:
        return dlprim.dropout(x @ w, 0.5, seed=1, offset=4)

    w = np.eye(90, dtype=np.float32)
    wide, half = dlprim.compile(layer)(X, w), dlprim.compile(layer, dtype="bfloat16")(X, w)
    np.testing.assert_array_equal(wide == 0, half == 0)


@pytest.mark.parametrize("offset", [1.5, np.zeros(3, np.int64), np.zeros((), np.float32)])
def test_other_numbers_of_masks_are_refused(offset: Any) -> None:
    with pytest.raises(TypeError, match="offset"):
        dlprim.compile(lambda x, o: dlprim.dropout(x, 0.5, seed=1, offset=o))(X, offset)


def test_a_loss_and_its_gradient_are_one_step() -> None:
    def loss(x: Any, w: Any, labels: Any) -> Any:
        return dlprim.softmax_cross_entropy(x @ w, labels, gradient=False).loss

    w, labels = RNG.standard_normal((90, 5)).astype(np.float32), np.arange(7) % 5
    step = dlprim.value_and_grad(loss, 1)
    value, gradient = step(X, w, labels)
    expected = dlprim.softmax_cross_entropy(X @ w, labels)
    assert value == pytest.approx(expected.loss, rel=1e-5)
    np.testing.assert_allclose(gradient, X.T @ expected.dx, rtol=1e-4, atol=1e-5)
    text = step.explain(X, w, labels)
    assert text.count(": cross_entropy(") == 1
    assert "steps in Python: 0 of 3" in text


def test_steps_of_other_numbers_of_samples_are_the_same() -> None:
    """Whether they are compiled, or made by what was recorded of others."""

    def loss(params: Any, x: Any, labels: Any) -> Any:
        (w, b), (v, c) = params
        y = dlprim.layer_norm(dlprim.gelu(x @ w.T + b), b)
        return dlprim.softmax_cross_entropy(y @ v.T + c, labels, gradient=False).loss

    shapes = [((16, 90), (16,)), ((5, 16), (5,))]
    params = [tuple(RNG.standard_normal(it).astype(np.float32) for it in pair) for pair in shapes]
    step = dlprim.value_and_grad(loss)
    for count in (3, 5, 8, 70, 1):
        x = RNG.standard_normal((count, 90)).astype(np.float32)
        arguments = (params, x, np.arange(count) % 5)
        value, gradients = step(*arguments)
        other, expected = dlprim.value_and_grad(loss)(*arguments)
        assert value == other
        for pair, twin in zip(gradients, expected, strict=True):
            for found, right in zip(pair, twin, strict=True):
                np.testing.assert_array_equal(found, right)


def _leaves(parameters: Any) -> list[Any]:
    w, v, *lists = parameters
    return [w, v, *(it for each in lists for it in each)]


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_recurrent_steps_of_other_extents_are_the_same(cell: str) -> None:
    """Of other numbers of steps and of sequences; each layer runs forward once."""
    rows, layer = {"lstm": 28, "gru": 21, "rnn": 7}[cell], getattr(dlprim, cell)

    def loss(params: Any, x: Any, lengths: Any) -> Any:
        w, v, r, b = params
        return np.sum(layer(x, [w, v], r, b, b, lengths=lengths, num_layers=2)[0] ** 2)

    def drawn(*shape: int) -> Any:
        return RNG.standard_normal(shape).astype(np.float32) / 4

    w, v, *r = drawn(rows, 5), *(drawn(rows, 7) for _ in range(3))
    params = [w, v, r, [drawn(rows), drawn(rows)]]
    step = dlprim.value_and_grad(loss)
    for steps, samples in ((3, 2), (4, 2), (6, 5), (7, 5), (2, 1)):
        x = drawn(steps, samples, 5)
        arguments = (params, x, RNG.integers(0, steps + 1, samples))
        value, gradients = step(*arguments)
        other, expected = dlprim.value_and_grad(loss)(*arguments)
        assert value == other
        for found, right in zip(_leaves(gradients), _leaves(expected), strict=True):
            np.testing.assert_array_equal(found, right)
    text = step.explain(*arguments)
    assert (text.count(": rnn("), text.count(": rnn_backward(")) == (2, 2)
    assert "steps in Python: 0 of" in text


def test_gradients_of_losses_have_gradients() -> None:
    """Against differences."""

    def slope(x: Any) -> Any:
        inner = dlprim.grad(
            lambda it: dlprim.softmax_cross_entropy(it, LABELS, gradient=False).loss
        )
        return np.sum(inner(x) * WEIGHTS)

    x = RNG.standard_normal((4, 6)).astype(np.float32)
    found, way = dlprim.grad(slope)(x), RNG.standard_normal(x.shape).astype(np.float32)
    run = dlprim.compile(slope)
    difference = (run(x + 0.01 * way) - run(x - 0.01 * way)) / 0.02
    assert np.sum(found * way) == pytest.approx(difference, rel=0.02, abs=1e-3)


LABELS, WEIGHTS = np.array([0, 3, 5, 1]), RNG.standard_normal((4, 6)).astype(np.float32)
