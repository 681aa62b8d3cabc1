"""Modules that are traced and change between calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlprim import nn
from nn_modules import Scale, drawn, due, made, require_right

pytestmark = pytest.mark.any_level


def test_what_is_written_or_replaced_is_seen() -> None:
    model, x = made(), drawn(4, 5)
    for mode in (True, False):
        model.train(mode)
        model(x)
        model.head.weight.value[...] = drawn(3, 5, seed=2)
        np.testing.assert_allclose(model(x), due(model, x), rtol=1e-5, atol=1e-6)
        model.head.bias = nn.Parameter(drawn(3, seed=3))
        np.testing.assert_allclose(model(x), due(model, x), rtol=1e-5, atol=1e-6)
        model.head = nn.Linear(5, 3)
        np.testing.assert_allclose(model(x), due(model, x), rtol=1e-5, atol=1e-6)
        model.blocks[1] = Scale(5)
        model.blocks[1].bias.value[...] = 1
        np.testing.assert_allclose(model(x), due(model, x), rtol=1e-5, atol=1e-6)
        before = model(x)
        model.blocks[1].power = 2
        assert np.abs(model(x) - before).max() > 1e-3
        model.blocks[1].power = 1
        np.testing.assert_allclose(model(x), before)
        model.blocks.append(Scale(5))
        assert np.abs(model(x) - before).max() > 1e-3
        model.blocks.pop()
    model.train()
    require_right(model, x)


def test_an_array_of_a_module_is_seen_when_it_is_assigned_or_said_to_have_changed() -> None:
    class Shift(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.by = np.zeros(3, np.float32)

        def forward(self, x: Any) -> Any:
            return x + self.by

    model, x = Shift(), drawn(2, 3)
    np.testing.assert_array_equal(model(x), x)
    model.by = np.ones(3, np.float32)
    np.testing.assert_array_equal(model(x), x + 1)
    model.by[...] = 2
    model.changed()
    np.testing.assert_array_equal(model(x), x + 2)


class Held(nn.Module):
    """Reads what its attributes hold."""

    def __init__(self) -> None:
        super().__init__()
        self.fc: Any = nn.Linear(3, 3)
        self.more: list[Any] = []
        self.options: dict[str, Any] = {}
        self.factor: Any = 2
        self.by = np.zeros(3, np.float32)

    def forward(self, x: Any) -> Any:
        x = self.fc(x) + self.by
        for it in self.more:
            x = it(x) if isinstance(it, nn.Module) else x * it
        for name in self.options:
            x = -x if name == "negative" else x + 1
        return x * self.factor if type(self.factor) is int else x * self.factor * 100


@pytest.mark.parametrize("training", [True, False])
def test_what_is_put_into_empty_containers_is_seen(training: bool) -> None:
    model, x = Held().train(training), drawn(2, 3)
    y = model(x)
    model.options["negative"] = None
    np.testing.assert_array_equal(model(x), -y)
    del model.options["negative"]
    model.options["one"] = None
    np.testing.assert_allclose(model(x), y + 2, rtol=1e-5, atol=1e-6)
    model.options.clear()
    model.more.append(3.0)
    np.testing.assert_allclose(model(x), 3 * y, rtol=1e-5)
    model.more[0] = nn.Linear(3, 4)
    assert model(x).shape == (2, 4)


def test_equal_numbers_of_other_types_are_others() -> None:
    model, x = Held(), drawn(2, 3)
    y = model(x)
    for factor in (2.0, True, 2):
        model.factor = factor
        due = y / 2 * factor * (1 if type(factor) is int else 100)
        np.testing.assert_allclose(model(x), due, rtol=1e-5)


def test_a_layer_that_says_it_has_changed_reaches_the_model_around_it() -> None:
    layer = Held()
    model, x = nn.Sequential(layer, Scale(3)).eval(), drawn(2, 3)
    y = model(x)
    layer.by[...] = 1
    layer.changed()
    np.testing.assert_allclose(model(x), y + 2 * np.linspace(1, 2, 3), rtol=1e-5, atol=1e-6)


def test_attributes_that_forward_assigns_do_not_trace_it_again() -> None:
    class Noting(nn.Module):
        traces = 0

        def forward(self, x: Any) -> Any:
            type(self).traces += 1
            self.width = x.shape[1]
            self.seen = x
            return x * self.width

    model = Noting()
    for _ in range(3):
        np.testing.assert_array_equal(model(np.ones((2, 3), np.float32)), np.full((2, 3), 3))
    assert Noting.traces == 1


def test_modes_are_those_of_the_modules_inside() -> None:
    class Body(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(3, momentum=0.5)

        def forward(self, x: Any) -> Any:
            return self.norm(x)

    model, x = Body(), drawn(4, 3, 2, 2) + 5
    mean = x.mean(axis=(0, 2, 3))
    y = model(x)
    assert abs(y.mean()) < 1e-5
    np.testing.assert_allclose(model.norm.running_mean, mean / 2, rtol=1e-5)
    assert model.norm.batches == 1
    model.norm.eval()
    assert model(x).mean() > 1
    assert model.norm.batches == 1
    model.backward(np.ones_like(y))
    assert np.abs(model.norm.bias.gradient - 16).max() < 1e-4
    model.train()
    model(x)
    assert model.norm.batches == 2
    model.eval()
    assert model.norm.batches == 2


def test_inference_follows_parameters_however_often_they_change() -> None:
    model, x = made(), drawn(4, 5)
    model.eval()
    weight = model.head.weight
    for step in range(12):
        for _ in range(1 + step % 4 * 3):
            np.testing.assert_allclose(model(x), due(model, x), rtol=1e-5, atol=1e-6)
        held = weight.value
        held *= 1.1
        np.testing.assert_allclose(model(x), due(model, x), rtol=1e-5, atol=1e-6)
        held += 0.1
        del held
    np.testing.assert_allclose(model(x[:2]), due(model, x[:2]), rtol=1e-5, atol=1e-6)


def test_forward_takes_a_mode_for_one_pass() -> None:
    class Body(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, x: Any) -> Any:
            return self.drop(x) * 2

    model, x = Body(), np.ones((50, 3), np.float32)
    assert (model.forward(x, training=True) == 0).any()
    assert (model.forward(x, training=False) == 2).all()
    model.eval()
    assert (model.forward(x) == 2).all()
    y = model.forward(x, training=True)
    np.testing.assert_array_equal(model.backward(np.ones_like(x)), y)
    with pytest.raises(TypeError, match="training"):
        model.forward(x, training=1)
