"""What layers made without `generator` begin with, and what their constructors refuse."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dlprim import nn
from dlprim.nn.module import Module
from dlprim.optim import SGD, AdamW

pytestmark = pytest.mark.any_level

# What is drawn uniformly from -bound to bound, with the bound that PyTorch has.
UNIFORM: dict[str, tuple[Callable[[], Module], float]] = {
    "Linear": (lambda: nn.Linear(64, 500), 1 / 8),
    "Conv2d": (lambda: nn.Conv2d(4, 300, 3, bias=True), 1 / 6),
    "groups": (lambda: nn.Conv2d(8, 400, 3, groups=2, bias=True), 1 / 6),
    "lstm": (lambda: nn.Recurrent("lstm", 5, 100, 2), 1 / 10),
    "gru": (lambda: nn.Recurrent("gru", 7, 100), 1 / 10),
}


@pytest.mark.parametrize("case", UNIFORM)
def test_layers_start_uniform_as_pytorch_does(case: str) -> None:
    make, bound = UNIFORM[case]
    nn.seed(3)
    for parameter in make().parameters():
        values = parameter.value
        assert np.abs(values).max() <= np.float32(bound)
        assert np.abs(values).max() > 0.95 * bound
        assert abs(values.mean()) < 0.2 * bound
        assert values.std() == pytest.approx(bound / math.sqrt(3), rel=0.1)


def test_embedding_starts_normal_as_pytorch_does() -> None:
    nn.seed(3)
    values = nn.Embedding(200, 50).weight.value
    assert abs(values.mean()) < 0.05
    assert values.std() == pytest.approx(1, rel=0.05)


def test_scale_and_resnet_draw_normal_weights_without_a_generator() -> None:
    nn.seed(0)
    layer = nn.Linear(300, 40, scale=0.5)
    assert layer.weight.value.std() == pytest.approx(0.5, rel=0.05)
    assert layer.bias is not None
    assert not layer.bias.value.any()
    conv = nn.resnet((1,), 16, 4).parameters()[0].value
    assert conv.std() == pytest.approx(math.sqrt(2 / (16 * 49)), rel=0.1)


def test_seed_repeats_and_goes_on() -> None:
    nn.seed(5)
    first, second = (nn.Linear(4, 5).weight.value for _ in range(2))
    nn.seed(5)
    np.testing.assert_array_equal(nn.Linear(4, 5).weight.value, first)
    assert (first != second).any()
    for bad, error in (("1", TypeError), (-1, ValueError), (None, TypeError)):
        with pytest.raises(error, match="value is"):
            nn.seed(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("generator", [0, np.random, np.random.RandomState(0)])
def test_generator_is_one_of_numpy(generator: Any) -> None:
    for make in (
        lambda: nn.Linear(3, 4, generator=generator),
        lambda: nn.Conv2d(3, 4, 3, generator=generator),
        lambda: nn.Embedding(3, 4, generator=generator),
        lambda: nn.Recurrent("gru", 3, 4, generator=generator),
        lambda: nn.resnet((1,), 8, 4, generator),
    ):
        with pytest.raises(TypeError, match=r"generator is .*, expected a numpy\.random\.Gener"):
            make()


BOOLEANS: dict[str, Callable[[Any], object]] = {
    "bias": lambda it: nn.Linear(3, 4, bias=it),
    "first": lambda it: nn.Conv2d(3, 4, 3, first=it),
    "count_include_pad": lambda it: nn.AvgPool2d(2, count_include_pad=it),
    "mode": lambda it: nn.Linear(3, 4).train(it),
}


@pytest.mark.parametrize("bad", ["False", 1, None, np.ones(2, bool)])
@pytest.mark.parametrize("name", BOOLEANS)
def test_booleans_are_checked(name: str, bad: Any) -> None:
    with pytest.raises(TypeError, match=rf"{name} is .*, expected True or False"):
        BOOLEANS[name](bad)
    for good in (True, False, np.bool_(False)):
        BOOLEANS[name](good)


@pytest.mark.parametrize("bad", ["False", 1, np.ones(2, bool)])
def test_training_is_true_or_false_or_the_mode(bad: Any) -> None:
    layer, x = nn.Linear(3, 4), np.ones((2, 3), np.float32)
    with pytest.raises(TypeError, match=r"training is .*, expected True or False"):
        layer.forward(x, training=bad)
    for good in (True, False, np.bool_(False), None):
        layer.forward(x, training=good)


@pytest.mark.parametrize("bad", [True, False, "relu"])
def test_relu_of_a_normalisation_is_its_activation(bad: Any) -> None:
    with pytest.raises(TypeError, match=rf"relu is {bad!r}, expected activation='relu' or None"):
        nn.BatchNorm2d(3, relu=bad)
    for make in (
        lambda it: nn.BatchNorm2d(3, activation=it),
        lambda it: nn.Conv2d(3, 4, 1, activation=it),
    ):
        for other in ("gelu", True, "no"):
            with pytest.raises(ValueError, match=rf"activation is {other!r}, expected None or 'r"):
                make(other)
        assert [make(it).activation for it in (None, "relu")] == [None, "relu"]


def test_defaults_are_those_of_pytorch() -> None:
    assert nn.Conv2d(3, 4, 3).bias is not None
    assert nn.Linear(3, 4).bias is not None
    assert all(
        it.bias is None for it in nn.resnet((1,), 8, 4).modules() if isinstance(it, nn.Conv2d)
    )
    norm = nn.BatchNorm2d(3)
    assert (norm.eps, norm.momentum, norm.activation) == (1e-5, 0.1, None)
    assert nn.Dropout().p == 0.5
    first, second = nn.Dropout(), nn.Dropout()
    assert first.seed != second.seed
    assert SGD([np.ones(3, np.float32)]).lr == AdamW([np.ones(3, np.float32)]).lr == 1e-3


def test_bias_of_a_convolution_is_a_boolean() -> None:
    with pytest.raises(TypeError, match="bias is 'no', expected True or False"):
        nn.Conv2d(3, 4, 3, bias="no")  # type: ignore[arg-type]


def test_numpy_booleans_mean_what_they_say() -> None:
    layer = nn.Linear(3, 4, bias=np.bool_(False))  # type: ignore[arg-type]
    assert layer.bias is None
    layer.forward(np.ones((2, 3), np.float32), training=np.bool_(False))
    with pytest.raises(RuntimeError, match="follows no training forward"):
        layer.backward(np.ones((2, 4), np.float32))


# What stands in these places of PyTorch's constructors is something else.
ELSEWHERE: dict[str, Callable[[], object]] = {
    "BatchNorm2d": lambda: nn.BatchNorm2d(8, 1e-3),  # type: ignore[misc]
    "Conv2d": lambda: nn.Conv2d(4, 4, 3, 1, 1, 2),  # type: ignore[misc]
    "Linear": lambda: nn.Linear(4, 4, True, "relu"),  # type: ignore[misc]
    "Embedding": lambda: nn.Embedding(4, 4, 0),  # type: ignore[misc]
    "Recurrent": lambda: nn.Recurrent("gru", 4, 4, 1, True),  # type: ignore[misc]
    "AvgPool2d": lambda: nn.AvgPool2d(2, 2, 0, True),  # type: ignore[misc]
    "Dropout": lambda: nn.Dropout(0.5, True),  # type: ignore[misc]
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_what_pytorch_has_elsewhere_goes_by_name(case: str) -> None:
    with pytest.raises(TypeError, match="positional argument"):
        ELSEWHERE[case]()


def test_third_place_of_linear_is_the_bias_as_in_pytorch() -> None:
    assert nn.Linear(4, 4, False).bias is None
    with pytest.raises(TypeError, match="bias is 'relu', expected True or False"):
        nn.Linear(4, 4, "relu")  # type: ignore[arg-type]
