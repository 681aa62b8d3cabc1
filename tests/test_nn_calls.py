"""Calls of modules where something could go wrong in silence: modes that a call says, writes while
the way back still reads, choices by shapes and by parameters, and what outlives its model."""

from __future__ import annotations

import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

import dlprim
from dlprim import nn, optim


def batch(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


def test_the_mode_of_a_call_is_that_of_all_modules_in_forward() -> None:
    class Doubled(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2 if self.training else x

    model, x = nn.Sequential(Doubled(), nn.Identity()), batch(2, 3)
    np.testing.assert_array_equal(model(x), 2 * x)
    np.testing.assert_array_equal(model.forward(x, training=False), x)
    model.eval()
    np.testing.assert_array_equal(model(x), x)
    np.testing.assert_array_equal(model.forward(x, training=True), 2 * x)
    assert not model.training
    assert not model[0].training


def test_statistics_of_ones_own_stay_in_inference() -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.var = nn.Parameter(np.zeros(3)), nn.Parameter(np.ones(3))

        def forward(self, x: Any) -> Any:
            return dlprim.batch_norm(x, self.mean, self.var, training=self.training)

    model, x = Normed(), batch(5, 3)
    np.testing.assert_allclose(model.forward(x, training=False), x, rtol=1e-4)
    assert not model.mean.value.any()
    model(x)
    assert model.mean.value.any()


def test_a_forward_that_takes_the_mode_is_refused() -> None:
    with pytest.raises(TypeError, match=r"takes training, expected self\.training in it"):

        class Old(nn.Module):
            def forward(self, x: Any, training: bool | None = None) -> Any:
                return x

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            return self.layer.forward(x, training=True)

    with pytest.raises(TypeError, match=r"a module around it runs, .*expected self\.layer\(x\)"):
        Outer()(batch(2, 3))


def test_a_backward_of_a_mixin_is_refused() -> None:
    class Mixin:
        def backward(self, dy: Any) -> str:
            return "mine"

    with pytest.raises(TypeError, match="has a backward of its own"):
        type("Both", (Mixin, nn.Module), {"forward": lambda self, x: x})


def test_parameters_that_ready_writes_are_noticed() -> None:
    layers = [nn.Linear(6, 6, bias=False) for _ in range(3)]
    model = nn.Sequential(*layers)
    y = model(batch(4, 6))

    def write(parameter: nn.Parameter) -> None:
        parameter.value[...] = 0

    with pytest.raises(RuntimeError, match="was written between its training forward and the end"):
        model.backward(np.ones_like(y), ready=write)


def test_a_step_between_forward_and_backward_is_noticed_whatever_it_writes() -> None:
    model = nn.Sequential(nn.Embedding(5000, 8), nn.Linear(8, 8, bias=False))
    places = np.array([[1, 2], [3, 4]])
    y = model(places)
    model.backward(np.ones_like(y))
    y = model(places)
    optim.SGD(model.parameters()[1:], 0.1).step()
    with pytest.raises(RuntimeError, match=r"parameter '1.weight' of Sequential was written"):
        model.backward(np.ones_like(y))


def test_lengths_by_name_have_no_gradient_to_unpack() -> None:
    embedding, lstm = nn.Embedding(9, 4), nn.LSTM(4, 5)
    x = np.arange(6).reshape(3, 2)
    y = lstm(embedding(x), lengths=np.array([3, 1]))
    dx = lstm.backward(np.ones_like(y))
    assert dx.shape == (3, 2, 4)
    assert embedding.backward(dx) is None


def test_parameters_are_arrays_in_conditions() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p = nn.Parameter(np.array([0.0, 1.0, 2.0]))

        def forward(self, x: Any) -> Any:
            kept = np.where(self.p == 0, x, -x)
            return np.where(self.p != 1, kept, np.float32(0))

    model, x = Masked(), batch(2, 3)
    np.testing.assert_array_equal(model(x), x * np.float32([1, 0, -1]))
    assert model.p in [model.p]
    assert model.p != nn.Parameter(np.zeros(3))


def test_a_first_convolution_of_a_parameter_learns_both() -> None:
    class Drawn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.image = nn.Parameter(np.ones((1, 2, 5, 5)))
            self.conv = nn.Conv2d(2, 1, 3, first=True)

        def forward(self, x: Any) -> Any:
            return self.conv(self.image) + x

    model = Drawn()
    y = model(np.zeros((1, 1, 3, 3), np.float32))
    model.backward(np.ones_like(y))
    np.testing.assert_allclose(model.conv.weight.gradient, np.full((1, 2, 3, 3), 9), rtol=1e-6)
    assert model.image.gradient.any()


@pytest.mark.parametrize("how", ["set", "get", "tuple"])
def test_a_look_up_by_an_extent_is_a_choice(how: str) -> None:
    class Chosen(nn.Module):
        def forward(self, x: Any) -> Any:
            T = x.shape[0]
            if how == "set":
                return x * (2 if T in {8, 16} else 1)
            if how == "get":
                return x * {8: 2.0}.get(T, 1.0)
            return x * {(8, 3): 2.0}.get(x.shape, 1.0)

    model = Chosen()
    for T in (5, 6, 7, 8, 9):
        x = batch(T, 3)
        np.testing.assert_array_equal(model(x), x * (2 if T == 8 else 1))


def test_models_go_when_nobody_has_them() -> None:
    gc.collect()
    gc.disable()
    try:
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.LSTM(4, 4))
        x = batch(3, 2, 4)
        model.backward(model(x))
        model.eval()
        for _ in range(10):
            model(x)
        weight = weakref.ref(model[0].weight)
        del model
        assert weight() is None
    finally:
        gc.enable()


def test_states_of_one_number_of_sequences_are_pickled() -> None:
    lstm = nn.LSTM(4, 5)
    lstm.carry = True
    sizes = []
    for N in (2, 3, 4):
        lstm.states = []
        lstm(batch(3, N, 4))
        sizes.append(len(pickle.dumps(lstm)))
    assert sizes[-1] - sizes[0] < 500
    again = pickle.loads(pickle.dumps(lstm))
    np.testing.assert_array_equal(again.states[0][0], lstm.states[0][0])


def test_a_context_is_made_once() -> None:
    context = nn.Context(algorithm="direct")
    with pytest.raises(AttributeError, match=r"algorithm of Context is assigned, expected another"):
        context.algorithm = "winograd"
    assert pickle.loads(pickle.dumps(context)).algorithm == "direct"


def test_stop_gradient_takes_numbers_and_keeps_what_is_weak() -> None:
    assert dlprim.stop_gradient(2.0) == 2.0
    with pytest.raises(TypeError, match="x is of type str, expected an array or a number"):
        dlprim.stop_gradient("x")

    @dlprim.compile
    def scaled(x: Any, k: float) -> Any:
        return x * dlprim.stop_gradient(k)

    x = dlprim.to_bfloat16(batch(2, 3))
    assert scaled(x, 2.0).dtype == x.dtype
