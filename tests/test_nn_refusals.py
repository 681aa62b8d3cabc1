"""What modules that are traced refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn
from dlprim.optim import SGD
from nn_modules import Scale, drawn, made, require_right

pytestmark = pytest.mark.any_level


def test_a_pass_that_fails_leaves_the_model_as_it_was() -> None:
    model, x = made(), drawn(4, 5)
    y = model(x)
    with pytest.raises(ValueError, match=r"^x of Linear has shape \(4, 6\)"):
        model(drawn(4, 6))
    with pytest.raises(RuntimeError, match="follows no training forward"):
        model.backward(y)
    np.testing.assert_array_equal(model(x), y)
    with pytest.raises(ValueError, match=r"expected float32 of shape \(4, 3\)"):
        model.backward(y[:2])
    require_right(model, x)


def test_backward_follows_a_training_forward() -> None:
    model, x = made(), drawn(4, 5)
    y = model(x)
    model.backward(y)
    with pytest.raises(RuntimeError, match="backward of Net follows no training forward"):
        model.backward(y)
    model.eval()
    model(x)
    with pytest.raises(RuntimeError, match=r"inference mode, which train\(\) of the model ends"):
        model.backward(y)


def test_an_input_that_was_written_is_noticed() -> None:
    model, x = made(), drawn(4, 5)
    y = model(x)
    x += 1
    with pytest.raises(RuntimeError, match="x of Net was written between"):
        model.backward(y)


@pytest.mark.parametrize("form", ["turned", "every second"])
def test_an_input_with_strides_was_copied_and_may_be_written(form: str) -> None:
    model = made()
    memory = drawn(4, 10)
    x = memory[:, ::2] if form == "every second" else np.asfortranarray(memory[:, :5])
    y = model(x)
    expected = model.backward(y)
    y = model(x)
    x[...] = 0
    np.testing.assert_array_equal(model.backward(y), expected)


def test_parameters_that_were_written_are_noticed() -> None:
    model, x = made(), drawn(4, 5)
    optimizer = SGD(model.parameters(), 0.1)
    step = nn.Step(model, nn.MSELoss(), optimizer)

    def by_step() -> None:
        step(x, np.zeros((4, 3), np.float32))

    def by_hand() -> None:
        model.head.weight.value *= 0.5

    for write in (by_step, by_hand, optimizer.step):
        model.backward(model(x))
        y = model(x)
        write()
        with pytest.raises(RuntimeError, match=r"^a parameter of Net was written"):
            model.backward(y)
    model.use(nn.Context())  # which names parameters
    y = model(x)
    model.head.weight.value += 1
    with pytest.raises(RuntimeError, match=r"^parameter 'head\.weight' of Net was written"):
        model.backward(y)
    y = model(x)
    assert model.head.weight.value.any()  # which reads it
    model.backward(y)


def test_a_gradient_that_is_refused_may_be_followed_by_another() -> None:
    model, x = made(), drawn(4, 5)
    y = model(x)
    with pytest.raises(
        ValueError, match=r"^dy of Net is float32 of shape \(2, 3\), expected float32"
    ):
        model.backward(y[:2])
    with pytest.raises(TypeError, match=r"^dy of Net is None, expected float32 of shape \(4, 3\)"):
        model.backward(None)
    with pytest.raises(TypeError, match=r"^dy of Net is nested otherwise than the result"):
        model.backward([y])
    assert model.backward(y).shape == x.shape


def test_types_are_those_of_layers() -> None:
    model, x = made(), drawn(4, 5)
    y = model(x)
    with pytest.raises(TypeError, match="x of Net has dtype float64, expected float32 or bfloat16"):
        model(x.astype(np.float64))
    half = dlprim.to_bfloat16(x)
    np.testing.assert_array_equal(model(half), model(dlprim.to_float32(half)))
    np.testing.assert_allclose(model(half), y, atol=0.1)


def test_what_a_trace_would_not_see_is_refused() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(np.ones(3))

        def forward(self, x: Any) -> Any:
            return x * self.weight.value

    class Writes(Reads):
        def forward(self, x: Any) -> Any:
            self.weight += 1
            return x

    x = drawn(2, 3)
    with pytest.raises(TypeError, match="expected the parameter itself, which is an array there"):
        Reads()(x)
    with pytest.raises(TypeError, match="writes into argument"):
        Writes()(x)
    with pytest.raises(TypeError, match="is used as an array, expected its value"):
        np.exp(Scale(3).weight)
    with pytest.raises(TypeError, match="is used as an array, expected its value"):
        dlprim.linear(x, nn.Linear(3, 3).weight)


def test_a_backward_of_ones_own_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^ByHand has a backward of its own, expected a forward"):

        class ByHand(nn.Linear):
            def backward(self, dy: Any, ready: Any = None) -> Any:
                return dy


def test_a_generator_that_draws_in_a_trace_is_refused() -> None:
    class Noise(nn.Module):
        def __init__(self, draws: bool) -> None:
            super().__init__()
            self.random, self.draws = np.random.default_rng(0), draws

        def forward(self, x: Any) -> Any:
            return x + self.random.standard_normal(3, np.float32) if self.draws else x

    x = drawn(2, 3)
    model = nn.Sequential({"noise": Noise(True)})
    for _ in range(2):
        with pytest.raises(TypeError, match=r"^random of Noise 'noise' draws where the module is"):
            model(x)
    np.testing.assert_array_equal(Noise(False)(x), x)


def test_what_is_no_call_is_said() -> None:
    class Forgot(nn.Module):
        def __init__(self) -> None:
            self.fc = nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            return self.fc(x)

    class Flagged(nn.Module):
        def forward(self, x: Any, turned: bool = False) -> Any:
            return -x if turned else x

    x = drawn(2, 3)
    with pytest.raises(TypeError, match=r"^Forgot has no context, expected super\(\)\.__init__"):
        Forgot()(x)
    for model in (nn.Linear(3, 3), Scale(3)):
        with pytest.raises(TypeError, match=r"^training is given in a call of .*model\.forward\(x"):
            model(x, training=False)
        for call in (model, model.forward):
            with pytest.raises(TypeError, match=r"^training is given by place to .* by name"):
                call(x, False)
    for call in (Flagged(), Flagged().forward):
        np.testing.assert_array_equal(call(x, False), x)
        np.testing.assert_array_equal(call(x, True), -x)
    for given in ({"a": x}, (x, x), None):
        with pytest.raises(TypeError, match=r"^x of Linear '0' is .*, expected an array"):
            nn.Sequential(nn.Linear(3, 3))(given)
    with pytest.raises(TypeError, match=r"^x of Scale is a list of numbers, expected an array"):
        Scale(3)(x.tolist())
