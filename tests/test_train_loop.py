"""What the training program does between its flags and its result: the loop and its arithmetic.

Gradients and updates are checked against float64 NumPy written from the equations.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from dlprim.optim import SGD
from dlprim.train import data
from dlprim.train.loop import DivergenceError, TrainConfig, Trainer
from dlprim.train.loss import softmax_cross_entropy
from dlprim.train.mlp import MLP


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def blobs(samples: int = 50) -> data.Dataset:
    """Two well separated classes, so that tests of the loop need no scikit-learn."""
    labels = np.arange(samples) % 2
    src = generator().standard_normal((samples, 3), dtype=np.float32)
    src[:, 0] += 6 * labels - 3
    return data.Dataset("blobs", 2, src, labels, src, labels)


# ---------------------------------------------------------------- the loop


def test_output_that_diverges_in_the_last_step_is_noticed() -> None:
    dataset = blobs()
    config = TrainConfig(epochs=1, batch_size=dataset.train_labels.size, lr=1e38)
    model = MLP((3, 4, 2), generator())
    model.biases[0][...] = 1e8
    with pytest.raises(DivergenceError, match="test set is not finite in epoch 1, after its last"):
        list(Trainer(model, dataset, config, generator()).run())


def test_every_sample_is_used_once_per_epoch() -> None:
    dataset = blobs(samples=50)
    batches = list(data.minibatches(dataset, batch_size=16, noise=0, generator=generator()))
    assert [labels.size for _, labels in batches] == [16, 16, 16, 2]
    seen = np.concatenate([src for src, _ in batches])
    np.testing.assert_array_equal(np.sort(seen, axis=0), np.sort(dataset.train_src, axis=0))


def test_noise_leaves_the_data_set_alone() -> None:
    dataset = blobs(samples=2000)
    before = dataset.train_src.copy()
    ((src, _),) = data.minibatches(dataset, batch_size=2000, noise=0.4, generator=generator())
    np.testing.assert_array_equal(dataset.train_src, before)
    # Columns 1 and 2 are unit normals; independent variances add.
    assert src[:, 1:].std() == pytest.approx(math.sqrt(1 + 0.4**2), rel=0.05)


def test_split_is_stratified_disjoint_and_complete() -> None:
    labels = np.repeat(np.arange(3), (10, 20, 35))
    train, test = data.stratified_split(labels, 0.2, generator())
    assert sorted([*train, *test]) == list(range(65))
    assert np.bincount(labels[test]).tolist() == [2, 4, 7]


# ---------------------------------------------------------------- the arithmetic


def reference_loss(
    parameters: list[NDArray[np.float64]], src: NDArray[np.float64], labels: NDArray[np.int64]
) -> float:
    """The mean cross-entropy of an MLP in float64: all weights first, then all biases."""
    layers = len(parameters) // 2
    for layer, (weights, bias) in enumerate(
        zip(parameters[:layers], parameters[layers:], strict=True)
    ):
        src = src @ weights.T + bias
        if layer < layers - 1:
            src = np.maximum(src, 0)
    log_softmax = src - np.log(np.exp(src).sum(axis=1, keepdims=True))
    return float(-log_softmax[np.arange(labels.size), labels].mean())


@pytest.mark.parametrize("widths", [(5, 3), (5, 17, 3), (1, 4, 6, 2)])
def test_gradients_match_float64_central_differences(widths: tuple[int, ...]) -> None:
    random = generator(1)
    model = MLP(widths, random)
    for bias in model.biases:
        bias += random.standard_normal(bias.shape, dtype=np.float32)
    src = random.standard_normal((7, widths[0]), dtype=np.float32)
    labels = random.integers(0, widths[-1], 7)
    loss, diff_dst = softmax_cross_entropy(model.forward(src), labels)
    model.backward(diff_dst)

    exact = [parameter.astype(np.float64) for parameter in model.parameters]
    exact_src = src.astype(np.float64)
    assert loss / 7 == pytest.approx(reference_loss(exact, exact_src, labels), rel=1e-5)
    step = 1e-6
    for parameter, gradient in zip(exact, model.gradients, strict=True):
        expected = np.empty_like(parameter)
        for index in np.ndindex(parameter.shape):
            centre = parameter[index]
            parameter[index] = centre + step
            above = reference_loss(exact, exact_src, labels)
            parameter[index] = centre - step
            below = reference_loss(exact, exact_src, labels)
            parameter[index] = centre
            expected[index] = (above - below) / (2 * step)
        # Gradients of a mean are of order one; float32 rounds some 1e-7 in each of a few terms.
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=2e-6)


def test_loss_is_finite_for_large_outputs_and_not_for_infinite_ones() -> None:
    labels = np.array([0, 1])
    loss, diff_dst = softmax_cross_entropy(np.array([[1e30, 0], [1e30, 0]], np.float32), labels)
    assert loss == pytest.approx(1e30)
    np.testing.assert_array_equal(diff_dst, np.array([[0, 0], [0.5, -0.5]], np.float32))
    for bad in (math.nan, math.inf):
        with np.errstate(invalid="ignore"):
            loss, _ = softmax_cross_entropy(np.array([[bad, 0], [0, 0]], np.float32), labels)
        assert not math.isfinite(loss)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_follows_its_formula(momentum: float, weight_decay: float) -> None:
    random = generator(2)
    parameters = [random.standard_normal(shape, dtype=np.float32) for shape in [(3, 4), (5,), ()]]
    parameters = [np.asarray(parameter) for parameter in parameters]
    expected = [parameter.astype(np.float64) for parameter in parameters]
    velocities = [np.zeros_like(parameter) for parameter in expected]
    optimiser = SGD(parameters, 0.5, momentum, weight_decay)
    for learning_rate in (0.5, 0.25, 0.125):
        gradients = [
            np.asarray(random.standard_normal(parameter.shape, dtype=np.float32))
            for parameter in parameters
        ]
        optimiser.learning_rate = learning_rate
        optimiser.step(gradients)
        for index, gradient in enumerate(gradients):
            velocities[index] = (
                momentum * velocities[index] + gradient + weight_decay * expected[index]
            )
            expected[index] = expected[index] - learning_rate * velocities[index]
    for parameter, value in zip(parameters, expected, strict=True):
        np.testing.assert_allclose(parameter, value, rtol=1e-5, atol=1e-6)


def test_sgd_refuses_what_it_cannot_follow() -> None:
    parameter = np.ones((2, 3), np.float32)
    for bad in (dict(learning_rate=-1.0), dict(learning_rate=math.nan), dict(momentum=1.0)):
        with pytest.raises(ValueError, match=next(iter(bad))):
            SGD([parameter], **({"learning_rate": 0.1} | bad))
    with pytest.raises(ValueError, match="weight_decay"):
        SGD([parameter], 0.1, weight_decay=-1.0)
    with pytest.raises(TypeError, match=r"parameters\[0\] is float64"):
        SGD([np.ones(2)], 0.1)  # type: ignore[list-item]
    optimiser = SGD([parameter], 0.1)
    for gradients in ([], [np.ones(3, np.float32)], [parameter.copy(), parameter.copy()]):
        with pytest.raises(ValueError, match="gradients have the shapes"):
            optimiser.step(gradients)
    np.testing.assert_array_equal(parameter, 1)


def test_mlp_needs_an_input_and_an_output() -> None:
    for widths in ((), (3,), (3, 0, 2)):
        with pytest.raises(ValueError, match="widths"):
            MLP(widths, generator())
