"""Models that are copied or pickled after they ran, and parameters that are assigned."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn
from dlprim.train.models import LanguageModel

COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda it: pickle.loads(pickle.dumps(it)),
}


def images() -> Any:
    return np.random.default_rng(0).standard_normal((2, 3, 12, 12), np.float32)


def convolutions() -> nn.Sequential:
    return nn.Sequential(
        {
            "conv": nn.Conv2d(3, 8, 3, padding=1, bias=True),
            "norm": nn.BatchNorm2d(8, activation="relu"),
            "relu": nn.ReLU(),
            "max": nn.MaxPool2d(2),
            "mean": nn.AvgPool2d(2),
            "drop": nn.Dropout(0.2, seed=1),
            "flat": nn.Flatten(),
            "fc": nn.Linear(72, 5, activation="gelu"),
        }
    )


def language(cell: str) -> nn.Module:
    model = LanguageModel(cell, 7, 12, 2)
    model.use(nn.Context())
    return model


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "convolutions": (convolutions, images),
    "resnet": (lambda: nn.resnet((1, 1), 8, 5), images),
    "bfloat16": (lambda: nn.resnet((1,), 8, 5, None, nn.Context("bfloat16")), images),
    "lstm": (lambda: language("lstm"), lambda: np.arange(12).reshape(4, 3) % 7),
    "gru": (lambda: language("gru"), lambda: np.arange(12).reshape(4, 3) % 7),
}


def step(model: nn.Module, x: Any) -> dict[str, Any]:
    """Gradients by name."""
    logits = model.forward(x)
    _, diff = dlprim.softmax_cross_entropy(logits, np.arange(len(logits)) % 5)
    model.backward(diff)
    return {it.name: it.gradient for it in model.parameters()}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("case", MODELS)
def test_a_model_that_ran_is_copied(case: str, name: str) -> None:
    make, source = MODELS[case]
    model, x = make(), source()
    step(model, x)
    model.forward(x, training=False)
    logits = model.forward(x)  # whose backward has not come yet
    other = COPIES[name](model)
    assert other.context is not model.context
    for one, two in zip(model.modules(), other.modules(), strict=True):
        assert (one.name, type(one)) == (two.name, type(two))
        assert two.context is other.context
    last = list(other.modules())[-1]
    with pytest.raises(RuntimeError, match="follows no training forward"):
        last.backward(logits)
    inferred = [np.array(it.forward(x, training=False)) for it in (model, other)]
    np.testing.assert_array_equal(*inferred)
    gradients = [step(it, x) for it in (model, other)]
    for key, gradient in gradients[0].items():
        np.testing.assert_array_equal(gradients[1][key], gradient, key)
    before = inferred[0]
    for parameter in other.parameters():
        parameter.value[...] = 0.5
    other.changed()
    assert (np.array(other.forward(x, training=False)) != before).any()
    model.changed()


def test_a_pickle_holds_nothing_of_passes() -> None:
    model = nn.resnet((1,), 8, 4)
    empty = len(pickle.dumps(model))
    for _ in range(2):
        model.forward(np.zeros((16, 3, 64, 64), np.float32))
    assert len(pickle.dumps(model)) < 1.1 * empty


def test_a_copied_parameter_lies_on_a_cache_line_and_shares_nothing() -> None:
    parameter = nn.Parameter(np.arange(5, dtype=np.float32), "w")
    parameter.gradient[...] = 3
    for make in COPIES.values():
        other = make(parameter)
        assert other.name == "w"
        assert other.value.ctypes.data % 64 == 0
        assert not np.may_share_memory(other.value, parameter.value)
        np.testing.assert_array_equal(other.value, parameter.value)
        assert not other.gradient.any()
        one, same = make([parameter, parameter])
        assert one is same


def test_a_parameter_keeps_its_array_whatever_is_assigned() -> None:
    layer = nn.Linear(3, 4)
    layer.use(nn.Context(), "fc")
    held = layer.weight.value
    layer.weight.value = np.ones((4, 3), np.float32)
    assert (held == 1).all()
    layer.weight.value[...] = 1
    layer.weight.value += 1
    assert layer.weight.value is held
    assert (held == 2).all()
    with pytest.raises(
        ValueError, match=r"value of 'fc\.weight' has shape \(3,\), expected \(4, 3"
    ):
        layer.weight.value = np.ones(3, np.float32)
    with pytest.raises(TypeError, match=r"value of 'fc\.weight' has dtype <U2"):
        layer.weight.value = "no"  # type: ignore[assignment]
    assert (held == 2).all()
