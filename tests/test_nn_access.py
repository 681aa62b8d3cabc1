"""Layers are reached and replaced, their names are those of their places, arrays do not stand in
for parameters."""

from __future__ import annotations

import copy
import functools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlprim import nn

pytestmark = pytest.mark.any_level


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


class Classifier(nn.Module):
    """A module of one's own that `use` was never called for."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.fc = nn.LSTM(3, 4), nn.Linear(4, 2)

    def arguments(self) -> dict[str, Any]:
        return {}

    def forward(self, x: Any) -> Any:
        return self.fc(self.lstm(x)[-1])


def small() -> nn.Sequential:
    return nn.Sequential({"body": nn.Linear(3, 4), "act": nn.ReLU(), "fc": nn.Linear(4, 2)})


# ---------------------------------------------------------------- names


def test_a_model_without_use_is_saved_as_it_is_loaded(tmp_path: Path) -> None:
    model, x = Classifier(), values(5, 2, 3)
    nn.save(model, tmp_path / "it")
    again = nn.load(tmp_path / "it", classes=[Classifier])
    np.testing.assert_array_equal(again.eval()(x), model.eval()(x))
    assert list(model.state_dict()) == list(again.state_dict())
    assert {"lstm.weight_ih_l0", "fc.weight"} < set(model.state_dict())
    model.load_state_dict(again.state_dict())


def test_a_part_of_a_model_has_the_names_of_the_model() -> None:
    model = nn.Sequential({"a": nn.Sequential({"b": nn.Linear(2, 2)})})
    assert list(model.children()["a"].state_dict()) == ["a.b.weight", "a.b.bias"]


def test_named_parameters_are_those_of_the_state() -> None:
    for model in (small(), Classifier()):
        named = model.named_parameters()
        assert [name for name, _ in named] == list(model.state_dict())
        assert all(one is two for (_, one), two in zip(named, model.parameters(), strict=True))


# ---------------------------------------------------------------- parameters


@pytest.mark.parametrize("name", ["weight", "bias"])
@pytest.mark.parametrize(
    "make", [lambda: nn.Linear(2, 2), lambda: nn.Conv2d(2, 2, 1), lambda: nn.BatchNorm2d(2)]
)
def test_an_array_is_no_parameter(make: Any, name: str) -> None:
    layer = make()
    before = getattr(layer, name)
    expected = rf"^{name} of {type(layer).__name__} .* ndarray, expected .*layer\.{name}\.value = "
    with pytest.raises(TypeError, match=expected):
        setattr(layer, name, np.ones(2, np.float32))
    assert getattr(layer, name) is before
    setattr(layer, name, nn.Parameter(before.value * 2))
    assert len(layer.parameters()) == 2


def test_an_array_is_no_table_and_no_statistic() -> None:
    with pytest.raises(TypeError, match=r"^weight of Embedding"):
        nn.Embedding(2, 2).weight = np.ones((2, 2))  # type: ignore[assignment]
    with pytest.raises(TypeError, match=r"^mean of BatchNorm2d"):
        nn.BatchNorm2d(2).mean = np.ones(2)  # type: ignore[assignment]


def test_grad_is_told_the_name_gradient() -> None:
    parameter = nn.Parameter(np.ones(2), "it")
    with pytest.raises(AttributeError, match=r"^grad of Parameter 'it' .* expected gradient"):
        parameter.grad = None  # type: ignore[assignment]
    with pytest.raises(AttributeError, match=r"called gradient"):
        _ = parameter.grad


# ---------------------------------------------------------------- layers


def test_layers_are_reached_by_place_name_and_attribute() -> None:
    model = small()
    layers = list(model.children().values())
    assert list(model) == layers == [model[0], model[1], model[2]]
    assert len(model) == 3
    assert model[-1] is model["fc"] is model.fc is layers[-1]
    assert nn.Sequential({}) or len(nn.Sequential({})) == 0
    with pytest.raises(IndexError, match="layer 3 is asked for, expected one of 3"):
        model[3]
    with pytest.raises(KeyError, match=r"'head' is no layer, expected one of \['body'"):
        model["head"]
    with pytest.raises(TypeError, match="by a slice, expected a number or a name"):
        model[:2]  # type: ignore[index]
    with pytest.raises(AttributeError, match=r"^'Sequential' object has no attribute 'head'"):
        _ = model.head


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_copies_have_their_layers_too(twin: Any) -> None:
    model = small()
    other = twin(model)
    assert other.fc is other[2]
    assert other.fc is not model.fc


def test_a_head_is_replaced() -> None:
    model = nn.resnet((1,), 16, 10)
    assert model.conv1.weight.shape[0] == 16
    model.eval()
    old, model.fc = model.fc, nn.Linear(64, 3)
    x = values(2, 3, 32, 32)
    assert model(x).shape == (2, 3)
    assert model.state_dict()["fc.weight"].shape == (3, 64)
    assert model.fc.context is model.context
    assert not model.fc.training
    nn.Sequential(old)  # is in no container any more
    model.train()
    model.backward(np.ones_like(model(x)))
    assert model.fc.weight.gradient.any()


def test_replaced_in_between_no_backward_follows() -> None:
    model, x = small(), values(2, 3)
    y = model(x)
    model["fc"] = nn.Linear(4, 2)
    with pytest.raises(RuntimeError, match="follows no training forward"):
        model.backward(np.ones_like(y))


def test_layers_that_cannot_take_a_place_are_refused() -> None:
    model, other = small(), small()
    with pytest.raises(ValueError, match=r"replaced by Linear 'fc' of another Sequential"):
        model.fc = other.fc
    with pytest.raises(TypeError, match="layer 'fc' is replaced by a ndarray"):
        model["fc"] = np.ones(2)  # type: ignore[assignment]
    with pytest.raises(ValueError, match="replaced by Sequential"):
        model.fc = model
    with pytest.raises(TypeError, match="has head beside the layers"):
        model.head = nn.Linear(2, 2)
    assert len(model.parameters()) == 4
    model.fc = copy.deepcopy(other.fc)


def test_a_forward_of_ones_own_may_be_made_like_that_of_the_container() -> None:
    class Headed(nn.Sequential):
        @functools.wraps(nn.Sequential.forward)
        def forward(self, x: Any) -> Any:
            return self.head(super().forward(x))

    model = Headed({"body": nn.Linear(3, 4)})
    model.head = nn.Linear(4, 2)
    assert model(values(2, 3)).shape == (2, 2)
    assert len(model.parameters()) == 4
    assert len(model.parameters()) == 4
