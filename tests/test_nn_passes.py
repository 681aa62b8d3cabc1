"""`dlprim.nn`: passes that come in no pairs, names, results of layers, states that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn
from dlprim.nn.watching import results
from dlprim.train.models import LanguageModel
from test_nn import generator, networks, trained_once


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def linear() -> nn.Module:
    return nn.Linear(4, 5, activation="relu", generator=generator())


# ---------------------------------------------------------------- passes that fail


def test_training_forwards_without_backward_leave_nothing_behind() -> None:
    model, x, targets = networks()["resnet"]
    expected, _ = trained_once(model, x, targets)
    gradients = [it.gradient.copy() for it in model.parameters()]
    for _ in range(4):
        model.forward(x)
    assert trained_once(model, x, targets)[0] == expected
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        np.testing.assert_array_equal(parameter.gradient, gradient)


@pytest.mark.parametrize("training", [True, False])
def test_forward_that_fails_in_the_middle_leaves_nothing_behind(training: bool) -> None:
    model, x, targets = networks()["lstm"]
    expected, _ = trained_once(model, x, targets)
    gradients = [it.gradient.copy() for it in model.parameters()]
    y = model.forward(x)
    with pytest.raises(IndexError):  # the run refuses a word that is not in the table
        model.forward(np.where(x == x[0, 0], 99, x), training=training)
    if training:
        with pytest.raises(RuntimeError, match="follows no training forward"):
            model.backward(y)
    assert trained_once(model, x, targets)[0] == expected
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        np.testing.assert_array_equal(parameter.gradient, gradient)


def test_backward_that_fails_in_the_middle_leaves_nothing_behind() -> None:
    model, x, targets = networks()["resnet"]
    trained_once(model, x, targets)
    gradients = [it.gradient.copy() for it in model.parameters()]

    def ready(parameter: nn.Parameter) -> None:
        if parameter.name == "layer1.0.conv2.weight":
            raise ArithmeticError(parameter.name)

    dy = np.full_like(model.forward(x), 0.1)
    with pytest.raises(ArithmeticError, match=r"^layer1\.0\.conv2\.weight$"):
        model.backward(dy, ready)
    with pytest.raises(RuntimeError, match="follows no training forward"):
        model.backward(dy)
    trained_once(model, x, targets)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        np.testing.assert_array_equal(parameter.gradient, gradient)


def test_inference_that_fails_keeps_what_backward_needs() -> None:
    model, x, _ = networks()["resnet"]
    dy = np.full_like(model.forward(x), 0.1)
    model.backward(dy.copy())
    expected = [it.gradient.copy() for it in model.parameters()]
    model.forward(x)
    with pytest.raises(ValueError, match=r"expected \(N, 3, H, W\)"):
        model.forward(x[:, :2], training=False)
    model.backward(dy.copy())
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        np.testing.assert_array_equal(parameter.gradient, gradient)


# ---------------------------------------------------------------- forward and backward


def pools() -> nn.Module:
    """Every layer on images by itself, none folded into another."""
    layers: dict[str, nn.Module] = {
        "conv": nn.Conv2d(3, 8, 3, 1, 1, generator=generator()),
        "bn": nn.BatchNorm2d(8, activation="relu"),
        "max": nn.MaxPool2d(2),
        "drop": nn.Dropout(0.3, seed=1),
        "mean": nn.GlobalAvgPool2d(),
        "fc": nn.Linear(8, 4, activation="gelu", generator=generator(1)),
    }
    model = nn.Sequential(layers)
    model.use(nn.Context())
    return model


@pytest.mark.parametrize("name", ["resnet", "cnn", "lstm", "pools"])
def test_inference_between_forward_and_backward_changes_no_gradient(name: str) -> None:
    results = []
    for between in (False, True):
        if name == "pools":
            images = generator(5).standard_normal((4, 3, 8, 8), np.float32)
            model, x, targets = pools(), images, np.arange(4)
        else:
            model, x, targets = networks()[name]
        _, dy = dlprim.softmax_cross_entropy(model.forward(x), targets)
        if between:
            model.forward(2 * x if x.dtype == np.float32 else x[::-1].copy(), training=False)
            model.forward(x[:2], training=False)
        model.backward(dy)
        results.append([it.gradient for it in model.parameters()])
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


MODULES: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "Linear": (linear, ones(2, 4)),
    "Dropout": (lambda: nn.Dropout(0.5, seed=1), ones(2, 4)),
    "Embedding": (lambda: nn.Embedding(4, 3), np.array([0, 3])),
    "Recurrent": (lambda: nn.Recurrent("gru", 4, 5), ones(3, 2, 4)),
    "Sequential": (lambda: nn.Sequential({"a": linear()}), ones(2, 4)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(3), ones(1, 3, 4, 4)),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), ones(1, 3, 4, 4)),
    "AvgPool2d": (lambda: nn.AvgPool2d(2), ones(1, 3, 4, 4)),
    "AdaptiveAvgPool2d": (
        lambda: nn.AdaptiveAvgPool2d(2),
        ones(1, 3, 4, 4),
    ),
    "Upsample": (lambda: nn.Upsample(6), ones(1, 3, 4, 4)),
    "ZeroPad2d": (lambda: nn.ZeroPad2d((1, 0, 2, 0)), ones(1, 3, 4)),
    "Concat": (lambda: nn.Concat(nn.ReLU(), linear()), ones(2, 4)),
    "ReLU": (nn.ReLU, ones(2, 4)),
    "Flatten": (nn.Flatten, ones(2, 4, 3)),
    "GlobalAvgPool2d": (nn.GlobalAvgPool2d, ones(1, 3, 4, 4)),
    "Conv2d": (lambda: nn.Conv2d(3, 3, 1), ones(1, 3, 4, 4)),
}


@pytest.mark.parametrize("name", MODULES)
def test_backward_needs_a_forward_and_a_gradient_of_its_form(name: str) -> None:
    make, x = MODULES[name]
    model = make()
    y = model.forward(x, training=False)
    with pytest.raises(RuntimeError, match=f"backward of {name} follows no training forward"):
        model.backward(y)
    y = model.forward(x)
    with pytest.raises(
        ValueError, match=f"dy of {name} is float32 of shape .*, expected float32 of"
    ):
        model.backward(y[..., None])
    with pytest.raises(TypeError, match=f"dy of {name} is nested otherwise than the result"):
        model.backward([1.0])
    model.backward(y)
    with pytest.raises(RuntimeError, match="expected one in front of each backward"):
        model.backward(y)


@pytest.mark.parametrize("name", MODULES)
def test_input_that_is_no_array_is_refused_by_name(name: str) -> None:
    with pytest.raises(TypeError, match=f"^x of {name} is a list of numbers, expected an array"):
        MODULES[name][0]().forward([1.0])


# ---------------------------------------------------------------- names and states


def test_sequential_has_one_context_and_names_by_itself() -> None:
    model = nn.Sequential({"a": linear(), "b": nn.Linear(5, 3, generator=generator(1))})
    assert {it.context for it in model.modules()} == {model.context}
    state = model.state_dict()
    assert list(state) == ["a.weight", "a.bias", "b.weight", "b.bias"]
    model.load_state_dict({name: it + 1 for name, it in state.items()})
    np.testing.assert_array_equal(model.state_dict()["a.bias"], ones(5))


def test_names_that_are_not_unique_are_refused() -> None:
    class Twice(nn.Linear):
        def own_statistics(self) -> Any:
            return {"weight": ones(2)}

    with pytest.raises(ValueError, match="two arrays of the model are called 'weight'"):
        Twice(2, 2).state_dict()
    with pytest.raises(TypeError, match="layers is no dict"):
        nn.Sequential([linear()])  # type: ignore[arg-type]


def not_finite(model: nn.Module, x: Any) -> str:
    """The first layer, innermost first, with a result that is not finite."""
    return next(name for name, it in results(model, x) if not np.isfinite(it).all())


@pytest.mark.parametrize("name", ["bn1.weight", "layer1.0.bn2.bias", "fc.bias"])
def test_results_of_layers_are_found_by_their_names(name: str) -> None:
    model, x, _ = networks()["resnet"]
    assert np.array_equal(dict(results(model, x))["fc"], model(x))
    next(it for it in model.parameters() if it.name == name).value[0] = np.nan
    assert not_finite(model, x) == name.rpartition(".")[0]


def test_results_of_a_model_of_ones_own() -> None:
    model = LanguageModel("lstm", 5, 3, 2, generator())
    model.use(nn.Context())
    parameter = next(it for it in model.parameters() if it.name == "rnn.weight_hh_l1")
    parameter.value[...] = np.nan
    assert not_finite(model, np.zeros((3, 2), np.int64)) == "rnn"


WRONG: list[tuple[Any, type[Exception], str]] = [
    (None, TypeError, "b.bias has dtype object"),
    (np.full(3, "2.5"), TypeError, "b.bias has dtype <U3, expected float32"),
    (np.ones(3, complex), TypeError, "b.bias has dtype complex128"),
    (np.full(3, 1e300), ValueError, "b.bias holds a value that float32 cannot hold"),
    (np.ones(4), ValueError, r"b.bias has shape \(4,\), expected \(3,\)"),
    ([[1], [1, 2]], TypeError, "b.bias cannot be viewed"),
]


@pytest.mark.parametrize(("value", "error", "message"), WRONG)
def test_state_that_does_not_fit_changes_nothing(
    value: Any, error: type[Exception], message: str
) -> None:
    model = nn.Sequential({"a": linear(), "b": nn.Linear(5, 3, generator=generator(1))})
    before = model.state_dict()
    state = {name: it + 1 for name, it in before.items()} | {"b.bias": value}
    with pytest.raises(error, match=message):
        model.load_state_dict(state)
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


def test_state_may_lack_counters_of_batches() -> None:
    model, x, targets = networks()["cnn"]
    trained_once(model, x, targets)
    state = {name: it for name, it in model.state_dict().items() if "num_batches" not in name}
    other = networks()["cnn"][0]
    other.load_state_dict(state)
    np.testing.assert_array_equal(
        other.forward(x, training=False), model.forward(x, training=False)
    )
    with pytest.raises(TypeError, match="state is of type list, expected a dict"):
        other.load_state_dict([1])  # type: ignore[arg-type]
